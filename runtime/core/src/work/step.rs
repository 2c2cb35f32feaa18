//! The one transition function of a work item. No statement decides a transition that this file does not know.
//!
//! Keeps I3 (only the current fence ends a run), I4 (ended stays ended, but for an operator's retry or cancel of a failed
//! item) and I9 (attempts without a hole, one outcome each). The test is the whole matrix of states and events.

use crate::fail::FailCode;
use crate::fence::Fence;
use crate::ids::MemberId;
use crate::lease::{Expiry, Holder};
use crate::supervise::intent::{Dirty, Requested};
use crate::time::DbTime;
use crate::work::retry::{Jitter, RetryPolicy, conflict_delay};
use crate::work::state::{AttemptNo, Counters, Item, Run, WorkState};

/// Something that happens to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A worker takes a waiting item.
    Claim {
        /// The worker.
        by: &'a MemberId,
        /// Until when its lease is good.
        expiry: Expiry,
        /// `requested` now.
        requested: Requested,
        /// `dirty` now, read before any input.
        dirty: Dirty,
    },
    /// A worker finds an item that it holds but does not run: its claim's reply was lost.
    Adopt {
        /// The worker.
        by: &'a MemberId,
    },
    /// A run commits a window and goes on.
    WindowCommit(&'a Holder),
    /// A run ends well, together with its last domain write.
    Finish(&'a Holder),
    /// A run failed.
    Fail {
        /// Its holder.
        holder: &'a Holder,
        /// Why.
        code: FailCode,
        /// Retry policy of the family.
        policy: RetryPolicy,
        /// A number for the delay.
        jitter: Jitter,
    },
    /// Another writer moved the cursor or the head under a run; its window is planned anew.
    Conflict {
        /// Its holder.
        holder: &'a Holder,
        /// What moved.
        code: FailCode,
    },
    /// A worker gives a run back unfinished: it drains, or the provider is out.
    Release(&'a Holder),
    /// Somebody finds the lease over.
    Expire,
    /// An operator revives a failed item.
    Retry,
    /// An operator asks for the end.
    Cancel,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Committed.
    Succeeded,
    /// Failed, and will be tried again.
    RetryWait,
    /// Failed for good.
    Failed,
    /// Ended by an operator.
    Cancelled,
    /// Lost its lease, and will be tried again.
    LeaseExpiredRetry,
    /// Lost its lease with the last attempt of the budget.
    LeaseExpiredFailed,
    /// Given back unfinished; not counted against the budget.
    Released,
    /// Met another writer; not counted against the budget.
    Conflict,
}

impl Outcome {
    /// Every outcome, for labels and tests.
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::RetryWait,
        Self::Failed,
        Self::Cancelled,
        Self::LeaseExpiredRetry,
        Self::LeaseExpiredFailed,
        Self::Released,
        Self::Conflict,
    ];

    /// The stored name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::RetryWait => "retry_wait",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::LeaseExpiredRetry => "lease_expired_retry",
            Self::LeaseExpiredFailed => "lease_expired_failed",
            Self::Released => "released",
            Self::Conflict => "conflict",
        }
    }
}

/// What the transaction must write beside the item's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Insert the open row of this attempt.
    OpenAttempt(AttemptNo),
    /// Close the row of this attempt.
    CloseAttempt {
        /// Which.
        no: AttemptNo,
        /// How it ended.
        outcome: Outcome,
        /// Why, unless it ended well.
        error: Option<FailCode>,
    },
    /// The item ended: its lane moves on.
    LeaveLane,
}

/// A transition that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The item as it must be written.
    pub item: Item,
    /// What else must be written, in order.
    pub effects: Vec<Effect>,
}

/// A transition that must not happen. Nothing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The state does not take the event.
    #[error("the item's state does not allow this")]
    State,
    /// A waiting item whose time has not come.
    #[error("the item is not due yet")]
    NotDue,
    /// The caller holds no live lease of the item any more.
    #[error("the lease is lost")]
    Stale,
    /// The lease is still good.
    #[error("the lease has not expired")]
    Leased,
}

/// Applies one event to an item.
///
/// `now` is the transaction's database time and `living` this process, which decides whether a lease without a time is
/// over.
///
/// # Errors
/// [`Refused`] when the event does not fit the item; the caller changes nothing.
pub fn step(item: &Item, event: &Event<'_>, now: DbTime, living: &MemberId) -> Result<Step, Refused> {
    match event {
        Event::Claim {
            by,
            expiry,
            requested,
            dirty,
        } => {
            let fence = Fence::after(item.fence);
            let holder = Holder {
                member: (*by).clone(),
                fence,
                expiry: *expiry,
            };
            claim(
                item,
                Run {
                    holder,
                    requested: *requested,
                    dirty: *dirty,
                },
                now,
            )
        }
        Event::Adopt { by } => adopt(item, by, now, living),
        Event::WindowCommit(holder) => match held(item, holder, now, living)? {
            Phase::Running => Ok(Step {
                item: item.clone(),
                effects: vec![],
            }),
            Phase::Cancelling => Ok(cancelled(item, item.fence, now)),
        },
        Event::Finish(holder) => end_run(item, holder, now, living, |item| succeeded(item, now)),
        Event::Fail {
            holder,
            code,
            policy,
            jitter,
        } => end_run(item, holder, now, living, |item| {
            failed(item, *code, policy, *jitter, now)
        }),
        Event::Conflict { holder, code } => end_run(item, holder, now, living, |item| conflicted(item, *code, now)),
        Event::Release(holder) => end_run(item, holder, now, living, |item| released(item, now)),
        Event::Expire => expire(item, now, living),
        Event::Retry => retry(item, now),
        Event::Cancel => cancel(item, now, living),
    }
}

enum Phase {
    Running,
    Cancelling,
}

/// The owner's check: same member, same fence, lease not over.
fn held(item: &Item, holder: &Holder, now: DbTime, living: &MemberId) -> Result<Phase, Refused> {
    let run = item.state.run().ok_or(Refused::Stale)?;
    if run.holder.member != holder.member || run.holder.fence != holder.fence || run.holder.has_lapsed(now, living) {
        return Err(Refused::Stale);
    }
    Ok(if matches!(item.state, WorkState::Cancelling(_)) {
        Phase::Cancelling
    } else {
        Phase::Running
    })
}

/// Every end of a cancelling run ends it cancelled, whatever the run itself has to say.
fn end_run(
    item: &Item,
    holder: &Holder,
    now: DbTime,
    living: &MemberId,
    running: impl FnOnce(&Item) -> Step,
) -> Result<Step, Refused> {
    match held(item, holder, now, living)? {
        Phase::Running => Ok(running(item)),
        Phase::Cancelling => Ok(cancelled(item, item.fence, now)),
    }
}

fn moved(item: &Item, state: WorkState, counters: Counters, effects: Vec<Effect>) -> Step {
    let item = Item {
        state,
        counters,
        version: item.version + 1,
        ..item.clone()
    };
    Step { item, effects }
}

fn close(item: &Item, outcome: Outcome, error: Option<FailCode>) -> Effect {
    let no = AttemptNo::from_row(item.counters.attempts).unwrap_or(AttemptNo::FIRST);
    Effect::CloseAttempt { no, outcome, error }
}

fn claim(item: &Item, run: Run, now: DbTime) -> Result<Step, Refused> {
    let due = item.state.due().ok_or(Refused::State)?;
    if !due.has_passed(now) {
        return Err(Refused::NotDue);
    }
    let attempts = item.counters.attempts.saturating_add(1);
    let counters = Counters {
        attempts,
        budget_used: item.counters.budget_used.saturating_add(1),
        ..item.counters
    };
    let fence = Some(run.holder.fence);
    let no = AttemptNo::from_row(attempts).unwrap_or(AttemptNo::FIRST);
    let mut step = moved(item, WorkState::Running(run), counters, vec![Effect::OpenAttempt(no)]);
    step.item.fence = fence;
    Ok(step)
}

fn succeeded(item: &Item, now: DbTime) -> Step {
    let effects = vec![close(item, Outcome::Succeeded, None), Effect::LeaveLane];
    moved(
        item,
        WorkState::Succeeded { at: now },
        Counters {
            conflicts: 0,
            ..item.counters
        },
        effects,
    )
}

fn conflicted(item: &Item, code: FailCode, now: DbTime) -> Step {
    let conflicts = item.counters.conflicts.saturating_add(1);
    let counters = Counters {
        conflicts,
        ..budget_returned(item)
    };
    let state = WorkState::RetryWait {
        due: now.plus(conflict_delay(conflicts)),
        last: Some(code),
    };
    moved(item, state, counters, vec![close(item, Outcome::Conflict, Some(code))])
}

fn released(item: &Item, now: DbTime) -> Step {
    let effects = vec![close(item, Outcome::Released, None)];
    moved(
        item,
        WorkState::RetryWait { due: now, last: None },
        budget_returned(item),
        effects,
    )
}

fn budget_returned(item: &Item) -> Counters {
    Counters {
        budget_used: item.counters.budget_used.saturating_sub(1),
        ..item.counters
    }
}

fn retry(item: &Item, now: DbTime) -> Result<Step, Refused> {
    if !matches!(item.state, WorkState::Failed { .. }) {
        return Err(Refused::State);
    }
    let recoveries = item.counters.recoveries.saturating_add(1);
    let counters = Counters {
        budget_used: 0,
        conflicts: 0,
        recoveries,
        ..item.counters
    };
    Ok(moved(item, WorkState::Queued { due: now }, counters, vec![]))
}

fn adopt(item: &Item, by: &MemberId, now: DbTime, living: &MemberId) -> Result<Step, Refused> {
    let run = item.state.run().ok_or(Refused::State)?;
    if run.holder.member != *by || run.holder.has_lapsed(now, living) {
        return Err(Refused::Stale);
    }
    match item.state {
        WorkState::Cancelling(_) => Ok(cancelled(item, item.fence, now)),
        _ => Ok(Step {
            item: item.clone(),
            effects: vec![],
        }),
    }
}

fn budget_left(item: &Item) -> bool {
    item.attempts_max.is_none_or(|max| item.counters.budget_used < max)
}

fn failed(item: &Item, code: FailCode, policy: &RetryPolicy, jitter: Jitter, now: DbTime) -> Step {
    let counters = Counters {
        conflicts: 0,
        ..item.counters
    };
    if code.is_retryable() && budget_left(item) {
        let due = now.plus(policy.delay(item.counters.budget_used, jitter));
        let effects = vec![close(item, Outcome::RetryWait, Some(code))];
        moved(item, WorkState::RetryWait { due, last: Some(code) }, counters, effects)
    } else {
        moved(
            item,
            WorkState::Failed { last: code },
            counters,
            vec![close(item, Outcome::Failed, Some(code))],
        )
    }
}

fn expire(item: &Item, now: DbTime, living: &MemberId) -> Result<Step, Refused> {
    let run = item.state.run().ok_or(Refused::State)?;
    if !run.holder.has_lapsed(now, living) {
        return Err(Refused::Leased);
    }
    if matches!(item.state, WorkState::Cancelling(_)) {
        return Ok(cancelled(item, item.fence, now));
    }
    let last = FailCode::LeaseExpired;
    let counters = Counters {
        conflicts: 0,
        ..item.counters
    };
    let (state, outcome) = if budget_left(item) {
        (
            WorkState::RetryWait {
                due: now,
                last: Some(last),
            },
            Outcome::LeaseExpiredRetry,
        )
    } else {
        (WorkState::Failed { last }, Outcome::LeaseExpiredFailed)
    };
    Ok(moved(item, state, counters, vec![close(item, outcome, Some(last))]))
}

fn cancel(item: &Item, now: DbTime, living: &MemberId) -> Result<Step, Refused> {
    match &item.state {
        WorkState::Queued { .. } | WorkState::RetryWait { .. } | WorkState::Failed { .. } => {
            let counters = Counters {
                conflicts: 0,
                ..item.counters
            };
            Ok(moved(
                item,
                WorkState::Cancelled { at: now },
                counters,
                vec![Effect::LeaveLane],
            ))
        }
        WorkState::Running(run) | WorkState::Cancelling(run) if run.holder.has_lapsed(now, living) => {
            // The holder may still be computing: raising the fence makes sure that it can never commit.
            Ok(cancelled(item, Some(Fence::after(item.fence)), now))
        }
        WorkState::Running(run) => Ok(moved(item, WorkState::Cancelling(run.clone()), item.counters, vec![])),
        WorkState::Cancelling(_) | WorkState::Succeeded { .. } | WorkState::Cancelled { .. } => Err(Refused::State),
    }
}

fn cancelled(item: &Item, fence: Option<Fence>, now: DbTime) -> Step {
    let error = Some(FailCode::CancelRequested);
    let effects = vec![close(item, Outcome::Cancelled, error), Effect::LeaveLane];
    let counters = Counters {
        conflicts: 0,
        ..item.counters
    };
    let mut step = moved(item, WorkState::Cancelled { at: now }, counters, effects);
    step.item.fence = fence;
    step
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
