//! Renewing leases beside the runs, and stopping a run whose lease is lost.
//!
//! A heartbeat never waits for a lock: rows that somebody holds are skipped and tried again a second later. A run's lease
//! is trusted from before the heartbeat was sent, so a slow answer never makes it look longer than it is.

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
            tokio::select! { biased; () = stop.cancelled() => return, () = tick => self.stop_untrusted() }
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
            tokio::select! { biased; again = &mut beat => return again, () = tick => self.stop_untrusted() }
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
            Ok(beats) => beats.into_iter().fold(false, |again, (id, beat)| {
                let handle = handles.iter().find(|handle| *handle.held.key() == id);
                handle.is_some_and(|handle| apply(handle, beat, sent, lease.length)) || again
            }),
            Err(error) => {
                tracing::warn!(error = %error, "a heartbeat failed; trying again");
                true
            }
        }
    }

    fn stop_untrusted(&self) {
        let now = rt::now();
        for handle in self.0.running.all() {
            if handle.trusted_until().is_some_and(|until| until <= now) {
                handle.stop(Stop::LeaseLost);
            }
        }
    }

    /// An operator's cancel inside this process.
    pub(super) fn cancel_requested(&self, id: WorkId) {
        if let Some(handle) = self.0.running.get(id) {
            handle.stop(Stop::Operator);
        }
    }
}

fn apply(handle: &Arc<RunHandle>, beat: Beat, sent: tokio::time::Instant, lease: Duration) -> bool {
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
