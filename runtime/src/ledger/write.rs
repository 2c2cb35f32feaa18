//! Writing a decided transition: item, attempt, lane, key and intent, in the one lock order.

use powercontext_core::digest::LaneKey;
use powercontext_core::ids::WorkId;
use powercontext_core::lease::Holder;
use powercontext_core::supervise::intent::{Dirty, HeadReached};
use powercontext_core::time::DbTime;
use powercontext_core::work::lane::{LaneEmptied, LaneView};
use powercontext_core::work::{AttemptNo, Effect, Step, WorkState};

use crate::ledger::kinds::KindSpec;
use crate::store::error::corrupt;
use crate::store::notes::Note;
use crate::store::works::{Saved, WorkRow};
use crate::store::{Tx, TxError, attempts, intents, keys, lanes, works};

/// A lane and its live items, locked.
pub(super) struct LockedLane {
    pub(super) view: LaneView,
    pub(super) rows: Vec<WorkRow>,
}

impl LockedLane {
    /// Locks a lane and its live items.
    pub(super) async fn lock(tx: &mut Tx, key: &LaneKey) -> Result<Self, TxError> {
        let lane = lanes::lock(tx, key).await?;
        let (view, rows) = works::lane_view(tx, lane).await?;
        Ok(Self { view, rows })
    }

    /// Locks a lane unless somebody else has it. A lane whose rows cannot be read is passed over like a locked one: it
    /// must not stop the others.
    pub(super) async fn try_lock(tx: &mut Tx, key: &LaneKey) -> Result<Option<Self>, TxError> {
        match Self::try_read(tx, key).await {
            Err(error @ TxError::Corrupt(_)) => {
                tracing::warn!(error = %error, "a lane that cannot be read is passed over");
                Ok(None)
            }
            result => result,
        }
    }

    async fn try_read(tx: &mut Tx, key: &LaneKey) -> Result<Option<Self>, TxError> {
        let Some(lane) = lanes::try_lock(tx, key).await? else {
            return Ok(None);
        };
        let (view, rows) = works::lane_view(tx, lane).await?;
        Ok(Some(Self { view, rows }))
    }

    /// A live item of the lane.
    pub(super) fn row(&self, id: WorkId) -> Option<&WorkRow> {
        self.rows.iter().find(|row| row.item.id == id)
    }
}

/// How a transition is guarded, and what it leaves beside the state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Guard<'a> {
    /// The lease under which it happens; `None` for operators and recovery, who need none.
    pub(super) holder: Option<&'a Holder>,
    /// Name and encoded payload of a result.
    pub(super) result: Option<(&'a str, &'a [u8])>,
}

/// Writes a transition of one live item of a locked lane. Answers the token that acknowledges, if the lane emptied.
pub(super) async fn write_step(
    tx: &mut Tx,
    lane: &LockedLane,
    row: &WorkRow,
    step: &Step,
    guard: Guard<'_>,
) -> Result<Option<LaneEmptied>, TxError> {
    let saved = Saved {
        is_head: lane.view.lane().head == Some(row.seq),
        result: guard.result,
    };
    match guard.holder {
        Some(holder) => works::save_fenced(tx, holder, &row.item, &step.item, saved).await?,
        None => works::save(tx, &row.item, &step.item, saved).await?,
    }
    let mut emptied = None;
    for effect in &step.effects {
        match effect {
            Effect::OpenAttempt(no) => {
                let run = step.item.state.run().ok_or_else(|| corrupt("run"))?;
                let recoveries = step.item.counters.recoveries;
                attempts::open(tx, row.item.id, *no, recoveries, &run.holder).await?;
                let latency = tx.now().await?.since(row.created_at);
                tx.note(Note::Claimed {
                    kind: row.kind.clone(),
                    latency,
                });
            }
            Effect::CloseAttempt { no, outcome, error } => {
                let run = row.item.state.run().ok_or_else(|| corrupt("run"))?;
                attempts::close(tx, row.item.id, *no, &run.holder, *outcome, *error).await?;
                let lasted = tx.now().await?.since(started(tx, row, *no).await?);
                tx.note(Note::AttemptEnded {
                    kind: row.kind.clone(),
                    outcome: *outcome,
                    error: *error,
                    lasted,
                });
            }
            Effect::LeaveLane => emptied = leave_lane(tx, lane, row).await?,
        }
    }
    Ok(emptied)
}

/// When the attempt of a run began. A running item last changed when it was claimed, because heartbeats move nothing; one
/// that is being cancelled has changed since.
async fn started(tx: &mut Tx, row: &WorkRow, no: AttemptNo) -> Result<DbTime, TxError> {
    match row.item.state {
        WorkState::Running(_) => Ok(row.updated_at),
        _ => attempts::started(tx, row.item.id, no).await,
    }
}

async fn leave_lane(tx: &mut Tx, lane: &LockedLane, row: &WorkRow) -> Result<Option<LaneEmptied>, TxError> {
    let left = lane.view.leave(row.item.id).map_err(|_| corrupt("lane"))?;
    lanes::save(tx, &left.lane).await?;
    keys::settle(tx, &row.logical_key, left.newest).await?;
    if let Some(next) = left.promoted {
        works::promote(tx, next).await?;
    }
    Ok(left.emptied)
}

/// Acknowledges and settles the intent of an item, as far as the tokens at hand allow. Takes the intent's lock last.
pub(super) async fn write_intent(
    tx: &mut Tx,
    spec: &KindSpec,
    row: &WorkRow,
    emptied: Option<LaneEmptied>,
    settled: Option<(Dirty, HeadReached)>,
) -> Result<(), TxError> {
    if emptied.is_none() && settled.is_none() {
        return Ok(());
    }
    let mut intent = intents::lock(tx, &spec.binding, &row.scope).await?;
    if let Some(token) = emptied {
        intent = intent.acknowledge(token);
    }
    if let Some((at_claim, reached)) = settled {
        intent = intent.settle(at_claim, reached);
    }
    intents::save(tx, &spec.binding, &row.scope, &intent).await
}
