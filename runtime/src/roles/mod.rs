//! Which tasks a process runs, in which order they start and stop.
//!
//! Everything that can be refused is refused before a port is bound. A single node does everything in one process, on SQLite
//! or on OceanBase; in a distributed deployment each process has one role, and all of them share an OceanBase database.

mod all;
mod distributed;
mod families;
mod open;
mod single_node;
mod tasks;

use tokio_util::sync::CancellationToken;

use crate::config::{DeploymentMode, Settings};
use crate::inference::ClientFault;
use crate::store::owner::OwnerError;
use crate::store::schema::SchemaFault;
use crate::store::{OpenError, TxError, UrlFault};
use crate::telemetry::trace::ExporterFault;

/// Why a role did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The database setting names no database.
    #[error("the database URL is not usable: {0}")]
    Url(#[from] UrlFault),
    /// Another process has the file.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The schema could not be brought to what this build works on.
    #[error("the schema could not be migrated: {reason}")]
    Migration {
        /// Why.
        reason: String,
        /// What the database answered, when that is why.
        cause: Option<TxError>,
    },
    /// The schema is not what this build works on.
    #[error("the schema is not usable: {0}")]
    Schema(#[from] SchemaFault),
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database refused while the process started.
    #[error("the database refused at start: {0}")]
    Database(#[from] TxError),
    /// Another single node holds the database.
    #[error(
        "another process ({holder}) runs as the single node of this database; stop it, or give this one another database"
    )]
    Held {
        /// Its member id.
        holder: String,
    },
    /// This process does not fit what is there; nothing was changed.
    #[error("{}", reasons.join("; "))]
    Refused {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// The lease of the single node is lost.
    #[error("another process has taken over as the single node of this database; this one has stopped")]
    LostLease,
    /// The model's settings make no client.
    #[error("the model's settings are not usable: {0}")]
    Model(#[from] ClientFault),
    /// The settings of the spans make no exporter.
    #[error(transparent)]
    Tracing(#[from] ExporterFault),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or port")]
    Listen {
        /// Address and port.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs the configured role until `shutdown`, then stops in order.
///
/// # Errors
/// [`RoleError`] when it was refused at start, or lost what it needs.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), RoleError> {
    #[cfg(feature = "failpoints")]
    crate::store::failpoints::arm();
    match settings.deployment.mode {
        DeploymentMode::SingleNode => all::run(settings, shutdown).await,
        DeploymentMode::Distributed => distributed::run(settings, shutdown).await,
    }
}
