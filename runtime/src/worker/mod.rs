//! Claiming and running work.
//!
//! The claim loop takes only what it has free slots for; each claimed item runs on a task of its own; a heartbeat renews
//! the leases beside it and stops a run whose lease is lost. The worker alone holds leases and runs transactions: the
//! executor's side sees only a [`ProcessorHost`](crate::families::ProcessorHost).

pub mod child;
mod claim_loop;
mod executor;
mod gate;
mod heartbeat;
mod host;
mod run;
mod running;
mod slots;
mod spans;
mod system;

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ids::WorkKind;

pub use child::{Child, ChildLog, ChildSettings, FamilyJob, ModelJob};
pub use executor::{Executor, Inline};
pub use gate::{PROBE_INTERVAL, ProviderSettings};
pub use system::WithSystem;

use tokio::sync::Notify;

use crate::ledger::Ledger;
use crate::supervisor::members::Standing;
use crate::worker::gate::ProviderGate;
use crate::worker::running::Running;

/// What a worker may do at once, and how long things may take.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Runs at once over all kinds, 1 to 256.
    pub concurrency: u32,
    /// The kinds, each with a cap of its own and the longest run from hand-over to end.
    pub kinds: Vec<KindSettings>,
    /// Longest pause between two looks for work.
    pub poll_max: Duration,
    /// Length of a lease and pause between renewals; `None` where a lease lasts as long as the process.
    pub lease: Option<LeaseSettings>,
    /// How long runs may go on after a stop before they are given back.
    pub grace: Duration,
    /// The model provider whose outage holds back the kinds that need one; `None` where no kind does.
    pub provider: Option<ProviderSettings>,
}

/// One kind of work in a worker.
#[derive(Debug, Clone)]
pub struct KindSettings {
    /// The kind.
    pub kind: WorkKind,
    /// Most runs of it at once; `None` for no cap of its own.
    pub cap: Option<u32>,
    /// Longest run.
    pub timeout: Duration,
    /// Whether a run calls a language model.
    pub needs_model: bool,
}

/// Leases with a time.
#[derive(Debug, Clone, Copy)]
pub struct LeaseSettings {
    /// Length of a lease.
    pub length: Duration,
    /// Pause between renewals; three of them are shorter than a lease.
    pub heartbeat: Duration,
}

/// A worker; cheap to clone.
#[derive(Clone)]
pub struct Worker(Arc<Inner>);

struct Inner {
    ledger: Ledger,
    executor: Arc<dyn Executor>,
    settings: WorkerSettings,
    running: Running,
    /// A run's family part has ended: there may be a free slot.
    freed: Arc<Notify>,
    gate: Option<Arc<ProviderGate>>,
    standing: Standing,
}

impl Worker {
    /// A worker of a ledger.
    pub fn new(ledger: Ledger, executor: Arc<dyn Executor>, settings: WorkerSettings) -> Self {
        Self::among(ledger, executor, settings, Standing::alone())
    }

    /// A worker that claims only while `standing` says that its process fits the other members.
    pub fn among(ledger: Ledger, executor: Arc<dyn Executor>, settings: WorkerSettings, standing: Standing) -> Self {
        let gate = settings.provider.clone().map(ProviderGate::new).map(Arc::new);
        Self(Arc::new(Inner {
            ledger,
            executor,
            settings,
            running: Running::default(),
            freed: Arc::default(),
            gate,
            standing,
        }))
    }

    /// How many runs there are now.
    pub fn in_flight(&self) -> usize {
        self.0.running.len()
    }

    /// How many of them were stopped and do not end. The worker is degraded while there is one.
    pub fn abandoned(&self) -> usize {
        self.0.running.all().iter().filter(|run| run.is_abandoned()).count()
    }
}
