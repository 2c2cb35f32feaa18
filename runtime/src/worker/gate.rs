//! The provider gate of a worker: the decision of [`powercontext_core::work::gate`], and the probe that opens it again.
//!
//! Runs that call a model ask it before they begin and tell it how the provider served them. While it is closed the claim
//! loop wants no kind that needs a model, readiness shows why, and one task probes. Other kinds go on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::work::gate::{Gate, Ticket, Verdict};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::inference::readiness::{ProviderStatus, Readiness};
use crate::rt;

/// Pause between two probes of a provider behind a closed gate.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// The provider behind a worker's families.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// How it is probed, and where a closed gate shows.
    pub readiness: Arc<Readiness>,
    /// Pause between two probes; [`PROBE_INTERVAL`] but for tests.
    pub probe_interval: Duration,
}

#[derive(Default)]
struct State {
    gate: Gate,
    /// Class of the failure that closed it last.
    why: Option<FailCode>,
}

/// The gate of one worker.
pub(super) struct ProviderGate {
    provider: ProviderSettings,
    state: Mutex<State>,
    closed: Notify,
}

impl ProviderGate {
    pub(super) fn new(provider: ProviderSettings) -> Self {
        Self {
            provider,
            state: Mutex::default(),
            closed: Notify::new(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().gate.is_closed()
    }

    /// Lets a run begin; `None` while the gate is closed.
    pub(super) fn begin(&self) -> Option<Ticket> {
        self.state().gate.begin()
    }

    /// The provider answered a run.
    pub(super) fn answered(&self, run: Ticket) {
        self.state().gate.answered(run);
    }

    /// The provider failed a run; what that costs its item.
    pub(super) fn failed(&self, run: Ticket, scope: &ScopeId, code: FailCode) -> Verdict {
        let mut state = self.state();
        let verdict = state.gate.failed(run, scope);
        if verdict == Verdict::SpendAndClose {
            state.why = Some(code);
            drop(state);
            tracing::warn!(
                code = code.code(),
                "the model provider fails scope after scope: nothing that needs it is claimed until a probe succeeds"
            );
            self.closed.notify_one();
        }
        verdict
    }

    /// Probes while the gate is closed, until `stop`. Tells `work` when it has opened.
    pub(super) async fn watch(&self, stop: &CancellationToken, work: &Notify) {
        let watching = async {
            loop {
                self.closed.notified().await;
                self.provider.readiness.hold(self.status());
                while self.is_closed() {
                    rt::sleep(self.provider.probe_interval).await;
                    if self.provider.readiness.refresh().await == ProviderStatus::Ready {
                        self.state().gate.open();
                        tracing::info!("the model provider works again");
                        work.notify_one();
                    }
                }
            }
        };
        tokio::select! { biased; () = stop.cancelled() => {}, () = watching => {} }
    }

    /// What readiness says of the failure that closed the gate.
    fn status(&self) -> ProviderStatus {
        match self.state().why {
            Some(FailCode::ProviderTimeout) => ProviderStatus::Timeout,
            Some(FailCode::ProviderRejected) => ProviderStatus::Misconfigured,
            _ => ProviderStatus::Unavailable,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics between two writes under this lock, so what it guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
