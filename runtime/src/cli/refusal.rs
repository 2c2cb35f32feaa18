//! What is told when a command is refused: what happened, where, and what to do about it.

use super::{Exit, Streams};
use crate::roles::RoleError;
use crate::store::owner::OwnerError;
use crate::store::schema::SchemaFault;
use crate::store::{Busy, DatabaseUrl, Down, OpenError, TxError};

/// Tells why something failed whose error says what to do.
pub(super) fn failed(error: &dyn std::error::Error, streams: &mut Streams<'_>) -> Exit {
    streams.complain(format_args!("This did not work: {error}."));
    Exit::Refused
}

/// Tells why a command on the host could not open the database.
pub(super) fn command(error: &RoleError, database: &DatabaseUrl, streams: &mut Streams<'_>) {
    streams.complain(format_args!("The database was not opened: {error}."));
    streams.complain(format_args!("Where: {database:?}."));
    streams.complain(format_args!("What to do: {}.", advice(error)));
}

/// Tells why the server did not start, or stopped by itself.
pub(super) fn role(error: &RoleError, database: Option<&DatabaseUrl>, streams: &mut Streams<'_>) -> Exit {
    let what = match error {
        RoleError::LostLease => "The server stopped",
        _ => "The server did not start",
    };
    if let RoleError::Refused { reasons } = error {
        streams.complain("The server did not start:");
        for reason in reasons {
            streams.complain(format_args!("- {reason}."));
        }
        return Exit::BadConfiguration;
    }
    streams.complain(format_args!("{what}: {error}."));
    let elsewhere = matches!(
        error,
        RoleError::Listen { .. } | RoleError::Model(_) | RoleError::Tracing(_)
    );
    if let Some(database) = database.filter(|_| !elsewhere) {
        streams.complain(format_args!("Where: {database:?}."));
    }
    streams.complain(format_args!("What to do: {}.", advice(error)));
    match error {
        RoleError::Url(_) | RoleError::Model(_) | RoleError::Tracing(_) => Exit::BadConfiguration,
        _ => Exit::Refused,
    }
}

fn advice(error: &RoleError) -> &'static str {
    match error {
        RoleError::Url(_) => "correct POWERCONTEXT_SERVER_DATABASE_URL",
        RoleError::Refused { .. } => "correct each of them",
        RoleError::Model(_) => "correct the POWERCONTEXT_SERVER_INFERENCE_GENERATION_ settings",
        RoleError::Tracing(_) => {
            "correct the OTEL_EXPORTER_OTLP_ variables, or set POWERCONTEXT_SERVER_TRACING_ENABLED to false"
        }
        RoleError::Owner(OwnerError::Held { .. }) | RoleError::Held { .. } => {
            "stop the other server, or name another database in POWERCONTEXT_SERVER_DATABASE_URL"
        }
        RoleError::LostLease => "find out which other server uses this database; only one may",
        RoleError::Owner(OwnerError::Io { .. }) | RoleError::Open(OpenError::Directory) => {
            "let this user write to the folder of the database file, or name another one in POWERCONTEXT_HOME"
        }
        RoleError::Migration { cause: None, .. } => {
            "check that the database runs and its settings are right; `powercontext server migrate` tells more, and docs/operations.md what its exit codes mean"
        }
        RoleError::Schema(SchemaFault::Outdated { .. }) => "run `powercontext server migrate`",
        RoleError::Schema(SchemaFault::Refused(_) | SchemaFault::Different(_)) => {
            "use the build that this database belongs to, or restore the schema; nothing was changed"
        }
        RoleError::Open(OpenError::Server(_)) => "use OceanBase 4.3.5 or newer in MySQL mode, or a SQLite file",
        RoleError::Open(OpenError::Database(error))
        | RoleError::Database(error)
        | RoleError::Migration { cause: Some(error), .. }
        | RoleError::Schema(SchemaFault::Database(error)) => database(error),
        RoleError::Listen { .. } => "choose another --host or --port, or stop what listens there",
    }
}

/// What to do about a database that cannot be used.
pub(super) fn database(error: &TxError) -> &'static str {
    match error {
        TxError::Down(Down::Access) => "check user, password, database and rights of POWERCONTEXT_SERVER_DATABASE_URL",
        TxError::Down(Down::NoSuchDatabase) => {
            "create the database, or correct its name at the end of POWERCONTEXT_SERVER_DATABASE_URL"
        }
        TxError::Down(Down::Connection | Down::Deadline) => {
            "check that the database runs and can be reached from here, then start again"
        }
        TxError::Down(Down::DiskFull) => "free space on the disk of the database file; nothing was lost",
        TxError::Down(Down::NotAFile) => {
            "let this user read and write the database file and its folder; a folder or a device is no database"
        }
        TxError::Down(Down::ReadOnly) => "let this user write to the database file and its folder",
        TxError::Down(Down::Damaged) | TxError::Corrupt(_) => {
            "restore the database from a backup; the file is left as it is"
        }
        TxError::Busy(Busy::Lock) => "end the program that keeps the database locked, then start again",
        _ => "start again; if it stays, see docs/operations.md",
    }
}
