//! Opening the database of a single node: own it, migrate it, verify it, and become the only one that works on it.

use std::path::Path;
use std::sync::Arc;

use powercontext_core::ids::MemberId;
use powercontext_core::time::Span;
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use crate::config::{DatabaseLocation, Settings};
use crate::ledger::LeaseTerm;
use crate::roles::RoleError;
use crate::roles::single_node::{self, SingleNode};
use crate::rt;
use crate::store::leases::{self, LeaseName};
use crate::store::migrate::{self, Code, Mode, Progress};
use crate::store::owner::FileOwner;
use crate::store::{DatabaseUrl, Db, DbLimits, TxName, schema};

/// How long a start waits for another migrator before it gives up.
const MIGRATOR_WAIT: Span = Span::seconds(60);

/// An open database that this process may work on.
pub(super) struct Opened {
    pub(super) db: Db,
    pub(super) me: MemberId,
    pub(super) lease: LeaseTerm,
    /// Held while the process lives; on SQLite the lock of the file, on OceanBase the renewed lease.
    pub(super) held: Hold,
}

/// What makes this process the only one.
pub(super) enum Hold {
    /// The lock of the SQLite file.
    File { _owner: FileOwner },
    /// The renewed lease.
    Lease(SingleNode),
}

/// Where the settings say the database is.
pub(crate) fn database_url(location: &DatabaseLocation) -> Result<DatabaseUrl, RoleError> {
    Ok(match location {
        DatabaseLocation::Sqlite(path) => DatabaseUrl::Sqlite(path.clone()),
        DatabaseLocation::OceanBase(url) => DatabaseUrl::parse(url.expose_secret())?,
    })
}

/// Opens the database; `None` when `shutdown` came while another single node was waited for. A migration that has begun is
/// not interrupted. `fatal` is raised later if the process stops being the only one.
pub(super) async fn open(
    settings: &Settings,
    fatal: &CancellationToken,
    shutdown: &CancellationToken,
) -> Result<Option<Opened>, RoleError> {
    let url = database_url(&settings.database.location)?;
    let owner = match &url {
        DatabaseUrl::Sqlite(path) => Some(own(path)?),
        DatabaseUrl::OceanBase(_) => None,
    };
    migrate(&url).await?;
    schema::verify(&url).await?;
    let limits = DbLimits::for_lease(settings.worker.lease, settings.database.connections_max);
    let db = Db::open(&url, limits).await?;
    let me = rt::member_id();
    let (held, lease) = if let Some(owner) = owner {
        raise_term(&db, &me).await?;
        (Hold::File { _owner: owner }, LeaseTerm::Process)
    } else {
        let held = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(None),
            held = single_node::acquire(&db, &me, settings.coordination, fatal.clone()) => held?,
        };
        (Hold::Lease(held), LeaseTerm::Timed(settings.worker.lease))
    };
    Ok(Some(Opened { db, me, lease, held }))
}

fn own(path: &Path) -> Result<FileOwner, RoleError> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|_| crate::store::OpenError::Directory)?;
    }
    Ok(FileOwner::lock(path)?)
}

async fn migrate(url: &DatabaseUrl) -> Result<(), RoleError> {
    let mut observer = |progress| match progress {
        Progress::Waiting { owner, seconds_left } => {
            tracing::warn!(owner, seconds_left, "another migrator is at work; waiting for it");
        }
        Progress::Completed { revision, name } => tracing::info!(revision, name, "a schema revision was applied"),
        Progress::Statement { .. } => {}
    };
    let report = migrate::migrate(url, Mode::Apply { wait: MIGRATOR_WAIT }, &mut observer).await;
    match report.code {
        Code::Done => Ok(()),
        _ => Err(RoleError::Migration {
            reason: report.reason.unwrap_or_else(|| "no reason was given".to_owned()),
            cause: report.cause,
        }),
    }
}

async fn raise_term(db: &Db, me: &MemberId) -> Result<(), RoleError> {
    let member = Arc::new(me.clone());
    let term = db
        .tx_with(TxName::Lease, &member, |tx, me| {
            Box::pin(leases::raise_term(tx, LeaseName::SingleNodeRuntime, me))
        })
        .await?;
    db.set_term(term.fence());
    Ok(())
}
