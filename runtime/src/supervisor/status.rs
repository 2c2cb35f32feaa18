//! Where the Supervisors of this process stand, for readiness, metrics and tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powercontext_core::fence::Fence;
use powercontext_core::ids::FamilyName;
use powercontext_core::supervise::mode::SupervisorKey;

/// Where a candidate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leading {
    /// It has not looked yet.
    Starting,
    /// Somebody else leads.
    Standby,
    /// It leads under this fence.
    Leader(Fence),
    /// Another mode is stored: it may not lead.
    ForeignMode,
    /// It does not fit the other members: it may not lead.
    Odd,
    /// The database did not let it look.
    Failing,
}

/// Where a family stands with the leader in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyState {
    /// Its discovery works, or is somebody else's.
    Ready,
    /// Its discovery fails.
    Degraded,
}

#[derive(Debug, Default)]
struct Inner {
    supervisors: BTreeMap<SupervisorKey, Leading>,
    families: BTreeMap<FamilyName, FamilyState>,
}

/// A view that everybody in the process shares.
#[derive(Debug, Clone)]
pub struct Status(Arc<Mutex<Inner>>);

impl Status {
    pub(super) fn new(
        keys: impl IntoIterator<Item = SupervisorKey>,
        families: impl IntoIterator<Item = FamilyName>,
    ) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            supervisors: keys.into_iter().map(|key| (key, Leading::Starting)).collect(),
            families: families
                .into_iter()
                .map(|family| (family, FamilyState::Ready))
                .collect(),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code panics between two writes under this lock, so what it guards is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, key: &SupervisorKey, leading: Leading) -> Option<Leading> {
        self.inner().supervisors.insert(key.clone(), leading)
    }

    pub(super) fn set_family(&self, family: &FamilyName, state: FamilyState) -> Option<FamilyState> {
        self.inner().families.insert(family.clone(), state)
    }

    /// Every Supervisor.
    pub fn supervisors(&self) -> BTreeMap<SupervisorKey, Leading> {
        self.inner().supervisors.clone()
    }

    /// Every family.
    pub fn families(&self) -> BTreeMap<FamilyName, FamilyState> {
        self.inner().families.clone()
    }
}
