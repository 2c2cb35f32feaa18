//! The roles of a distributed deployment: `api`, `scheduler`, `worker`, `background`.
//!
//! None of them runs DDL. Start: check the schema and the server, announce the member, judge it and its settings against what
//! is stored, and only then listen; whatever is refused is told at once. Stop: readiness off; the Scheduler gives its leases
//! back, the Worker drains, the API ends its requests; then the member's row goes.

use std::sync::Arc;

use powercontext_core::ids::MemberId;
use powercontext_core::limits::PAYLOAD_VERSIONS;
use powercontext_core::supervise::member::Member;
use powercontext_core::supervise::mode::ModeJudgement;
use powercontext_core::time::DbTime;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::ledger::{LeaseTerm, Ledger};
use crate::roles::RoleError;
use crate::roles::families::Families;
use crate::roles::open::database_url;
use crate::roles::tasks::{Process, Tasks, listen, spans};
use crate::rt;
use crate::store::leases::{self, LeaseName};
use crate::store::migrate::revisions::{READABLE_FROM, TARGET};
use crate::store::{Db, DbLimits, TxError, TxName, modes, schema};
use crate::supervisor::members::Membership;
use crate::worker::ModelJob;

/// Runs until `shutdown`.
pub(super) async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), RoleError> {
    let model = settings.generation.as_ref().map(ModelJob::from);
    let generator = model.as_ref().map(ModelJob::generator).transpose()?;
    let families = Families::new(&settings)?;
    let url = database_url(&settings.database.location)?;
    schema::verify(&url).await?;
    let lease = settings.worker.lease.min(settings.supervision.lease);
    let db = Db::open(&url, DbLimits::for_lease(lease, settings.database.connections_max)).await?;
    let me = rt::member_id();
    let exporting = spans(&settings, &me)?;
    let membership = join(&settings, &families, &db, &me).await?;
    let metrics = families.metrics(&settings);
    if let Some(metrics) = &metrics {
        db.count_in(Arc::clone(metrics));
    }
    let lease = LeaseTerm::Timed(settings.worker.lease);
    let ledger = Ledger::new(db.clone(), families.kinds(), me, lease);
    if let Some((tracer, _)) = &exporting {
        ledger.trace_in(tracer.clone());
    }
    let listener = match listen(&settings).await {
        Ok(listener) => listener,
        Err(error) => {
            membership.leave().await;
            return Err(error);
        }
    };
    let tasks = Tasks::start(Process {
        settings: &settings,
        families,
        ledger: &ledger,
        generator,
        metrics,
        listener,
        standing: membership.standing().clone(),
        membership: Some(membership.clone()),
    });
    shutdown.cancelled().await;
    tasks.stop(false).await;
    membership.leave().await;
    db.close().await;
    if let Some((_, exporting)) = exporting {
        exporting.finish().await;
    }
    Ok(())
}

/// Announces this process, unless something stands against it. All reasons are told together.
async fn join(settings: &Settings, families: &Families, db: &Db, me: &MemberId) -> Result<Membership, RoleError> {
    let times = settings.coordination;
    let member = member(settings, families, me);
    let role = member.role;
    let every = times.member_heartbeat.as_std();
    let (membership, judged) = Membership::join(db.clone(), member, times.member_ttl, every).await?;
    // Announced before these are read: a single node that starts meanwhile sees this member.
    let reasons = match reasons(settings, db).await {
        Ok(reasons) => reasons,
        Err(error) => {
            membership.leave().await;
            return Err(error.into());
        }
    };
    let odd = judged
        .err()
        .filter(|odd| *odd == powercontext_core::supervise::member::Odd::Contract);
    let reasons: Vec<String> = reasons.into_iter().chain(odd.map(|odd| odd.to_string())).collect();
    if reasons.is_empty() {
        tracing::info!(member = %me, role = role.as_str(), "this process is a member of the deployment");
        return Ok(membership);
    }
    membership.leave().await;
    Err(RoleError::Refused { reasons })
}

pub(super) fn member(settings: &Settings, families: &Families, me: &MemberId) -> Member {
    let role = settings.deployment.role;
    let registry = families.registry();
    Member {
        id: me.clone(),
        role,
        build: build(settings),
        schema: READABLE_FROM..=TARGET,
        payload: PAYLOAD_VERSIONS,
        revision: settings.deployment.behavior_revision.clone(),
        contract: registry.contract_digest(),
        execution: (role.leads() || role.works()).then(|| registry.execution_digest()),
        started_at: DbTime::from_micros(0),
    }
}

/// What the roll-out of a build is followed by. An operator names it by the revision of what it rolls out; without one it is
/// the version.
fn build(settings: &Settings) -> String {
    let revision = &settings.deployment.behavior_revision;
    if revision == "default" {
        env!("CARGO_PKG_VERSION").to_owned()
    } else {
        revision.chars().take(64).collect()
    }
}

async fn reasons(settings: &Settings, db: &Db) -> Result<Vec<String>, TxError> {
    let mut reasons = Vec::new();
    let version = db.server_version().await?;
    if version.to_ascii_lowercase().contains("seekdb") {
        if settings.supervision.allow_seekdb {
            tracing::warn!("the server says it is seekdb; that is for test rigs");
        } else {
            reasons.push(
                "the server says it is seekdb; use OceanBase, or for a test rig set \
                 POWERCONTEXT_SERVER_COORDINATION_ALLOW_SEEKDB_SERVER to true"
                    .to_owned(),
            );
        }
    }
    let (stored, single_node) = db
        .read(TxName::Lease, |tx| {
            Box::pin(async move {
                let (seen, is_live) = leases::peek(tx, LeaseName::SingleNodeRuntime).await?;
                Ok((modes::stored(tx).await?, seen.holder.filter(|_| is_live)))
            })
        })
        .await?;
    if let Some(holder) = single_node {
        reasons.push(format!(
            "a single node ({}) works on this database; stop it first",
            holder.member
        ));
    }
    let mode = settings.supervision.mode;
    if let (true, ModeJudgement::Refuse { stored }) = (settings.deployment.role.leads(), mode.judge(stored)) {
        reasons.push(format!(
            "the stored mode of supervision is {stored} and this process has {mode}; set \
             POWERCONTEXT_SERVER_RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE to {stored}, or run \
             `powercontext server switch-mode --to {mode}`"
        ));
    }
    Ok(reasons)
}
