//! The Supervisor: automatic admission under a fenced lease.
//!
//! It decides which family is checked, and then which of its scopes becomes a work item. It never runs a model, reads a
//! Source or picks a window, and it keeps nothing that a successor would miss: schedules, scans and marks are rows, and
//! each transaction that changes them proves the lease, last, in itself (I2). One controller runs for each lease: one in
//! `global` mode, one a family in `dedicated` mode. A family whose discovery fails is degraded alone.

mod controller;
mod desk;
pub mod members;
pub mod registry;
mod scan;
mod status;
pub mod switch;
mod term;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use powercontext_core::supervise::mode::{Mode, SupervisorKey};
use tokio_util::sync::CancellationToken;

pub use registry::{PendingWork, Registration, Registry, RegistryFault};
pub use status::{FamilyState, Leading, Status};

use crate::ledger::Ledger;
use crate::store::modes::TermLength;
use controller::Controller;
use members::Standing;

/// How a process supervises.
#[derive(Debug, Clone)]
pub struct SupervisorSettings {
    /// One Supervisor for all families, or one for each.
    pub mode: Mode,
    /// How long a term is good.
    pub length: TermLength,
    /// How often a term with a time is renewed; three of these are at most its length.
    pub renew: Duration,
    /// Scopes read at once, 1 to 100.
    pub page_size: u32,
    /// Longest pause between two looks while other processes make work too; `None` where this process is alone and sleeps
    /// until a deadline or a wake.
    pub poll: Option<Duration>,
}

struct Shared {
    ledger: Ledger,
    registry: Registry,
    settings: SupervisorSettings,
    standing: Standing,
    status: Status,
}

/// The candidates of one process; cheap to clone.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

impl Supervisor {
    /// Candidates for every Supervisor of the registry. They lead only while `standing` says that this process fits the
    /// others.
    pub fn new(ledger: Ledger, registry: Registry, settings: SupervisorSettings, standing: Standing) -> Self {
        let families = registry.iter().map(|registration| registration.work.family.clone());
        let keys = registry
            .iter()
            .map(|registration| settings.mode.supervisor_of(&registration.work.family));
        let status = Status::new(keys, families);
        Self(Arc::new(Shared {
            ledger,
            registry,
            settings,
            standing,
            status,
        }))
    }

    /// Where each Supervisor and family stands.
    pub fn status(&self) -> &Status {
        &self.0.status
    }

    /// Stands by, leads and admits until `stop`, then gives the leases back.
    pub async fn run(&self, stop: CancellationToken) {
        let mut groups: BTreeMap<SupervisorKey, Vec<Arc<Registration>>> = BTreeMap::new();
        for registration in self.0.registry.iter() {
            let key = self.0.settings.mode.supervisor_of(&registration.work.family);
            groups.entry(key).or_default().push(Arc::clone(registration));
        }
        let controllers = groups.into_iter().map(|(key, registrations)| {
            let controller = Controller::new(Arc::clone(&self.0), key, registrations);
            controller.run(stop.clone())
        });
        // On one task: whoever drops this one leaves none of them behind.
        futures_util::future::join_all(controllers).await;
    }
}
