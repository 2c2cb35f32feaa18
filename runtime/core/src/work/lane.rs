//! Lanes: work of one family in one scope runs in order, at most one at a time, and a request joins what would do its
//! work anyway (design, "Joining"; I5).

use crate::digest::LaneKey;
use crate::ids::WorkId;
use crate::limits::LANE_LIVE_ITEMS_MAX;
use crate::supervise::intent::Dirty;
use crate::work::state::WorkState;

/// Place of an item in its lane: 1, 2, 3 and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneSeq(u64);

impl LaneSeq {
    /// The first place.
    pub const FIRST: Self = Self(1);

    /// Takes a stored place; `None` for 0.
    pub fn from_row(raw: u64) -> Option<Self> {
        (raw > 0).then_some(Self(raw))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The place behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A lane's own row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Its key.
    pub key: LaneKey,
    /// Place of the only claimable item; `None` when the lane is empty.
    pub head: Option<LaneSeq>,
    /// Next place to hand out.
    pub next: LaneSeq,
}

/// What joining needs to know of a live item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveItem {
    /// The item.
    pub id: WorkId,
    /// Its place.
    pub seq: LaneSeq,
    /// Its state.
    pub state: WorkState,
}

/// A locked lane with its live items in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    lane: Lane,
    live: Vec<LiveItem>,
}

/// Rows of a lane that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lane's rows contradict each other: {0}")]
pub struct BrokenLane(&'static str);

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The head is failed and an operator must act first; nothing changes.
    Blocked {
        /// The failed item.
        head: WorkId,
    },
    /// An item that lives already will do the work.
    Join {
        /// That item.
        id: WorkId,
        /// Whether `requested` is raised.
        raise: bool,
    },
    /// A new item is made, and `requested` raised.
    Create {
        /// Its place.
        seq: LaneSeq,
        /// Whether it is the lane's head at once.
        is_head: bool,
    },
}

/// Proof that a transaction left its lane without a live item; only it acknowledges a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneEmptied(());

impl LaneEmptied {
    /// For a finish that was decided ahead: the guards of its statements hold only where the lane empties.
    pub(super) fn by_guards() -> Self {
        Self(())
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self(())
    }
}

/// A lane after one of its items ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The lane's row as it must be written.
    pub lane: Lane,
    /// The newest live item, which a request would join; `None` deletes the key row.
    pub newest: Option<WorkId>,
    /// The item that became head and must become claimable, if the head moved.
    pub promoted: Option<WorkId>,
    /// The token that acknowledges, when nothing lives in the lane any more.
    pub emptied: Option<LaneEmptied>,
}

impl LaneView {
    /// Takes a lane's row and its live items in order of their places.
    ///
    /// # Errors
    /// [`BrokenLane`] when the rows cannot belong together: more than two live items, a head that is not the first of
    /// them, a place that was not handed out.
    pub fn new(lane: Lane, live: Vec<LiveItem>) -> Result<Self, BrokenLane> {
        if live.len() > LANE_LIVE_ITEMS_MAX {
            return Err(BrokenLane("more than two live items"));
        }
        if live.iter().any(|item| !item.state.is_live()) {
            return Err(BrokenLane("an ended item among the live"));
        }
        if lane.head != live.first().map(|item| item.seq) {
            return Err(BrokenLane("the head is not the first live item"));
        }
        if live.windows(2).any(|pair| pair[0].seq >= pair[1].seq) || live.iter().any(|item| item.seq >= lane.next) {
            return Err(BrokenLane("places out of order"));
        }
        Ok(Self { lane, live })
    }

    /// The lane's row.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The live items, head first.
    pub fn live(&self) -> &[LiveItem] {
        &self.live
    }

    /// What an explicit request becomes. `dirty` is the intent's counter now; `own_input` tells that the request brings
    /// input of its own, which a run that has begun cannot have seen.
    pub fn admit(&self, dirty: Dirty, own_input: bool) -> Admission {
        let Some(newest) = self.live.last() else {
            return Admission::Create {
                seq: self.lane.next,
                is_head: true,
            };
        };
        if let Some(head) = self
            .live
            .first()
            .filter(|head| matches!(head.state, WorkState::Failed { .. }))
        {
            return Admission::Blocked { head: head.id };
        }
        match &newest.state {
            WorkState::Queued { .. } | WorkState::RetryWait { .. } => Admission::Join {
                id: newest.id,
                raise: true,
            },
            WorkState::Running(run) if run.dirty == dirty && !own_input => Admission::Join {
                id: newest.id,
                raise: false,
            },
            _ => Admission::Create {
                seq: self.lane.next,
                is_head: false,
            },
        }
    }

    /// The lane's row once an item was made at [`Admission::Create`]'s place.
    pub fn with_created(&self) -> Lane {
        Lane {
            key: self.lane.key.clone(),
            head: self.lane.head.or(Some(self.lane.next)),
            next: self.lane.next.next(),
        }
    }

    /// The lane after `ended` left it.
    ///
    /// # Errors
    /// [`BrokenLane`] when no live item has that id.
    pub fn leave(&self, ended: WorkId) -> Result<Left, BrokenLane> {
        let rest: Vec<&LiveItem> = self.live.iter().filter(|item| item.id != ended).collect();
        if rest.len() == self.live.len() {
            return Err(BrokenLane("the ended item is not in its lane"));
        }
        let head = rest.first().map(|item| item.seq);
        Ok(Left {
            lane: Lane {
                key: self.lane.key.clone(),
                head,
                next: self.lane.next,
            },
            newest: rest.last().map(|item| item.id),
            promoted: rest
                .first()
                .filter(|item| Some(item.seq) != self.lane.head)
                .map(|item| item.id),
            emptied: rest.is_empty().then_some(LaneEmptied(())),
        })
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
