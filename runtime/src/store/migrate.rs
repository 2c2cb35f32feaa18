//! The migrator: brings a database to the schema this build works on, forward only.
//!
//! On OceanBase it runs under the renewed `schema-migration` lease and notes each statement, because every DDL statement
//! commits by itself; on SQLite a revision is one transaction. A database that it must not touch is refused with the reason
//! and left as it is. It has connections of its own: a step may take longer than any transaction of the runtime.

mod lease;
mod oceanbase;
pub mod plan;
pub mod revisions;
mod sqlite;

use powercontext_core::limits::PAYLOAD_VERSIONS;
use powercontext_core::time::Span;
use serde::Serialize;

use crate::store::conn::Dialect;
use crate::store::error::{Busy, Down, TxError};
use crate::store::migrate::plan::{Plan, Refusal};
use crate::store::migrate::revisions::{Revision, TARGET};
use crate::store::schema::{Difference, SchemaFault, Verified, judge, read};
use crate::store::url::DatabaseUrl;

/// What to do with the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only tell.
    Plan,
    /// Apply it.
    Apply {
        /// How long to wait for another migrator that is at work.
        wait: Span,
    },
}

/// Exit code of `powercontext server migrate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The schema is current, or the plan is told.
    Done = 0,
    /// The database is left untouched, and trying again will not help.
    Refused = 1,
    /// The settings name no usable database.
    BadConfiguration = 2,
    /// The database did not answer, is busy, or another migrator is at work: try again later.
    NotReachable = 3,
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

/// A step of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedStep {
    /// Revision.
    pub revision: u32,
    /// Its name.
    pub name: &'static str,
    /// Whether it only adds.
    pub additive: bool,
    /// Number of its statements.
    pub statements: usize,
}

/// What a migration found and did; its JSON form is the last line of `--output json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Newest complete revision of the database when the report was made, also of one that is refused; 0 for an empty one
    /// and for one that does not answer.
    pub current: u32,
    /// The revision this build works on.
    pub target: u32,
    /// Steps that were to do at the start.
    pub steps: Vec<ReportedStep>,
    /// How it ended.
    pub code: Code,
    /// Newest version of payloads that this build reads.
    pub payload_version: u32,
    /// Why it ended so, when it is not done; never holds a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the database answered, when that is why.
    #[serde(skip)]
    pub cause: Option<TxError>,
}

/// What the migrator is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another migrator is at work.
    Waiting {
        /// Who holds the lease.
        owner: String,
        /// Until it expires, if it is not renewed.
        seconds_left: i64,
    },
    /// A statement is about to run.
    Statement {
        /// Revision.
        revision: u32,
        /// Its name.
        name: &'static str,
        /// The statement's file.
        file: &'static str,
        /// Its place in the revision, from 1.
        number: usize,
        /// Statements of the revision.
        of: usize,
    },
    /// A revision is complete.
    Completed {
        /// Revision.
        revision: u32,
        /// Its name.
        name: &'static str,
    },
}

/// Who is told of progress.
pub type Observer<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Why a migration ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the schema differs from revision {TARGET} after the migration: {0}")]
    Different(Difference),
    #[error("{file} failed: {error}")]
    Statement { file: &'static str, error: TxError },
    #[error("the server is not OceanBase")]
    NotOceanBase,
    #[error("the directory of the database file cannot be made")]
    Directory,
    #[error("another migrator ({owner}) is at work; its lease expires in {seconds_left} s unless it is renewed")]
    Busy { owner: String, seconds_left: i64 },
    #[error("the lease of the migration was lost; another migrator may be at work")]
    LeaseLost,
    #[error(transparent)]
    Database(#[from] TxError),
}

impl MigrateError {
    fn code(&self) -> Code {
        match self {
            Self::NotOceanBase | Self::Directory => Code::BadConfiguration,
            Self::Busy { .. } | Self::LeaseLost => Code::NotReachable,
            // A statement that the engine rejects is rejected again next time.
            Self::Refused(_)
            | Self::Different(_)
            | Self::Statement {
                error: TxError::Down(Down::Other(_)),
                ..
            } => Code::Refused,
            Self::Database(error) | Self::Statement { error, .. } => database_code(error),
        }
    }

    fn cause(&self) -> Option<TxError> {
        match self {
            Self::Database(error) | Self::Statement { error, .. } => Some(error.clone()),
            Self::Refused(_)
            | Self::Different(_)
            | Self::NotOceanBase
            | Self::Directory
            | Self::Busy { .. }
            | Self::LeaseLost => None,
        }
    }
}

fn database_code(error: &TxError) -> Code {
    match error {
        TxError::Down(Down::Access | Down::NoSuchDatabase | Down::NotAFile | Down::ReadOnly) => Code::BadConfiguration,
        TxError::Down(Down::Damaged) | TxError::Corrupt(_) => Code::Refused,
        _ => Code::NotReachable,
    }
}

/// Brings the database to this build's schema, or tells what that would take.
pub async fn migrate(url: &DatabaseUrl, mode: Mode, observer: Observer<'_>) -> Report {
    let mut report = Report {
        current: 0,
        target: TARGET,
        steps: Vec::new(),
        code: Code::Done,
        payload_version: *PAYLOAD_VERSIONS.end(),
        reason: None,
        cause: None,
    };
    if let Err(error) = run(url, mode, observer, &mut report).await {
        report.code = error.code();
        report.reason = Some(error.to_string());
        report.cause = error.cause();
    }
    report
}

async fn run(url: &DatabaseUrl, mode: Mode, observer: Observer<'_>, report: &mut Report) -> Result<(), MigrateError> {
    let (dialect, found) = read::found(url).await?;
    // Also for one that is refused: whoever reads the report has to know what is there.
    report.current = found.current();
    let first = plan::plan(dialect, &found)?;
    note(report, dialect, &first);
    let Mode::Apply { wait } = mode else {
        return Ok(());
    };
    if first.steps.is_empty() {
        // Told apart here, because a process that starts on it would be refused.
        return check(judge(dialect, &found), report);
    }
    match url {
        DatabaseUrl::OceanBase(options) => oceanbase::apply(options, wait, observer).await?,
        DatabaseUrl::Sqlite(path) => sqlite::apply(path, observer)?,
    }
    let (dialect, found) = read::found(url).await?;
    check(judge(dialect, &found), report)
}

fn note(report: &mut Report, dialect: Dialect, plan: &Plan) {
    report.current = plan.current;
    report.steps = plan
        .steps
        .iter()
        .map(|step| ReportedStep {
            revision: step.revision.number,
            name: step.revision.name,
            additive: step.revision.additive,
            statements: step.revision.statements(dialect).len(),
        })
        .collect();
}

fn check(judged: Result<Verified, SchemaFault>, report: &mut Report) -> Result<(), MigrateError> {
    match judged {
        Ok(verified) => {
            report.current = verified.stored;
            Ok(())
        }
        Err(SchemaFault::Different(difference)) => Err(MigrateError::Different(difference)),
        Err(SchemaFault::Refused(refusal)) => Err(MigrateError::Refused(refusal)),
        Err(SchemaFault::Database(error)) => Err(MigrateError::Database(error)),
        // Somebody put an older schema in its place between two reads.
        Err(SchemaFault::Outdated { .. }) => Err(MigrateError::Database(TxError::Busy(Busy::Lock))),
    }
}

fn announce(observer: &mut (dyn FnMut(Progress) + Send), dialect: Dialect, revision: &Revision, at: usize) {
    let statements = revision.statements(dialect);
    observer(Progress::Statement {
        revision: revision.number,
        name: revision.name,
        file: statements[at].file,
        number: at + 1,
        of: statements.len(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_whether_trying_again_can_help() {
        let code = |error: MigrateError| error.code() as u8;
        assert_eq!(code(Refusal::Changed { revision: 1 }.into()), 1);
        assert_eq!(code(TxError::Down(Down::Damaged).into()), 1);
        assert_eq!(code(TxError::Down(Down::Access).into()), 2);
        assert_eq!(code(TxError::Down(Down::NoSuchDatabase).into()), 2);
        assert_eq!(code(MigrateError::NotOceanBase), 2);
        assert_eq!(code(TxError::Down(Down::Connection).into()), 3);
        assert_eq!(code(TxError::Busy(Busy::Lock).into()), 3);
        let busy = MigrateError::Busy {
            owner: "m".to_owned(),
            seconds_left: 5,
        };
        assert_eq!(code(busy), 3);
        let rejected = MigrateError::Statement {
            file: "f",
            error: TxError::Down(Down::Other(1064)),
        };
        assert_eq!(code(rejected), 1);
    }

    #[test]
    fn the_report_is_one_json_object() {
        let report = Report {
            current: 0,
            target: 9,
            steps: vec![ReportedStep {
                revision: 1,
                name: "work_ledger",
                additive: true,
                statements: 4,
            }],
            code: Code::Done,
            payload_version: 1,
            reason: None,
            cause: None,
        };
        assert_eq!(
            serde_json::to_string(&report).expect("serialisable"),
            r#"{"current":0,"target":9,"steps":[{"revision":1,"name":"work_ledger","additive":true,"statements":4}],"code":0,"payload_version":1}"#
        );
    }
}
