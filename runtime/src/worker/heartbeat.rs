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

impl Worker {
    /// Renews leases until `stop`, which comes after the last run has ended.
    pub(super) async fn heartbeats(&self, lease: LeaseSettings, stop: CancellationToken) {
        let mut pause = lease.heartbeat;
        loop {
            tokio::select! { biased; () = stop.cancelled() => return, () = rt::sleep(pause) => {} }
            let again = self.beat(lease).await;
            self.stop_untrusted();
            pause = if again {
                AGAIN.min(lease.heartbeat)
            } else {
                lease.heartbeat
            };
        }
    }

    /// One heartbeat over all runs; whether some must be tried again soon.
    async fn beat(&self, lease: LeaseSettings) -> bool {
        let handles = self.0.running.all();
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
