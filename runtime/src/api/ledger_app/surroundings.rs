//! What stands around a ledger in its process: its role, its members, its Supervisor and its Worker, as far as it has them.

use std::sync::Arc;

use powercontext_core::supervise::member::Role;

use crate::supervisor::Status;
use crate::supervisor::members::Standing;

/// How many runs there are, and how many of them were stopped and do not end.
pub type InFlight = Arc<dyn Fn() -> (usize, usize) + Send + Sync>;

/// The surroundings of a ledger; cheap to clone.
#[derive(Clone)]
pub struct Surroundings {
    /// What the process does.
    pub role: Role,
    /// How it stands among the members; `None` for a single node.
    pub standing: Option<Standing>,
    /// Where its Supervisors stand; `None` where it does not lead.
    pub supervision: Option<Status>,
    /// Runs of its Worker; `None` where it runs none.
    pub in_flight: Option<InFlight>,
}

impl Surroundings {
    /// A process that does everything and has nothing beside its ledger.
    pub fn alone() -> Self {
        Self {
            role: Role::All,
            standing: None,
            supervision: None,
            in_flight: None,
        }
    }

    /// Whether other processes lead and work.
    pub fn is_distributed(&self) -> bool {
        self.role != Role::All
    }
}
