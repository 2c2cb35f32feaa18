//! Opening the database of a single node: own it, migrate it, verify it, and become the only one that works on it.

use std::path::Path;
use std::sync::Arc;

use powercontext_core::ids::MemberId;
use powercontext_core::supervise::member::Role;
use powercontext_core::supervise::mode::ModeJudgement;
use powercontext_core::time::Span;
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use crate::config::{DatabaseLocation, Settings};
use crate::ledger::LeaseTerm;
use crate::roles::families::Families;
use crate::roles::single_node::{self, SingleNode};
use crate::roles::{RoleError, distributed};
use crate::rt;
use crate::store::leases::{self, LeaseName};
use crate::store::migrate::{self, Code, Mode, Progress};
use crate::store::owner::FileOwner;
use crate::store::{DatabaseUrl, Db, DbLimits, TxName, modes, schema};
use crate::supervisor::members::{self, Membership};

/// How long a start waits for another migrator before it gives up.
const MIGRATOR_WAIT: Span = Span::seconds(60);

/// An open database that this process may work on.
pub(super) struct Opened {
    pub(super) db: Db,
    pub(super) me: MemberId,
    pub(super) lease: LeaseTerm,
    /// On OceanBase the process is a member, so that others see it.
    pub(super) membership: Option<Membership>,
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
    families: &Families,
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
    let lease = settings.worker.lease.min(settings.supervision.lease);
    let limits = DbLimits::for_lease(lease, settings.database.connections_max);
    let db = Db::open(&url, limits).await?;
    let me = rt::member_id();
    if let Some(owner) = owner {
        raise_term(&db, &me).await?;
        check_mode(settings, &db).await?;
        return Ok(Some(Opened {
            db,
            me,
            lease: LeaseTerm::Process,
            membership: None,
            held: Hold::File { _owner: owner },
        }));
    }
    let held = tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(None),
        held = single_node::acquire(&db, &me, settings.coordination, fatal.clone()) => held?,
    };
    let joined = async {
        check_mode(settings, &db).await?;
        join(settings, families, &db, &me).await
    };
    match joined.await {
        Ok(membership) => Ok(Some(Opened {
            db,
            me,
            lease: LeaseTerm::Timed(settings.worker.lease),
            membership: Some(membership),
            held: Hold::Lease(held),
        })),
        Err(error) => {
            held.release().await;
            Err(error)
        }
    }
}

/// A mode that was stored by hand or by another configuration is not overridden by starting with this one.
async fn check_mode(settings: &Settings, db: &Db) -> Result<(), RoleError> {
    let stored = db.read(TxName::Lease, |tx| Box::pin(modes::stored(tx))).await?;
    let mode = settings.supervision.mode;
    match mode.judge(stored) {
        ModeJudgement::Refuse { stored } => Err(RoleError::Refused {
            reasons: vec![format!(
                "the stored mode of supervision is {stored} and this process has {mode}; run `powercontext server switch-mode --to {mode}` while no server runs"
            )],
        }),
        ModeJudgement::Store | ModeJudgement::Agree => Ok(()),
    }
}

/// Announces a single node on OceanBase, unless members of a distributed deployment live. Its lease is held by now: a member
/// that starts meanwhile sees that.
async fn join(settings: &Settings, families: &Families, db: &Db, me: &MemberId) -> Result<Membership, RoleError> {
    let times = settings.coordination;
    let member = distributed::member(settings, families, me);
    let every = times.member_heartbeat.as_std();
    let live = members::live(db).await?;
    if let Some(other) = live.iter().find(|member| member.role != Role::All) {
        return Err(RoleError::Refused {
            reasons: vec![format!(
                "members of a distributed deployment live on this database ({} {}); stop them first",
                other.role, other.id
            )],
        });
    }
    Ok(Membership::join(db.clone(), member, times.member_ttl, every).await?.0)
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
