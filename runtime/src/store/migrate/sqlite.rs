//! Applies a plan to SQLite: a revision with its record is one transaction, so a half-applied one cannot exist.
//!
//! `BEGIN IMMEDIATE` is the lease here: SQLite has one writer. The `schema-migration` row still counts its holders, so
//! that both engines tell the same story.

use std::path::Path;

use sqlx::{Connection as _, SqliteConnection};

use crate::store::conn::Dialect;
use crate::store::migrate::plan::{Refusal, Step, plan};
use crate::store::migrate::revisions::{BOOTSTRAP, Statement};
use crate::store::migrate::{MigrateError, Observer, Progress, announce};
use crate::store::schema::ddl::Catalog;
use crate::store::schema::read::{connect_sqlite, found_sqlite, sqlite};

const RECORD: &str = "-- schema_revisions.record
INSERT INTO pc_schema_revisions
  (revision, name, checksum, oldest_reader, started_at, completed_at, statements_total, statements_done)
SELECT ?1, ?2, ?3, ?4, now, now, ?5, ?5 FROM (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now)";

const COUNT_HOLDER: &str = "-- migration_lease.count
INSERT INTO pc_scheduler_leases (lease_name, owner_id, fence, lease_expires_at, updated_at)
VALUES ('schema-migration', NULL, 1, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (lease_name) DO UPDATE SET fence = fence + 1, updated_at = excluded.updated_at";

/// Applies every step that is to do.
pub(super) async fn apply(path: &Path, observer: Observer<'_>) -> Result<(), MigrateError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|_| MigrateError::Directory)?;
    }
    let mut conn = connect_sqlite(path, true).await?;
    let result = steps(&mut conn, observer).await;
    // Closing rolls back what an error left open.
    let closed = conn.close().await.map_err(|error| sqlite(&error).into());
    result.and(closed)
}

async fn steps(conn: &mut SqliteConnection, observer: Observer<'_>) -> Result<(), MigrateError> {
    loop {
        raw(conn, "BEGIN IMMEDIATE").await?;
        // Read again in each transaction: another migrator may have done it meanwhile.
        let found = found_sqlite(conn).await?;
        let Some(step) = plan(Dialect::Sqlite, &found)?.steps.first().copied() else {
            return raw(conn, "ROLLBACK").await;
        };
        for statement in BOOTSTRAP.statements(Dialect::Sqlite) {
            let object = Catalog::default()
                .apply(statement.sql)
                .map_err(|_| Refusal::Statement { file: statement.file })?;
            if !found.catalog.holds(&object) {
                run(conn, *statement).await?;
            }
        }
        revision(conn, &step, observer).await?;
        raw(conn, "COMMIT").await?;
        observer(Progress::Completed {
            revision: step.revision.number,
            name: step.revision.name,
        });
    }
}

async fn revision(conn: &mut SqliteConnection, step: &Step, observer: Observer<'_>) -> Result<(), MigrateError> {
    let statements = step.revision.statements(Dialect::Sqlite);
    if step.begun {
        return Err(MigrateError::Refused(Refusal::HalfApplied {
            revision: step.revision.number,
            file: statements[step.done.min(statements.len() - 1)].file,
        }));
    }
    for (at, statement) in statements.iter().enumerate() {
        announce(observer, Dialect::Sqlite, step.revision, at);
        run(conn, *statement).await?;
    }
    sqlx::query(RECORD)
        .bind(step.revision.number)
        .bind(step.revision.name)
        .bind(step.revision.checksum(Dialect::Sqlite))
        .bind(step.revision.oldest_reader)
        .bind(i64::try_from(statements.len()).unwrap_or(i64::MAX))
        .execute(&mut *conn)
        .await
        .map_err(|error| sqlite(&error))?;
    raw(conn, COUNT_HOLDER).await
}

async fn run(conn: &mut SqliteConnection, statement: Statement) -> Result<(), MigrateError> {
    let done = sqlx::raw_sql(statement.sql).execute(conn).await;
    done.map(|_| ()).map_err(|error| MigrateError::Statement {
        file: statement.file,
        error: sqlite(&error),
    })
}

async fn raw(conn: &mut SqliteConnection, sql: &'static str) -> Result<(), MigrateError> {
    let done = sqlx::raw_sql(sql).execute(conn).await;
    done.map(|_| ()).map_err(|error| sqlite(&error).into())
}
