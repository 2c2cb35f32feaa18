//! Role `all` of a single node: API, Supervisor and Worker in one process.
//!
//! Start: own and migrate the database, recover what a dead predecessor left, listen, work. Stop: readiness off, no new
//! admission or claim; runs go on for the grace and are given back, and whoever asks meanwhile is answered; then no new
//! request, then the lease, then the database.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::ledger::Ledger;
use crate::roles::RoleError;
use crate::roles::families::Families;
use crate::roles::open::{Hold, Opened, open};
use crate::roles::tasks::{Process, Tasks, listen, spans};
use crate::supervisor::members::Standing;
use crate::worker::ModelJob;

/// Runs until `shutdown` or until the process is no longer the only one.
pub(super) async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), RoleError> {
    let fatal = CancellationToken::new();
    let model = settings.generation.as_ref().map(ModelJob::from);
    let generator = model.as_ref().map(ModelJob::generator).transpose()?;
    let families = Families::new(&settings)?;
    let Some(opened) = open(&settings, &families, &fatal, &shutdown).await? else {
        return Ok(());
    };
    let Opened {
        db,
        me,
        lease,
        held,
        membership,
    } = opened;
    let exporting = spans(&settings, &me)?;
    let metrics = families.metrics(&settings);
    if let Some(metrics) = &metrics {
        db.count_in(Arc::clone(metrics));
    }
    let ledger = Ledger::new(db.clone(), families.kinds(), me, lease);
    if let Some((tracer, _)) = &exporting {
        ledger.trace_in(tracer.clone());
    }
    let listener = listen(&settings).await?;
    let recovered = ledger.recover().await?;
    if recovered > 0 {
        tracing::info!(recovered, "work of a process that is gone waits again");
    }
    let tasks = Tasks::start(Process {
        settings: &settings,
        families,
        ledger: &ledger,
        generator,
        metrics,
        listener,
        // The lease makes it the only one; the row of a predecessor that died is no measure.
        standing: Standing::alone(),
        membership: membership.clone(),
    });
    tokio::select! { biased; () = shutdown.cancelled() => {}, () = fatal.cancelled() => {} }
    tasks.stop(fatal.is_cancelled()).await;
    if let Some(membership) = membership {
        membership.leave().await;
    }
    if let Hold::Lease(lease) = held {
        lease.release().await;
    }
    db.close().await;
    if let Some((_, exporting)) = exporting {
        exporting.finish().await;
    }
    if fatal.is_cancelled() {
        Err(RoleError::LostLease)
    } else {
        Ok(())
    }
}
