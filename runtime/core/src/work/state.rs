//! The seven states of a work item. Fields live in the variant that needs them, so a row cannot be half one state.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::fail::FailCode;
use crate::fence::Fence;
use crate::ids::WorkId;
use crate::lease::Holder;
use crate::supervise::intent::{Dirty, Requested};
use crate::time::DbTime;

/// Lifetime number of an attempt: 1, 2, 3 and so on, without a hole (I9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptNo(NonZeroU32);

impl AttemptNo {
    /// The first attempt.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// Takes a stored number; `None` for 0.
    pub fn from_row(raw: u32) -> Option<Self> {
        NonZeroU32::new(raw).map(Self)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// What a successful run left behind: references and numbers only, never content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkResult {
    /// Bounded name of the result, such as `processed`.
    pub code: &'static str,
    /// A JSON object of at most 16 KiB once encoded.
    pub payload: serde_json::Value,
}

/// A claim in progress: who holds it and what was read when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Holder of the lease.
    pub holder: Holder,
    /// `requested` at the claim; for correlation only.
    pub requested: Requested,
    /// `dirty` at the claim, read before any input (D in the design).
    pub dirty: Dirty,
}

/// State of a work item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkState {
    /// Waits for its first attempt of this recovery generation.
    Queued {
        /// Earliest claim.
        due: DbTime,
    },
    /// A worker holds it.
    Running(Run),
    /// Waits for another attempt.
    RetryWait {
        /// Earliest claim.
        due: DbTime,
        /// Why the last attempt ended; `None` after a release.
        last: Option<FailCode>,
    },
    /// A worker holds it, and an operator asked for its end.
    Cancelling(Run),
    /// Committed.
    Succeeded {
        /// When.
        at: DbTime,
    },
    /// Holds its lane until an operator acts.
    Failed {
        /// Why.
        last: FailCode,
    },
    /// Ended by an operator.
    Cancelled {
        /// When.
        at: DbTime,
    },
}

impl WorkState {
    /// The stored and public names of the states.
    pub const NAMES: [&'static str; 7] = [
        "queued",
        "running",
        "retry_wait",
        "cancelling",
        "succeeded",
        "failed",
        "cancelled",
    ];

    /// The stored and public name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Running(_) => "running",
            Self::RetryWait { .. } => "retry_wait",
            Self::Cancelling(_) => "cancelling",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether the item still occupies its lane. A failed one does.
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::Succeeded { .. } | Self::Cancelled { .. })
    }

    /// The claim in progress, if any.
    pub fn run(&self) -> Option<&Run> {
        match self {
            Self::Running(run) | Self::Cancelling(run) => Some(run),
            _ => None,
        }
    }

    /// When a waiting item may be claimed.
    pub fn due(&self) -> Option<DbTime> {
        match self {
            Self::Queued { due } | Self::RetryWait { due, .. } => Some(*due),
            _ => None,
        }
    }

    /// The failure that the row shows.
    pub fn error(&self) -> Option<FailCode> {
        match self {
            Self::RetryWait { last, .. } => *last,
            Self::Failed { last } => Some(*last),
            _ => None,
        }
    }
}

/// Counters that outlive a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Attempts over the item's life; the newest attempt's number.
    pub attempts: u32,
    /// Attempts that count against the budget of this recovery generation.
    pub budget_used: u32,
    /// Operator retries so far.
    pub recoveries: u32,
    /// Conflicts since the last attempt that ended otherwise.
    pub conflicts: u32,
}

/// What a transition reads and writes of a work item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The item.
    pub id: WorkId,
    /// Its state.
    pub state: WorkState,
    /// Its counters.
    pub counters: Counters,
    /// Highest fence given out, `None` before the first claim.
    pub fence: Option<Fence>,
    /// Budget frozen at enqueue; `None` is unbounded.
    pub attempts_max: Option<u32>,
    /// Moves with every change of state and never with a heartbeat; what `expected_version` compares.
    pub version: u64,
}
