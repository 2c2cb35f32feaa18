//! Applies a plan to OceanBase, where each DDL statement commits by itself.
//!
//! Before a revision begins, its row is written; after each statement, the row's count moves. A migrator that dies
//! therefore leaves a state that the plan can name: go on at the next statement, or refuse. The lease is renewed between
//! statements and, over a second connection, while one runs.

use std::time::Duration;

use powercontext_core::time::Span;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use sqlx::{MySqlConnection, Row as _};

use crate::rt;
use crate::store::conn::Dialect;
use crate::store::error::{Down, TxError};
use crate::store::migrate::lease::{self, MigrationLease};
use crate::store::migrate::plan::{Step, plan};
use crate::store::migrate::revisions::{BOOTSTRAP, Statement};
use crate::store::migrate::{MigrateError, Observer, Progress, announce};
use crate::store::schema::ddl::Catalog;
use crate::store::schema::read::{connect_oceanbase, found_oceanbase, oceanbase};

/// The lease lasts 600 s; a statement that takes longer than this is renewed under way.
const RENEW_EVERY: Duration = Duration::from_mins(1);
/// How often a waiting migrator looks whether the lease is free.
const POLL: Duration = Duration::from_secs(1);
/// The table exists: another migrator was faster.
const TABLE_EXISTS: u16 = 1050;
/// The table is unknown.
const TABLE_UNKNOWN: i64 = 1146;
/// A table that another connection has made is unknown to this one for a moment longer.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked for.
const SEEN_POLL: Duration = Duration::from_millis(50);

const BEGIN: &str = "-- schema_revisions.begin
INSERT INTO pc_schema_revisions
  (revision, name, checksum, oldest_reader, started_at, completed_at, statements_total, statements_done)
SELECT ?, ?, ?, ?, UTC_TIMESTAMP(6), NULL, ?, 0 FROM pc_scheduler_leases
WHERE lease_name = 'schema-migration' AND owner_id = ? AND fence = ? AND lease_expires_at > UTC_TIMESTAMP(6)";

const NOTE: &str = "-- schema_revisions.note
UPDATE pc_schema_revisions SET statements_done = ?
WHERE revision = ? AND completed_at IS NULL AND EXISTS (
  SELECT 1 FROM pc_scheduler_leases
  WHERE lease_name = 'schema-migration' AND owner_id = ? AND fence = ? AND lease_expires_at > UTC_TIMESTAMP(6))";

const COMPLETE: &str = "-- schema_revisions.complete
UPDATE pc_schema_revisions SET completed_at = UTC_TIMESTAMP(6)
WHERE revision = ? AND completed_at IS NULL AND EXISTS (
  SELECT 1 FROM pc_scheduler_leases
  WHERE lease_name = 'schema-migration' AND owner_id = ? AND fence = ? AND lease_expires_at > UTC_TIMESTAMP(6))";

struct Migrator<'o> {
    /// Notes and renewals; never runs DDL.
    conn: MySqlConnection,
    /// Runs DDL; `None` while a statement has it, and for good once one broke it.
    ddl: Option<MySqlConnection>,
    lease: MigrationLease,
    observer: Observer<'o>,
}

/// Applies every step that is to do.
pub(super) async fn apply(
    options: &MySqlConnectOptions,
    wait: Span,
    observer: Observer<'_>,
) -> Result<(), MigrateError> {
    let mut conn = connect_oceanbase(options).await?;
    check_server(&mut conn).await?;
    let give_up = rt::now() + SEEN_WITHIN;
    let lease = loop {
        match hold(&mut conn, wait, observer).await {
            Err(MigrateError::Database(TxError::Down(Down::Other(TABLE_UNKNOWN)))) if rt::now() < give_up => {
                rt::sleep(SEEN_POLL).await;
            }
            held => break held?,
        }
    };
    let mut migrator = Migrator {
        conn,
        ddl: Some(connect_oceanbase(options).await?),
        lease,
        observer,
    };
    let result = migrator.steps().await;
    migrator.lease.release(&mut migrator.conn).await;
    result
}

/// Makes what a migrator needs, and takes the lease.
async fn hold(
    conn: &mut MySqlConnection,
    wait: Span,
    observer: &mut (dyn FnMut(Progress) + Send),
) -> Result<MigrationLease, MigrateError> {
    bootstrap(conn).await?;
    acquire(conn, wait, observer).await
}

async fn check_server(conn: &mut MySqlConnection) -> Result<(), MigrateError> {
    let row = sqlx::query("-- schema.server\nSELECT CAST(VERSION() AS CHAR) AS version")
        .fetch_one(conn)
        .await
        .map_err(|error| oceanbase(&error))?;
    let version: String = row.try_get("version").map_err(|error| oceanbase(&error))?;
    if version.contains("OceanBase") {
        Ok(())
    } else {
        Err(MigrateError::NotOceanBase)
    }
}

/// Makes the migrator's own tables where they are missing; the lease is one of them, so two migrators may meet here.
async fn bootstrap(conn: &mut MySqlConnection) -> Result<(), MigrateError> {
    let found = found_oceanbase(conn).await?;
    for statement in BOOTSTRAP.statements(Dialect::OceanBase) {
        let object = Catalog::default()
            .apply(statement.sql)
            .map_err(|_| crate::store::migrate::Refusal::Statement { file: statement.file })?;
        if found.catalog.holds(&object) {
            continue;
        }
        match sqlx::raw_sql(statement.sql).execute(&mut *conn).await {
            Err(error) if number(&error) != Some(TABLE_EXISTS) => return Err(failed(*statement, &error)),
            _ => {}
        }
    }
    Ok(())
}

async fn acquire(
    conn: &mut MySqlConnection,
    wait: Span,
    observer: &mut (dyn FnMut(Progress) + Send),
) -> Result<MigrationLease, MigrateError> {
    let owner = format!("migrate-{}-{}", std::process::id(), &rt::hex_id()[..12]);
    let give_up = rt::now() + wait.as_std();
    loop {
        let holder = match lease::acquire(conn, &owner).await? {
            Ok(lease) => return Ok(lease),
            Err(holder) => holder,
        };
        if rt::now() >= give_up {
            return Err(MigrateError::Busy {
                owner: holder.owner,
                seconds_left: holder.seconds_left,
            });
        }
        observer(Progress::Waiting {
            owner: holder.owner,
            seconds_left: holder.seconds_left,
        });
        rt::sleep(POLL).await;
    }
}

impl Migrator<'_> {
    async fn steps(&mut self) -> Result<(), MigrateError> {
        // Under the lease: another migrator may have done all of it meanwhile.
        let found = found_oceanbase(&mut self.conn).await?;
        for step in plan(Dialect::OceanBase, &found)?.steps {
            self.step(&step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), MigrateError> {
        let revision = step.revision;
        let statements = revision.statements(Dialect::OceanBase);
        if step.begun {
            self.note(revision.number, step.done).await?;
        } else {
            self.begin(step).await?;
        }
        for (at, statement) in statements.iter().enumerate().skip(step.done) {
            self.lease.renew(&mut self.conn).await?;
            announce(self.observer, Dialect::OceanBase, revision, at);
            self.run(*statement).await?;
            self.note(revision.number, at + 1).await?;
        }
        let query = sqlx::query(COMPLETE).bind(revision.number);
        let lease = &self.lease;
        let done = query
            .bind(lease.owner.as_bytes())
            .bind(lease.fence)
            .execute(&mut self.conn)
            .await;
        one(done)?;
        (self.observer)(Progress::Completed {
            revision: revision.number,
            name: revision.name,
        });
        Ok(())
    }

    async fn begin(&mut self, step: &Step) -> Result<(), MigrateError> {
        let revision = step.revision;
        let statements = i64::try_from(revision.statements(Dialect::OceanBase).len()).unwrap_or(i64::MAX);
        let begun = sqlx::query(BEGIN)
            .bind(revision.number)
            .bind(revision.name.as_bytes())
            .bind(revision.checksum(Dialect::OceanBase).into_bytes())
            .bind(revision.oldest_reader)
            .bind(statements)
            .bind(self.lease.owner.as_bytes())
            .bind(self.lease.fence)
            .execute(&mut self.conn)
            .await;
        one(begun)
    }

    async fn note(&mut self, revision: u32, done: usize) -> Result<(), MigrateError> {
        let noted = sqlx::query(NOTE)
            .bind(i64::try_from(done).unwrap_or(i64::MAX))
            .bind(revision)
            .bind(self.lease.owner.as_bytes())
            .bind(self.lease.fence)
            .execute(&mut self.conn)
            .await;
        one(noted)
    }

    /// Runs one statement on a task of its own and renews the lease while it runs.
    async fn run(&mut self, statement: Statement) -> Result<(), MigrateError> {
        let mut ddl = self.ddl.take().ok_or(TxError::Down(Down::Connection))?;
        let mut running = rt::spawn(async move {
            let result = sqlx::raw_sql(statement.sql).execute(&mut ddl).await;
            (ddl, result)
        });
        let mut lost = None;
        loop {
            tokio::select! {
                biased;
                done = &mut running => {
                    let (ddl, result) = done.map_err(|_| TxError::Down(Down::Connection))?;
                    self.ddl = Some(ddl);
                    result.map_err(|error| failed(statement, &error))?;
                    return lost.map_or(Ok(()), Err);
                }
                // A statement cannot be taken back: with the lease lost, its end is awaited and nothing follows it.
                () = rt::sleep(RENEW_EVERY), if lost.is_none() => {
                    lost = self.lease.renew(&mut self.conn).await.err();
                }
            }
        }
    }
}

/// A note touches its one row as long as the lease is ours.
fn one(result: Result<sqlx::mysql::MySqlQueryResult, sqlx::Error>) -> Result<(), MigrateError> {
    if result.map_err(|error| oceanbase(&error))?.rows_affected() == 1 {
        Ok(())
    } else {
        Err(MigrateError::LeaseLost)
    }
}

fn failed(statement: Statement, error: &sqlx::Error) -> MigrateError {
    MigrateError::Statement {
        file: statement.file,
        error: oceanbase(error),
    }
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    error
        .try_downcast_ref::<MySqlDatabaseError>()
        .map(MySqlDatabaseError::number)
}
