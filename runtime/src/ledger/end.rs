//! How a run ends: with its last domain write, or without. One transaction holds the domain write, the cursor, the
//! attempt and the item, or none of them (I1, I3, I6).
//!
//! Locks lane -> item -> slot -> (domain: cursor -> artifact head) -> intent. A commit of unknown outcome is re-read by owner and
//! fence before anything else is written.

use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkId};
use powercontext_core::lease::{Held, Holder};
use powercontext_core::limits::PAYLOAD_BYTES_MAX;
use powercontext_core::refs::Position;
use powercontext_core::supervise::intent::HeadReached;
use powercontext_core::time::DbTime;
use powercontext_core::work::{Effect, Event, Outcome, Refused, SlotNo, UsualFinish, WorkState, step};

use crate::ledger::Ledger;
use crate::ledger::kinds::KindSpec;
use crate::ledger::slots::give_back;
use crate::ledger::together::Handed;
use crate::ledger::write::{Guard, LockedLane, write_intent, write_step};
use crate::rt;
use crate::store::batch::{self, FinishRow, SettleRow};
use crate::store::error::corrupt;
use crate::store::notes::Note;
use crate::store::{Body, Busy, FenceLost, Tx, TxError, TxName, attempts, works};

/// How often an end whose commit is of unknown outcome is looked up and, if it did not happen, run again.
const RUNS_MAX: u32 = 3;

/// The domain's part of a finish.
#[async_trait]
pub trait DomainWrite: Send + Sync {
    /// Writes artifacts and cursor inside the finish's transaction and answers where the cursor stands then.
    ///
    /// # Errors
    /// [`TxError::Refused`] when cursor or head moved since the run read them; nothing is written.
    async fn apply(&self, tx: &mut Tx) -> Result<Position, TxError>;
}

/// A run that ended well.
pub struct Done {
    /// Its last domain write; `None` when there was nothing to do.
    pub write: Option<Arc<dyn DomainWrite>>,
    /// The journal head that the run read after its claim.
    pub head_read: Position,
    /// Where the cursor stood when the run read it; the answer when there is no write.
    pub cursor: Position,
    /// Bounded name of the result.
    pub code: &'static str,
    /// Result: a JSON object of references and numbers.
    pub result: serde_json::Value,
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Committed.
    Succeeded,
    /// An operator had asked for the end: nothing of the run was kept.
    Cancelled,
    /// It will run again from this time on.
    Waits {
        /// Earliest claim.
        due: DbTime,
        /// Outcome of this attempt.
        outcome: Outcome,
    },
    /// It holds its lane until an operator acts.
    Failed,
    /// The lease was lost; somebody else decides about the item now.
    Lost,
}

pub(super) enum End {
    Finish(Done, Vec<u8>),
    Fail(FailCode),
    Conflict(FailCode),
    Release,
}

/// An end to be written.
pub(super) struct Input {
    ledger: Ledger,
    pub(super) spec: KindSpec,
    pub(super) lane: LaneKey,
    pub(super) scope: ScopeId,
    id: WorkId,
    holder: Holder,
    /// Set for a finish that was decided ahead.
    pub(super) usual: Option<UsualFinish>,
    slot: Option<SlotNo>,
    started_at: DbTime,
    pub(super) end: End,
}

impl Input {
    /// The finish as the statements write it, if it was decided ahead.
    pub(super) fn row<'a>(&'a self, key: &'a LogicalKey) -> Option<FinishRow<'a>> {
        let (Some(usual), End::Finish(done, result)) = (&self.usual, &self.end) else {
            return None;
        };
        Some(FinishRow {
            usual,
            lane: &self.lane,
            key,
            binding: &self.spec.binding,
            scope: &self.scope,
            code: done.code,
            result,
            slot: self.slot.map(|slot| (&self.spec.family, slot)),
        })
    }

    fn is_without_write(&self) -> bool {
        matches!(&self.end, End::Finish(done, _) if done.write.is_none())
    }
}

/// What a usual finish tells the metrics.
pub(super) fn usual_note(input: &Input, now: DbTime) -> Note {
    Note::AttemptEnded {
        kind: input.spec.kind.clone(),
        outcome: Outcome::Succeeded,
        error: None,
        lasted: now.since(input.started_at),
    }
}

impl Ledger {
    /// Ends a run well. The held lease is used up: nobody can act on it afterwards.
    ///
    /// # Errors
    /// [`TxError::Refused`] when cursor or head moved (record it with [`Ledger::conflict`]); other [`TxError`]s when the
    /// database could not say in time, in which case the caller may try again while its lease lasts.
    pub async fn finish(&self, claim: &super::Claimed, done: Done) -> Result<Ended, TxError> {
        let result = done.result.to_string().into_bytes();
        if result.len() > PAYLOAD_BYTES_MAX {
            return Err(corrupt("result_payload"));
        }
        self.end(TxName::Finish, claim, End::Finish(done, result)).await
    }

    /// Ends a run with a failure: retried within the kind's policy, else failed.
    ///
    /// # Errors
    /// [`TxError`] as for [`Ledger::finish`].
    pub async fn fail(&self, claim: &super::Claimed, code: FailCode) -> Result<Ended, TxError> {
        self.end(TxName::Fail, claim, End::Fail(code)).await
    }

    /// Ends a run that met another writer; its window is planned anew and the budget is not touched.
    ///
    /// # Errors
    /// [`TxError`] as for [`Ledger::finish`].
    pub async fn conflict(&self, claim: &super::Claimed, code: FailCode) -> Result<Ended, TxError> {
        self.end(TxName::Fail, claim, End::Conflict(code)).await
    }

    /// Gives a run back unfinished; the budget is not touched.
    ///
    /// # Errors
    /// [`TxError`] as for [`Ledger::finish`].
    pub async fn release(&self, claim: &super::Claimed) -> Result<Ended, TxError> {
        self.end(TxName::Release, claim, End::Release).await
    }

    /// Commits a window of a run that goes on: domain write and cursor under the run's lease, all or nothing.
    ///
    /// # Errors
    /// [`TxError::Refused`] when cursor or head moved, or with [`FailCode::CancelRequested`] when an operator asked for the
    /// end: the run is cancelled by this very transaction then. [`TxError::Fenced`] when the lease is lost.
    pub async fn commit_window(
        &self,
        claim: &super::Claimed,
        write: Arc<dyn DomainWrite>,
    ) -> Result<Position, TxError> {
        let spec = self.kinds().get(&claim.kind).ok_or_else(|| corrupt("kind"))?.clone();
        let lane = spec.lane(&claim.scope);
        let input = Arc::new(WindowInput {
            ledger: self.clone(),
            spec,
            lane,
            held: claim.held.clone(),
            write,
        });
        let committed = self
            .db()
            .tx_with(TxName::WindowCommit, &input, |tx, input| Box::pin(window_in(tx, input)))
            .await?;
        if committed.is_none() {
            self.signals().work.notify_one();
            self.signals().changed.notify_waiters();
        }
        committed.ok_or(TxError::Refused(FailCode::CancelRequested))
    }

    async fn end(&self, name: TxName, claim: &super::Claimed, end: End) -> Result<Ended, TxError> {
        let spec = self.kinds().get(&claim.kind).ok_or_else(|| corrupt("kind"))?.clone();
        let lane = spec.lane(&claim.scope);
        let holder = claim.held.holder().clone();
        let input = Arc::new(Input {
            ledger: self.clone(),
            spec,
            scope: claim.scope.clone(),
            id: *claim.held.key(),
            holder,
            usual: claim
                .usual
                .clone()
                .filter(|_| matches!(end, End::Finish(..)) && !self.0.busy.has(&lane)),
            lane,
            slot: claim.slot,
            started_at: claim.claimed_at,
            end,
        });
        let (ended, way) = self.write_end(name, claim, &input).await?;
        // A usual finish leaves an empty lane, behind which nothing waits; its slot is what somebody may wait for.
        if way == Way::General || input.slot.is_some() {
            self.signals().work.notify_one();
        }
        self.signals().changed.notify_waiters();
        Ok(ended)
    }

    async fn write_end(
        &self,
        name: TxName,
        claim: &super::Claimed,
        input: &Arc<Input>,
    ) -> Result<(Ended, Way), TxError> {
        let mut is_usual = input.usual.is_some();
        let mut handed = Handed::Alone(None);
        if is_usual && input.is_without_write() {
            handed = self.together(input).await;
        }
        let mut runs = 1;
        loop {
            // Others wait for their turn while a usual finish holds its own, and no longer.
            let written = match std::mem::replace(&mut handed, Handed::Alone(None)) {
                Handed::Succeeded => return Ok((Ended::Succeeded, Way::Usual)),
                Handed::Unknown => Err(TxError::Unknown),
                Handed::Alone(turn) if is_usual => {
                    let run: Body<Input, (Ended, bool)> = |tx, input| Box::pin(usual_in(tx, input));
                    let written = self.db().tx_once_with(name, input, run).await;
                    drop(turn);
                    written
                }
                Handed::Alone(_) => {
                    let run: Body<Input, (Ended, bool)> = |tx, input| Box::pin(end_in(tx, input));
                    self.db().tx_with(name, input, run).await
                }
            };
            let way = if is_usual { Way::Usual } else { Way::General };
            match written {
                // Somebody touched or holds the item, its lane or its intent: rolled back, and decided on what the rows say
                // once they are free.
                Err(error @ (TxError::Rows { .. } | TxError::Busy(Busy::Lock | Busy::Limit))) if is_usual => {
                    is_usual = false;
                    if matches!(error, TxError::Rows { .. }) {
                        self.0.busy.found(&input.lane, true);
                    }
                }
                Err(TxError::Unknown) => match self.outcome(claim).await {
                    Ok(Some(ended)) => return Ok((ended, Way::General)),
                    Ok(None) if runs < RUNS_MAX => runs += 1,
                    // Nobody can say just now, and "not available" would mean that nothing was written.
                    Ok(None) | Err(_) => return Err(TxError::Unknown),
                },
                // A commit of unknown outcome that arrived late looks like a lost lease to the run after it.
                Err(TxError::Fenced(FenceLost::Item)) if runs > 1 => {
                    return Ok((self.outcome(claim).await?.unwrap_or(Ended::Lost), Way::General));
                }
                Err(TxError::Fenced(FenceLost::Item)) => return Ok((Ended::Lost, Way::General)),
                Err(error) => return Err(error),
                Ok((ended, emptied)) => {
                    // Any other end leaves its own item in the lane, which says nothing of what comes behind it.
                    if matches!(ended, Ended::Succeeded | Ended::Cancelled) {
                        self.0.busy.found(&input.lane, !emptied);
                    }
                    return Ok((ended, way));
                }
            }
        }
    }

    /// Looks up, by owner and fence, how a run ended; `None` while it is still ours. For an end that answered `Unknown`:
    /// ask again, or end it again and ask when that answers [`Ended::Lost`].
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn outcome(&self, claim: &super::Claimed) -> Result<Option<Ended>, TxError> {
        let input = Arc::new((*claim.held.key(), claim.held.holder().clone()));
        self.db()
            .read_with(TxName::Operations, &input, |tx, (id, holder)| {
                Box::pin(outcome_in(tx, *id, holder))
            })
            .await
    }
}

async fn outcome_in(tx: &mut Tx, id: WorkId, holder: &Holder) -> Result<Option<Ended>, TxError> {
    let Some(row) = works::get(tx, id).await? else {
        return Ok(Some(Ended::Lost));
    };
    let ours = |other: &Holder| other.member == holder.member && other.fence == holder.fence;
    if row.item.state.run().is_some_and(|run| ours(&run.holder)) {
        return Ok(None);
    }
    // The item may have moved on since; how this run ended is what its attempt says.
    let attempts = attempts::list(tx, id).await?;
    let ours = attempts.iter().find(|attempt| attempt.fence == holder.fence.to_row());
    let outcome = ours.and_then(|attempt| attempt.outcome.as_deref());
    let outcome = Outcome::ALL.into_iter().find(|known| Some(known.name()) == outcome);
    Ok(Some(match outcome {
        Some(Outcome::Succeeded) => Ended::Succeeded,
        Some(Outcome::Failed) => Ended::Failed,
        Some(Outcome::Cancelled) => Ended::Cancelled,
        Some(outcome @ (Outcome::RetryWait | Outcome::Released | Outcome::Conflict)) => Ended::Waits {
            due: row.item.state.due().unwrap_or(row.updated_at),
            outcome,
        },
        Some(Outcome::LeaseExpiredRetry | Outcome::LeaseExpiredFailed) | None => Ended::Lost,
    }))
}

fn ended(state: &WorkState, outcome: Option<Outcome>) -> Ended {
    match state {
        WorkState::Succeeded { .. } => Ended::Succeeded,
        WorkState::Cancelled { .. } => Ended::Cancelled,
        WorkState::Failed { .. } => Ended::Failed,
        WorkState::Queued { due } | WorkState::RetryWait { due, .. } => Ended::Waits {
            due: *due,
            outcome: outcome.unwrap_or(Outcome::RetryWait),
        },
        WorkState::Running(_) | WorkState::Cancelling(_) => Ended::Lost,
    }
}

/// How an end was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As decided ahead.
    Usual,
    /// As the rows said.
    General,
}

struct WindowInput {
    ledger: Ledger,
    spec: KindSpec,
    lane: LaneKey,
    held: Held<WorkId>,
    write: Arc<dyn DomainWrite>,
}

async fn window_in(tx: &mut Tx, input: &WindowInput) -> Result<Option<Position>, TxError> {
    let (lost, holder) = (TxError::Fenced(FenceLost::Item), input.held.holder());
    let lane = LockedLane::lock(tx, &input.lane).await?;
    let row = lane.row(*input.held.key()).ok_or_else(|| lost.clone())?;
    let now = tx.now().await?;
    let step = step(&row.item, &Event::WindowCommit(holder), now, input.ledger.me()).map_err(|_| lost)?;
    if step.item.state.is_live() {
        // The item stays as it is: its row is locked, so owner, fence and expiry as just checked hold until the commit.
        return input.write.apply(tx).await.map(Some);
    }
    if input.spec.slots_max.is_some() {
        give_back(tx, row, &step).await?;
    }
    let emptied = write_step(
        tx,
        &lane,
        row,
        &step,
        Guard {
            holder: Some(holder),
            result: None,
        },
    )
    .await?;
    write_intent(tx, &input.spec, row, emptied, None).await?;
    Ok(None)
}

/// The finish that was decided ahead, as guarded statements that are the locks. [`TxError::Rows`] when a guard does not
/// hold.
async fn usual_in(tx: &mut Tx, input: &Input) -> Result<(Ended, bool), TxError> {
    let key = input.spec.logical_key(&input.scope);
    let (Some(usual), End::Finish(done, _), Some(row)) = (&input.usual, &input.end, input.row(&key)) else {
        return Err(corrupt("run"));
    };
    let now = batch::finish(tx, &[row], false).await?;
    let cursor = match &done.write {
        Some(write) => write.apply(tx).await?,
        None => done.cursor,
    };
    let settled = usual.dirty().zip(HeadReached::check(cursor, done.head_read));
    let intent = SettleRow::new(&input.spec.binding, &input.scope, usual.emptied(), settled);
    batch::settle(tx, &[intent]).await?;
    tx.note(usual_note(input, now));
    Ok((Ended::Succeeded, true))
}

/// The end that the rows allow, and whether the lane is empty then.
async fn end_in(tx: &mut Tx, input: &Input) -> Result<(Ended, bool), TxError> {
    let lost = TxError::Fenced(FenceLost::Item);
    let lane = LockedLane::lock(tx, &input.lane).await?;
    let row = lane.row(input.id).ok_or_else(|| lost.clone())?;
    let now = tx.now().await?;
    let holder = &input.holder;
    let event = match &input.end {
        End::Finish(..) => Event::Finish(holder),
        End::Fail(code) => Event::Fail {
            holder,
            code: *code,
            policy: input.spec.retry,
            jitter: rt::jitter(),
        },
        End::Conflict(code) => Event::Conflict { holder, code: *code },
        End::Release => Event::Release(holder),
    };
    let step = match step(&row.item, &event, now, input.ledger.me()) {
        Ok(step) => step,
        Err(Refused::Stale) => return Err(lost),
        Err(_) => return Err(corrupt("status")),
    };
    // Before the domain's locks. A run has a slot exactly where the process that claimed it, this one, knows a cap.
    if input.spec.slots_max.is_some() {
        give_back(tx, row, &step).await?;
    }
    let dirty = row.item.state.run().map(|run| run.dirty);
    let mut settled = None;
    let mut result = None;
    if let (End::Finish(done, encoded), WorkState::Succeeded { .. }) = (&input.end, &step.item.state) {
        let cursor = match &done.write {
            Some(write) => write.apply(tx).await?,
            None => done.cursor,
        };
        settled = dirty.zip(HeadReached::check(cursor, done.head_read));
        result = Some((done.code, encoded.as_slice()));
    }
    let emptied = write_step(
        tx,
        &lane,
        row,
        &step,
        Guard {
            holder: Some(holder),
            result,
        },
    )
    .await?;
    let is_empty = emptied.is_some();
    write_intent(tx, &input.spec, row, emptied, settled).await?;
    let outcome = step.effects.iter().find_map(|effect| match effect {
        Effect::CloseAttempt { outcome, .. } => Some(*outcome),
        _ => None,
    });
    Ok((ended(&step.item.state, outcome), is_empty))
}

impl Ended {
    /// Bounded name for logs.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Cancelled => "cancelled",
            Self::Waits { outcome, .. } => outcome.name(),
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}
