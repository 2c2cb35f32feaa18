//! Rows of `pc_work_items`. What a transition becomes in columns is decided here and nowhere else; which transition
//! happens is the core's decision.

mod read;

use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::fail::FailCode;
use powercontext_core::fence::Fence;
use powercontext_core::ids::{MemberId, ScopeId, WorkId, WorkKind};
use powercontext_core::lease::{Expiry, Holder};
use powercontext_core::supervise::intent::{Dirty, Requested};
use powercontext_core::time::DbTime;
use powercontext_core::work::lane::{Lane, LaneSeq, LaneView, LiveItem};
use powercontext_core::work::state::Run;
use powercontext_core::work::{Counters, Item, WorkState};

pub(super) use read::candidate;
pub use read::{
    BY_IDS_MAX, Candidate, Depth, PageFilter, by_ids, depths, expired, get, has_unsupported, live, next_due,
    next_lapse, owned, page, ready,
};

use crate::store::conn::{Row, Value, values};
use crate::store::error::{FenceLost, TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

/// The columns that a row is decoded from, in both dialects.
macro_rules! work_columns {
    () => {
        "work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id, payload, status, available_at, lease_owner,
       lease_fence, lease_expires_at, attempt_count, generation_attempt_count, recovery_generation, conflict_streak, max_attempts,
       claimed_request_generation, claimed_dirty, result_code, result_payload, error_category, error_code, state_version,
       created_at, updated_at, completed_at, ready_at"
    };
}
pub(crate) use work_columns;

statements! {
    /// Texts of this aggregate.
    WorksSql, works {
        get, lane_live, live, insert, save, save_fenced, ready, expired, next_lapse, owned, beat_lock, beat, page, page_scope, by_ids, depths, next_due, promote, unsupported,
    }
}

/// A work item with the facts that never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkRow {
    /// State and counters.
    pub item: Item,
    /// What it stands for.
    pub logical_key: LogicalKey,
    /// Its lane.
    pub lane_key: LaneKey,
    /// Its place there.
    pub seq: LaneSeq,
    /// What it runs.
    pub kind: WorkKind,
    /// Version of its payload's form.
    pub payload_version: u32,
    /// Where it works.
    pub scope: ScopeId,
    /// Its payload, a JSON object.
    pub payload: Vec<u8>,
    /// Whether it waits at the head of its lane; a waiting item that does not has another before it.
    pub is_waiting_head: bool,
    /// Name of the result, once succeeded.
    pub result_code: Option<String>,
    /// The result, once succeeded: a JSON object.
    pub result: Option<Vec<u8>>,
    /// Error as stored, for showing; a newer build may have written a pair that this one does not know.
    pub error: Option<(String, String)>,
    /// When it was enqueued.
    pub created_at: DbTime,
    /// When its state last changed.
    pub updated_at: DbTime,
    /// When it succeeded or was cancelled.
    pub completed_at: Option<DbTime>,
}

fn decode_run(row: &Row, fence: Option<Fence>) -> Result<Run, TxError> {
    let expiry = row.opt_time("lease_expires_at")?.map_or(Expiry::Term, Expiry::At);
    Ok(Run {
        holder: Holder {
            member: row.parsed("lease_owner", MemberId::parse)?,
            fence: fence.ok_or_else(|| corrupt("lease_fence"))?,
            expiry,
        },
        requested: Requested::from_row(row.opt_count("claimed_request_generation")?.unwrap_or(0)),
        dirty: Dirty::from_row(row.opt_count("claimed_dirty")?.unwrap_or(0)),
    })
}

fn decode_state(row: &Row, fence: Option<Fence>) -> Result<WorkState, TxError> {
    let last = row
        .opt_id("error_category")?
        .zip(row.opt_id("error_code")?)
        .map(|(category, code)| FailCode::from_row(&category, &code));
    let due = row.time("available_at")?;
    Ok(match row.id("status")?.as_str() {
        "queued" => WorkState::Queued { due },
        "running" => WorkState::Running(decode_run(row, fence)?),
        "retry_wait" => WorkState::RetryWait { due, last },
        "cancelling" => WorkState::Cancelling(decode_run(row, fence)?),
        "succeeded" => WorkState::Succeeded {
            at: row.time("completed_at")?,
        },
        "failed" => WorkState::Failed {
            last: last.unwrap_or(FailCode::Unrecognised),
        },
        "cancelled" => WorkState::Cancelled {
            at: row.time("completed_at")?,
        },
        _ => return Err(corrupt("status")),
    })
}

pub(in crate::store) fn decode(row: &Row) -> Result<WorkRow, TxError> {
    let fence = Fence::from_row(row.int("lease_fence")?);
    let item = Item {
        id: row.parsed("work_id", |id| WorkId::parse(&id))?,
        state: decode_state(row, fence)?,
        counters: Counters {
            attempts: row.small("attempt_count")?,
            budget_used: row.small("generation_attempt_count")?,
            recoveries: row.small("recovery_generation")?,
            conflicts: row.small("conflict_streak")?,
        },
        fence,
        attempts_max: row
            .opt_int("max_attempts")?
            .map(|n| u32::try_from(n).map_err(|_| corrupt("max_attempts")))
            .transpose()?,
        version: row.count("state_version")?,
    };
    Ok(WorkRow {
        item,
        logical_key: row.parsed("logical_key", LogicalKey::parse)?,
        lane_key: row.parsed("lane_key", LaneKey::parse)?,
        seq: LaneSeq::from_row(row.count("lane_sequence")?).ok_or_else(|| corrupt("lane_sequence"))?,
        kind: row.parsed("kind", WorkKind::parse)?,
        payload_version: row.small("payload_version")?,
        scope: row.parsed("scope_id", ScopeId::parse)?,
        payload: row.blob("payload")?,
        is_waiting_head: row.opt_time("ready_at")?.is_some(),
        result_code: row.opt_id("result_code")?,
        result: row.opt_blob("result_payload")?,
        error: row.opt_id("error_category")?.zip(row.opt_id("error_code")?),
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
        completed_at: row.opt_time("completed_at")?,
    })
}

/// Locks the live items of a locked lane and answers them with it.
///
/// # Errors
/// [`TxError::Corrupt`] when the lane's rows contradict each other.
pub async fn lane_view(tx: &mut Tx, lane: Lane) -> Result<(LaneView, Vec<WorkRow>), TxError> {
    let sql = WorksSql::of(tx.dialect());
    tx.locks(LockKind::Item, "");
    let mut rows = Vec::new();
    if let Some(head) = lane.head {
        for row in tx.fetch(sql.lane_live, values![lane.key.as_str(), head.get()]).await? {
            tx.read_now(row.time("now")?);
            rows.push(decode(&row)?);
        }
    }
    let live = rows
        .iter()
        .map(|row: &WorkRow| LiveItem {
            id: row.item.id,
            seq: row.seq,
            state: row.item.state.clone(),
        })
        .collect();
    let view = LaneView::new(lane, live).map_err(|_| corrupt("lane"))?;
    Ok((view, rows))
}

/// A work item to be.
#[derive(Debug, Clone)]
pub struct NewWork<'a> {
    /// Its id.
    pub id: WorkId,
    /// What it stands for.
    pub logical_key: &'a LogicalKey,
    /// Its lane.
    pub lane_key: &'a LaneKey,
    /// Its place there.
    pub seq: LaneSeq,
    /// Whether it is the lane's head and so claimable.
    pub is_head: bool,
    /// What it runs.
    pub kind: &'a WorkKind,
    /// Version of its payload's form.
    pub payload_version: u32,
    /// Where it works.
    pub scope: &'a ScopeId,
    /// A JSON object of at most 16 KiB.
    pub payload: &'a [u8],
    /// Attempts per recovery generation; `None` is unbounded.
    pub attempts_max: Option<u32>,
}

/// Inserts a queued item, due now.
///
/// # Errors
/// [`TxError`].
pub async fn insert(tx: &mut Tx, new: &NewWork<'_>) -> Result<(), TxError> {
    let sql = WorksSql::of(tx.dialect());
    let (now, id) = (tx.now().await?, new.id.to_string());
    let args = [
        Value::from(&id),
        new.logical_key.as_str().into(),
        new.lane_key.as_str().into(),
        new.seq.get().into(),
        new.kind.as_str().into(),
        new.payload_version.into(),
        new.scope.as_str().into(),
        new.payload.into(),
        now.into(),
        new.is_head.then_some(now).into(),
        Value::Int(new.attempts_max.map(i64::from)),
        now.into(),
        now.into(),
    ];
    tx.later(sql.insert, &args, None).await
}

/// What a transition leaves in the columns beside the item itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Saved<'a> {
    /// Whether the item is its lane's head; only a waiting head can be claimed.
    pub is_head: bool,
    /// Result of a finish.
    pub result: Option<(&'a str, &'a [u8])>,
}

/// Writes a transition of a locked item, guarded by the version it was decided on.
///
/// # Errors
/// [`TxError::Rows`] when the item has moved on.
pub async fn save(tx: &mut Tx, before: &Item, after: &Item, saved: Saved<'_>) -> Result<(), TxError> {
    let sql = WorksSql::of(tx.dialect()).save;
    let now = tx.now().await?;
    let columns = Columns::of(after, saved, now);
    let id = before.id.to_string();
    let mut args = columns.values();
    args.extend([Value::from(&id), before.version.into()]);
    tx.later(sql, &args, None).await
}

/// Writes a transition that the holder of the lease makes; the statement itself compares owner, fence and expiry (I3).
///
/// # Errors
/// [`TxError::Fenced`] when the lease is lost.
pub async fn save_fenced(
    tx: &mut Tx,
    holder: &Holder,
    before: &Item,
    after: &Item,
    saved: Saved<'_>,
) -> Result<(), TxError> {
    let sql = WorksSql::of(tx.dialect()).save_fenced;
    let now = tx.now().await?;
    let columns = Columns::of(after, saved, now);
    let id = before.id.to_string();
    let mut args = columns.values();
    args.extend([
        Value::from(&id),
        before.version.into(),
        holder.member.as_str().into(),
        holder.fence.to_row().into(),
    ]);
    tx.later(sql, &args, Some(TxError::Fenced(FenceLost::Item))).await
}

/// The mutable columns of an item, in the order of the texts `save` and `save_fenced`.
struct Columns<'a> {
    after: &'a Item,
    saved: Saved<'a>,
    now: DbTime,
}

impl<'a> Columns<'a> {
    fn of(after: &'a Item, saved: Saved<'a>, now: DbTime) -> Self {
        Self { after, saved, now }
    }

    fn values(&self) -> Vec<Value<'a>> {
        let state = &self.after.state;
        let run = state.run();
        let expires = run.and_then(|run| match run.holder.expiry {
            Expiry::At(at) => Some(at),
            Expiry::Term => None,
        });
        let ended_at = match state {
            WorkState::Succeeded { at } | WorkState::Cancelled { at } => Some(*at),
            _ => None,
        };
        let error = state.error();
        let cancel = matches!(state, WorkState::Cancelling(_) | WorkState::Cancelled { .. });
        let generation = |n: Option<u64>| Value::Int(n.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
        vec![
            state.name().into(),
            state.due().unwrap_or(self.now).into(),
            state.due().filter(|_| self.saved.is_head).into(),
            run.map(|run| run.holder.member.as_str()).into(),
            self.after.fence.map_or(0, Fence::to_row).into(),
            expires.into(),
            self.after.counters.attempts.into(),
            self.after.counters.budget_used.into(),
            self.after.counters.recoveries.into(),
            self.after.counters.conflicts.into(),
            cancel.into(),
            generation(run.map(|run| run.requested.get())),
            generation(run.map(|run| run.dirty.get())),
            self.saved.result.map(|(code, _)| code).into(),
            Value::Blob(self.saved.result.map(|(_, payload)| payload)),
            error.map(FailCode::category).into(),
            error.map(FailCode::code).into(),
            self.after.version.into(),
            self.now.into(),
            ended_at.into(),
        ]
    }
}

/// What a heartbeat found about one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// Renewed.
    Renewed,
    /// Renewed, and an operator asks for the end.
    CancelRequested,
    /// The lease is lost.
    Lost,
    /// Somebody holds the row just now; try again soon.
    Skipped,
}

/// Renews one lease without ever waiting for a lock.
///
/// # Errors
/// [`TxError`].
pub async fn beat(tx: &mut Tx, id: WorkId, holder: &Holder, until: DbTime) -> Result<Beat, TxError> {
    let sql = WorksSql::of(tx.dialect());
    let id = id.to_string();
    tx.locks_if_free(LockKind::Item, "");
    let Some(row) = tx.fetch_opt(sql.beat_lock, values![&id]).await? else {
        return Ok(Beat::Skipped);
    };
    let args = values![until, &id, holder.member.as_str(), holder.fence.to_row()];
    if tx.execute(sql.beat, args).await? != 1 {
        return Ok(Beat::Lost);
    }
    Ok(if row.id("status")? == "cancelling" {
        Beat::CancelRequested
    } else {
        Beat::Renewed
    })
}

/// Makes the item that became head of its lane claimable.
///
/// # Errors
/// [`TxError::Rows`] when it does not wait.
pub async fn promote(tx: &mut Tx, id: WorkId) -> Result<(), TxError> {
    let sql = WorksSql::of(tx.dialect());
    tx.later(sql.promote, values![&id.to_string()], None).await
}
