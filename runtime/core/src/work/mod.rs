//! The Work Ledger's decisions: states and their transitions, lanes and joining, retry, slots, lapsed leases, ends
//! that are not taken, the provider gate.

pub mod ends;
pub mod gate;
pub mod lane;
pub mod lapse;
pub mod ready;
pub mod retry;
pub mod slot;
pub mod state;
pub mod step;
pub mod usual;

pub use slot::SlotNo;
pub use state::{AttemptNo, Counters, Item, WorkResult, WorkState};
pub use step::{Effect, Event, Outcome, Refused, Step, step};
pub use usual::UsualFinish;
