//! The Work Ledger's decisions: states and their transitions, lanes and joining, retry, the provider gate.

pub mod gate;
pub mod lane;
pub mod retry;
pub mod state;
pub mod step;
pub mod usual;

pub use state::{AttemptNo, Counters, Item, WorkResult, WorkState};
pub use step::{Effect, Event, Outcome, Refused, Step, step};
pub use usual::UsualFinish;
