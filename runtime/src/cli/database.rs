//! Opening the database for a command on the host that runs no server: the schema is verified and never changed, and a SQLite
//! file is taken for as long as the command runs, because it belongs to one process.

use super::{Exit, Streams, database_url, refusal};
use crate::config::Settings;
use crate::roles::RoleError;
use crate::store::owner::FileOwner;
use crate::store::schema::{self, SchemaFault};
use crate::store::{DatabaseUrl, Db, DbLimits, Down, OpenError, TxError};

/// Connections of a command.
const CONNECTIONS: u32 = 2;

/// An open database.
pub(super) struct Opened {
    pub(super) db: Db,
    /// Held while the command runs.
    _owner: Option<FileOwner>,
}

/// Opens the database, or tells why it cannot be.
pub(super) async fn open(settings: &Settings, streams: &mut Streams<'_>) -> Result<Opened, Exit> {
    let url = database_url(&settings.database.location).map_err(|fault| {
        streams.complain(format_args!("POWERCONTEXT_SERVER_DATABASE_URL: {fault}"));
        Exit::BadConfiguration
    })?;
    match try_open(settings, &url).await {
        Ok(opened) => Ok(opened),
        Err(error) => {
            let exit = exit_of(&error);
            refusal::command(&error, &url, streams);
            Err(exit)
        }
    }
}

async fn try_open(settings: &Settings, url: &DatabaseUrl) -> Result<Opened, RoleError> {
    let owner = match url {
        DatabaseUrl::Sqlite(path) => Some(FileOwner::lock(path)?),
        DatabaseUrl::OceanBase(_) => None,
    };
    schema::verify(url).await?;
    let limits = DbLimits::for_lease(settings.worker.lease, CONNECTIONS);
    Ok(Opened {
        db: Db::open(url, limits).await?,
        _owner: owner,
    })
}

fn exit_of(error: &RoleError) -> Exit {
    match error {
        RoleError::Open(OpenError::Database(error))
        | RoleError::Schema(SchemaFault::Database(error))
        | RoleError::Database(error) => exit_of_tx(error),
        _ => Exit::Refused,
    }
}

/// Whether trying again later can help.
pub(super) fn exit_of_tx(error: &TxError) -> Exit {
    match error {
        TxError::Busy(_) | TxError::Unknown | TxError::Down(Down::Connection | Down::Deadline) => Exit::NotReachable,
        _ => Exit::Refused,
    }
}
