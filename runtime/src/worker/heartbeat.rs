//! Renewing leases beside the runs, and stopping a run whose lease is lost.
//!
//! A heartbeat never waits for a lock: rows that somebody holds are skipped and tried again a second later. A run's lease
//! is trusted from before the heartbeat was sent, so a slow answer never makes it look longer than it is. A run whose end the
//! database does not take loses its lease after a while, so that the item is not kept from everybody for ever (I21).

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ids::WorkId;
use tokio_util::sync::CancellationToken;

use crate::rt;
use crate::store::works::Beat;
use crate::worker::running::{RunHandle, Stop};
use crate::worker::{LeaseSettings, Worker};

/// Pause before skipped or failed renewals are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Longest time between two looks at leases that may have run out.
const WATCH: Duration = Duration::from_millis(250);

impl Worker {
    /// Renews leases until `stop`, which comes after the last run has ended.
    pub(super) async fn heartbeats(&self, lease: LeaseSettings, stop: CancellationToken) {
        let mut not_before = rt::now();
        loop {
            let tick = rt::sleep(WATCH.min(lease.heartbeat));
            tokio::select! { biased; () = stop.cancelled() => return, () = tick => self.watch(lease) }
            if rt::now() >= not_before && self.is_due(lease) && self.beat_watching(lease).await {
                not_before = rt::now() + AGAIN.min(lease.heartbeat);
            }
        }
    }

    /// Whether some lease was last renewed a heartbeat ago, or is an adopted one with less left.
    fn is_due(&self, lease: LeaseSettings) -> bool {
        let fresh = rt::now() + lease.length.saturating_sub(lease.heartbeat);
        let runs = self.0.running.renewable();
        runs.iter()
            .any(|run| run.trusted_until().is_some_and(|until| until <= fresh))
    }

    /// One heartbeat. A database that does not answer it holds it up for longer than a lease may last, so leases are
    /// watched meanwhile.
    async fn beat_watching(&self, lease: LeaseSettings) -> bool {
        let mut beat = std::pin::pin!(self.beat(lease));
        loop {
            let tick = rt::sleep(WATCH.min(lease.heartbeat));
            tokio::select! { biased; again = &mut beat => return again, () = tick => self.watch(lease) }
        }
    }

    /// One heartbeat over all runs; whether some must be tried again soon.
    async fn beat(&self, lease: LeaseSettings) -> bool {
        let handles = self.0.running.renewable();
        if handles.is_empty() {
            return false;
        }
        let sent = rt::now();
        let held = handles.iter().map(|handle| handle.held.clone()).collect();
        match self.0.ledger.heartbeat(held).await {
            Ok(beats) => handles.iter().zip(beats).fold(false, |again, (handle, (_, beat))| {
                apply(handle, beat, sent, lease.length) || again
            }),
            Err(error) => {
                tracing::warn!(error = %error, "a heartbeat failed; trying again");
                true
            }
        }
    }

    /// Stops runs whose leases may have run out, and gives those up whose end the database does not take.
    fn watch(&self, lease: LeaseSettings) {
        let now = rt::now();
        let running = self.0.running.all();
        for handle in &running {
            if handle.trusted_until().is_some_and(|until| until <= now) {
                handle.stop(Stop::LeaseLost);
            }
        }
        give_up(&running, lease);
    }

    /// An operator's cancel inside this process.
    pub(super) fn cancel_requested(&self, id: WorkId) {
        self.0.running.stop(id, Stop::Operator);
    }
}

/// Gives up those whose end the database does not take.
pub(super) fn give_up(running: &[Arc<RunHandle>], lease: LeaseSettings) {
    let mut lost = 0;
    for handle in running {
        if handle.given_up().is_none() && handle.is_in_vain(lease) {
            handle.give_up();
            lost += 1;
        }
    }
    if lost > 0 {
        tracing::warn!(
            lost,
            seconds = lease.length.as_secs(),
            "ends of runs could not be written for a whole lease, although heartbeats are answered: their leases are left to \
             run out and other attempts follow, here or elsewhere; the warnings before this one say what the database \
             answers, look for what holds the rows of these items or keeps this process from committing"
        );
    }
}

fn apply(handle: &Arc<RunHandle>, beat: Beat, sent: tokio::time::Instant, lease: Duration) -> bool {
    handle.answered(sent);
    match beat {
        Beat::Renewed => handle.renewed(sent, lease),
        Beat::CancelRequested => {
            handle.renewed(sent, lease);
            handle.stop(Stop::Operator);
        }
        Beat::Lost => handle.stop(Stop::LeaseLost),
        Beat::Skipped => return true,
    }
    false
}
