//! What handlers share: the application once it is bound, and what a deployment fixes at start.
//!
//! The server listens before its runtime is open and after it is closed, so the application is a slot: an empty one
//! answers 503 `runtime_not_ready`.

use std::sync::{Arc, PoisonError, RwLock};

use tokio_util::sync::CancellationToken;

use super::access::Guard;
use super::app::App;
use super::prefer::WaitLimits;
use super::problem::Problem;
use crate::telemetry::metrics::Metrics;

/// State of the HTTP surface; cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

struct Shared {
    guard: Guard,
    app: RwLock<Option<Arc<dyn App>>>,
    waits: WaitLimits,
    draining: CancellationToken,
    metrics: Option<Arc<Metrics>>,
}

impl Api {
    /// An unbound surface. Without metrics there is no `/metrics`.
    ///
    /// `draining` is cancelled when the process is asked to end: readiness goes off, and flushes that wait are answered
    /// at once, so that the requests in progress are short ones.
    pub fn new(guard: Guard, waits: WaitLimits, metrics: Option<Arc<Metrics>>, draining: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            guard,
            app: RwLock::new(None),
            waits,
            draining,
            metrics,
        }))
    }

    /// Puts the application in.
    pub fn bind(&self, app: Arc<dyn App>) {
        *self.0.app.write().unwrap_or_else(PoisonError::into_inner) = Some(app);
    }

    /// Takes the application out; requests in progress keep theirs.
    pub fn unbind(&self) {
        *self.0.app.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The application.
    ///
    /// # Errors
    /// 503 while none is bound.
    pub(crate) fn app(&self) -> Result<Arc<dyn App>, Problem> {
        let app = self.0.app.read().unwrap_or_else(PoisonError::into_inner);
        app.clone().ok_or_else(Problem::runtime_not_ready)
    }

    /// What this deployment asks of its callers.
    pub(crate) fn guard(&self) -> &Guard {
        &self.0.guard
    }

    /// Waits that this deployment allows.
    pub fn waits(&self) -> WaitLimits {
        self.0.waits
    }

    /// Cancelled when the process is asked to end.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// The metrics to count in and to expose.
    pub fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.0.metrics.as_ref()
    }
}
