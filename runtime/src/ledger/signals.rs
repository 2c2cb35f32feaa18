//! Wake-ups inside one process. They only make things faster: everything also happens by polling or by a lease's end, so
//! a lost signal loses nothing.

use powercontext_core::ids::WorkId;
use tokio::sync::{Notify, broadcast};

/// Cancel marks that a slow reader may lag behind; a lagging worker re-reads its items.
const CANCELS_MAX: usize = 256;

/// What this process tells itself.
#[derive(Debug)]
pub struct Signals {
    /// Work may be claimable.
    pub work: Notify,
    /// A scope may have become dirty, or a scan may have room.
    pub pending: Notify,
    /// Some item changed its state.
    pub changed: Notify,
    /// An operator asked for the end of a running item.
    pub cancels: broadcast::Sender<WorkId>,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            work: Notify::new(),
            pending: Notify::new(),
            changed: Notify::new(),
            cancels: broadcast::channel(CANCELS_MAX).0,
        }
    }
}
