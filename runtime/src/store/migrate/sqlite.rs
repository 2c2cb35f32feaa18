//! Applies a plan to SQLite: a revision with its record is one transaction, so a half-applied one cannot exist.
//!
//! `BEGIN IMMEDIATE` is the lease here: SQLite has one writer. The `schema-migration` row still counts its holders, so
//! that both engines tell the same story.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::store::conn::Dialect;
use crate::store::error::sqlite;
use crate::store::local::directory;
use crate::store::migrate::plan::{Refusal, Step, plan};
use crate::store::migrate::revisions::{BOOTSTRAP, Statement};
use crate::store::migrate::{MigrateError, Observer, Progress, announce};
use crate::store::schema::ddl::Catalog;
use crate::store::schema::read::{connect_sqlite, found_sqlite};

const RECORD: &str = "-- schema_revisions.record
INSERT INTO pc_schema_revisions
  (revision, name, checksum, oldest_reader, started_at, completed_at, statements_total, statements_done)
SELECT ?1, ?2, ?3, ?4, now, now, ?5, ?5 FROM (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now)";

const COUNT_HOLDER: &str = "-- migration_lease.count
INSERT INTO pc_scheduler_leases (lease_name, owner_id, fence, lease_expires_at, updated_at)
VALUES ('schema-migration', NULL, 1, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (lease_name) DO UPDATE SET fence = fence + 1, updated_at = excluded.updated_at";

/// Applies every step that is to do.
pub(super) fn apply(path: &Path, observer: Observer<'_>) -> Result<(), MigrateError> {
    if let Some(directory) = directory(path) {
        std::fs::create_dir_all(directory).map_err(|_| MigrateError::Directory)?;
    }
    let conn = connect_sqlite(path, true)?;
    let result = steps(&conn, observer);
    // Closing rolls back what an error left open.
    let closed = conn.close().map_err(|(_, error)| sqlite(&error).into());
    result.and(closed)
}

fn steps(conn: &Connection, observer: Observer<'_>) -> Result<(), MigrateError> {
    loop {
        raw(conn, "BEGIN IMMEDIATE")?;
        // Read again in each transaction: another migrator may have done it meanwhile.
        let found = found_sqlite(conn)?;
        let Some(step) = plan(Dialect::Sqlite, &found)?.steps.first().copied() else {
            return raw(conn, "ROLLBACK");
        };
        for statement in BOOTSTRAP.statements(Dialect::Sqlite) {
            let object = Catalog::default()
                .apply(statement.sql)
                .map_err(|_| Refusal::Statement { file: statement.file })?;
            if !found.catalog.holds(&object) {
                run(conn, *statement)?;
            }
        }
        revision(conn, &step, observer)?;
        raw(conn, "COMMIT")?;
        observer(Progress::Completed {
            revision: step.revision.number,
            name: step.revision.name,
        });
    }
}

fn revision(conn: &Connection, step: &Step, observer: Observer<'_>) -> Result<(), MigrateError> {
    let statements = step.revision.statements(Dialect::Sqlite);
    if step.begun {
        return Err(MigrateError::Refused(Refusal::HalfApplied {
            revision: step.revision.number,
            file: statements[step.done.min(statements.len() - 1)].file,
        }));
    }
    for (at, statement) in statements.iter().enumerate() {
        announce(observer, Dialect::Sqlite, step.revision, at);
        run(conn, *statement)?;
    }
    let row = params![
        step.revision.number,
        step.revision.name,
        step.revision.checksum(Dialect::Sqlite),
        step.revision.oldest_reader,
        i64::try_from(statements.len()).unwrap_or(i64::MAX),
    ];
    conn.execute(RECORD, row).map_err(|error| sqlite(&error))?;
    raw(conn, COUNT_HOLDER)
}

fn run(conn: &Connection, statement: Statement) -> Result<(), MigrateError> {
    // SQLite keeps the text of a definition as it came.
    conn.execute_batch(statement.sql.trim_end())
        .map_err(|error| MigrateError::Statement {
            file: statement.file,
            error: sqlite(&error),
        })
}

fn raw(conn: &Connection, sql: &'static str) -> Result<(), MigrateError> {
    conn.execute_batch(sql).map_err(|error| sqlite(&error).into())
}
