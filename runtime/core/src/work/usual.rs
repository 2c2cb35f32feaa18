//! The usual end of a run, decided ahead: what a finish becomes if nobody touched the item since its claim and its lane
//! holds nothing else.
//!
//! A store may then write it with guarded statements instead of reading first, because the guards are [`UsualFinish::fits`]
//! and what is written is [`UsualFinish::step`]. Rows that do not fit change nothing, and [`step`](super::step) decides on
//! what they hold. The tests prove that both agree wherever the guards hold.

use crate::fence::Fence;
use crate::ids::MemberId;
use crate::lease::{Expiry, Holder};
use crate::supervise::intent::Dirty;
use crate::time::DbTime;
use crate::work::lane::{LaneEmptied, LaneSeq, LaneView};
use crate::work::state::{AttemptNo, Item, WorkState};
use crate::work::step::{Event, Step, step};

/// A finish that is decided before the rows are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsualFinish {
    claimed: Item,
    holder: Holder,
    seq: LaneSeq,
    attempt: AttemptNo,
}

impl UsualFinish {
    /// The usual finish of an item as its claim left it. `None` when it was not running, or under a lease that is not this
    /// process's to judge.
    pub fn of(claimed: &Item, seq: LaneSeq, living: &MemberId) -> Option<Self> {
        let WorkState::Running(run) = &claimed.state else {
            return None;
        };
        if run.holder.expiry == Expiry::Term && run.holder.member != *living {
            return None;
        }
        Some(Self {
            holder: run.holder.clone(),
            seq,
            attempt: AttemptNo::from_row(claimed.counters.attempts)?,
            claimed: claimed.clone(),
        })
    }

    /// The item as its claim left it. A finish writes its row only at this version, under this fence and owner.
    pub fn claimed(&self) -> &Item {
        &self.claimed
    }

    /// Who finishes.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The attempt that is closed.
    pub fn attempt(&self) -> AttemptNo {
        self.attempt
    }

    /// The item's place: the lane's head, with no place handed out behind it.
    pub fn seq(&self) -> LaneSeq {
        self.seq
    }

    /// Whether the rows are what this was decided for. The guards of the statements say the same.
    pub fn fits(&self, item: &Item, lane: &LaneView, now: DbTime, living: &MemberId) -> bool {
        let is_held = match &item.state {
            WorkState::Running(run) => {
                (&run.holder.member, run.holder.fence) == (&self.holder.member, self.holder.fence)
                    && !run.holder.has_lapsed(now, living)
            }
            _ => false,
        };
        let row = lane.lane();
        is_held
            && (item.id, item.version) == (self.claimed.id, self.claimed.version)
            && (row.head, row.next) == (Some(self.seq), self.seq.next())
    }

    /// The token that acknowledges. For a caller whose guarded statements have held, and so left the lane empty.
    pub fn emptied(&self) -> LaneEmptied {
        LaneEmptied::by_guards()
    }

    /// `dirty` at the claim.
    pub fn dirty(&self) -> Option<Dirty> {
        self.claimed.state.run().map(|run| run.dirty)
    }

    /// What a finish at this time becomes, with a lane that it leaves empty.
    ///
    /// # Panics
    /// Never: the item is running, and a lease is good at the moment before it ends.
    pub fn step(&self, at: DbTime) -> Step {
        let mut running = self.claimed.clone();
        if let WorkState::Running(run) = &mut running.state {
            run.holder.expiry = Expiry::Term;
        }
        let finish = Event::Finish(&self.holder);
        step(&running, &finish, at, &self.holder.member).expect("a running item takes a finish of its holder")
    }
}

/// Whether a claim moves the item's counters by one each, as a statement for many items writes it. A counter at the end of
/// its range does not move.
pub fn is_usual_claim(before: &Item, after: &Item) -> bool {
    let (old, new) = (before.counters, after.counters);
    let fence = |item: &Item| item.fence.map_or(0, Fence::to_row);
    matches!(after.state, WorkState::Running(_))
        && (after.id, after.version) == (before.id, before.version + 1)
        && fence(after) == fence(before) + 1
        && (new.attempts, new.budget_used) == (old.attempts + 1, old.budget_used + 1)
        && (new.recoveries, new.conflicts) == (old.recoveries, old.conflicts)
        && after.attempts_max == before.attempts_max
}

#[cfg(test)]
#[path = "usual_tests.rs"]
mod tests;
