//! Stages of the ledger on SQLite, a row at a time: a statement is a call of this process, so a list of rows is a loop over
//! statements that find one row by its key. What each stage writes is what the packet of the same name writes on OceanBase.
//!
//! Lists in JSON were measured: one prepared text did for all rows, and taking the lists apart cost more than the calls saved.

use powercontext_core::ids::{BindingName, MemberId, WorkId};
use powercontext_core::time::DbTime;
use powercontext_core::work::lane::{Lane, LaneSeq};
use powercontext_core::work::{AttemptNo, Outcome};

use crate::store::batch::{Admitted, Asked, ClaimRow, FinishRow, SettleRow, SlotRow};
use crate::store::conn::{Row, Value, values};
use crate::store::error::{TxError, corrupt};
use crate::store::slots::SlotsSql;
use crate::store::tx::Tx;
use crate::store::works::{self, work_columns};
use crate::store::{attempts, keys};

/// Every text, for the test that prepares them. A plus before a column keeps its index out: a row is found by its key.
pub(crate) const ALL: [&str; 10] = [
    LEAVE_LANE,
    FINISH_ITEM,
    DELETE_KEY,
    SETTLE_INTENT,
    CLAIMABLE,
    CLAIM_ITEM,
    TAKE_SLOT,
    PENDING,
    SAVE_LANE,
    RAISE_INTENT,
];

const LEAVE_LANE: &str = "-- lanes.leave
UPDATE pc_work_lanes SET head_sequence = NULL WHERE lane_key = ? AND head_sequence = ? AND next_sequence = ?";

// `ready_at` is empty already, as in every item that runs; a column that is not named costs none of its indexes.
const FINISH_ITEM: &str = "-- works.finish
UPDATE pc_work_items
SET status = 'succeeded', available_at = ?1, lease_owner = NULL, lease_expires_at = NULL, conflict_streak = 0,
    cancel_requested = 0, claimed_request_generation = NULL, claimed_dirty = NULL, result_code = ?2, result_payload = ?3,
    error_category = NULL, error_code = NULL, state_version = state_version + 1, updated_at = ?1, completed_at = ?1
WHERE work_id = ?4 AND state_version = ?5 AND lease_owner = ?6 AND lease_fence = ?7 AND +status = 'running'
  AND (lease_expires_at IS NULL OR lease_expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))";

const DELETE_KEY: &str = "-- keys.delete_of
DELETE FROM pc_work_keys WHERE logical_key = ? AND +work_id = ?";

const SETTLE_INTENT: &str = "-- intents.settle
UPDATE pc_artifact_processing_intents
SET clean_generation = MAX(clean_generation, MIN(dirty_generation, ?)), handled_generation = requested_generation
WHERE binding_name = ? AND scope_id = ?";

const CLAIMABLE: &str = concat!(
    "-- works.claimable
SELECT ",
    work_columns!(),
    ",
       (SELECT head_sequence FROM pc_work_lanes l WHERE l.lane_key = pc_work_items.lane_key) AS head_sequence,
       requested_generation, dirty_generation
FROM pc_work_items
LEFT JOIN (
  SELECT scope_id AS scope, requested_generation, dirty_generation
  FROM pc_artifact_processing_intents WHERE binding_name = ?2) ON scope = scope_id
WHERE work_id = ?1"
);

// `completed_at` is empty already, as in every item that waits.
const CLAIM_ITEM: &str = "-- works.claim
UPDATE pc_work_items
SET status = 'running', available_at = ?1, ready_at = NULL, lease_owner = ?2, lease_fence = lease_fence + 1,
    lease_expires_at = ?3, attempt_count = attempt_count + 1, generation_attempt_count = generation_attempt_count + 1,
    cancel_requested = 0, claimed_request_generation = ?4, claimed_dirty = ?5, result_code = NULL, result_payload = NULL,
    error_category = NULL, error_code = NULL, state_version = state_version + 1, updated_at = ?1
WHERE work_id = ?6 AND state_version = ?7 AND +status IN ('queued', 'retry_wait')";

const TAKE_SLOT: &str = "-- slots.take
UPDATE pc_artifact_processing_slots SET work_id = ?, fence = ? WHERE family = ? AND slot_no = ? AND +work_id IS NULL";

const PENDING: &str = "-- works.pending
SELECT h.position, c.sequence, l.lane_key, l.head_sequence, l.next_sequence, i.dirty_generation, i.clean_generation,
       i.requested_generation, i.handled_generation
FROM (SELECT ?1 AS scope, ?2 AS lane, ?3 AS binding) AS asked
LEFT JOIN pc_source_journal_heads h ON h.scope_id = asked.scope
LEFT JOIN pc_source_cursors c ON c.scope_id = asked.scope AND c.binding_name = asked.binding
LEFT JOIN pc_work_lanes l ON l.lane_key = asked.lane
LEFT JOIN pc_artifact_processing_intents i ON i.binding_name = asked.binding AND i.scope_id = asked.scope";

const SAVE_LANE: &str = "-- lanes.put
INSERT INTO pc_work_lanes (lane_key, head_sequence, next_sequence) VALUES (?, ?, ?)
ON CONFLICT (lane_key) DO UPDATE SET head_sequence = excluded.head_sequence, next_sequence = excluded.next_sequence";

const RAISE_INTENT: &str = "-- intents.raise
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, requested_generation) VALUES (?, ?, 1)
ON CONFLICT (binding_name, scope_id) DO UPDATE SET requested_generation = requested_generation + 1";

/// Writes usual ends.
///
/// # Errors
/// [`TxError::Rows`] when one of them is not usual after all.
pub(crate) async fn finish(
    tx: &mut Tx,
    rows: &[FinishRow<'_>],
    slots: &[SlotRow<'_>],
    now: DbTime,
) -> Result<(), TxError> {
    for row in rows {
        let (usual, holder, id) = (row.usual, row.usual.holder(), row.id().to_string());
        let seq = usual.seq();
        tx.execute_one(LEAVE_LANE, values![row.lane.as_str(), seq.get(), seq.next().get()])
            .await?;
        let item = values![
            now,
            row.code,
            row.result,
            &id,
            usual.claimed().version,
            holder.member.as_str(),
            holder.fence.to_row()
        ];
        tx.execute_one(FINISH_ITEM, item).await?;
        attempts::close(tx, row.id(), usual.attempt(), holder, Outcome::Succeeded, None).await?;
        tx.execute_one(DELETE_KEY, values![row.key.as_str(), &id]).await?;
    }
    let give_back = SlotsSql::of(tx.dialect()).give_back;
    for row in slots {
        let id = row.id.to_string();
        let args = values![row.family.as_str(), i64::from(row.slot.get()), &id, row.fence.to_row()];
        tx.execute_one(give_back, args).await?;
    }
    Ok(())
}

/// Acknowledges and settles intents.
///
/// # Errors
/// [`TxError::Rows`] when one is not there.
pub(crate) async fn settle(tx: &mut Tx, rows: &[&SettleRow<'_>]) -> Result<(), TxError> {
    for row in rows {
        let args = values![row.clean(), row.binding.as_str(), row.scope.as_str()];
        tx.execute_one(SETTLE_INTENT, args).await?;
    }
    Ok(())
}

/// Reads candidates with the heads of their lanes and the counters of their intents; those that are gone are left out.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn claimable(
    tx: &mut Tx,
    binding: &BindingName,
    ids: impl Iterator<Item = WorkId>,
) -> Result<Vec<Row>, TxError> {
    let mut rows = Vec::new();
    for id in ids {
        rows.extend(
            tx.fetch_opt(CLAIMABLE, values![&id.to_string(), binding.as_str()])
                .await?,
        );
    }
    Ok(rows)
}

/// Writes claims and the slots that go with them.
///
/// # Errors
/// [`TxError::Rows`] when an item is not at its version any more, or a slot is not free.
pub(crate) async fn claim(
    tx: &mut Tx,
    rows: &[ClaimRow],
    slots: &[SlotRow<'_>],
    owner: &MemberId,
    expires: Option<DbTime>,
) -> Result<(), TxError> {
    let now = tx.now().await?;
    for row in rows {
        let id = row.after.id.to_string();
        let args = values![
            now,
            owner.as_str(),
            expires,
            row.requested.get(),
            row.dirty.get(),
            &id,
            row.version
        ];
        tx.execute_one(CLAIM_ITEM, args).await?;
        let (no, run) = (AttemptNo::from_row(row.after.counters.attempts), row.after.state.run());
        let (no, run) = no.zip(run).ok_or_else(|| corrupt("status"))?;
        attempts::open(tx, row.after.id, no, row.after.counters.recoveries, &run.holder).await?;
    }
    for row in slots {
        let id = row.id.to_string();
        let args = values![&id, row.fence.to_row(), row.family.as_str(), i64::from(row.slot.get())];
        tx.execute_one(TAKE_SLOT, args).await?;
    }
    Ok(())
}

/// Reads what is pending where requests want work, a row for each of them.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn pending(tx: &mut Tx, binding: &BindingName, asked: &[Asked<'_>]) -> Result<Vec<Row>, TxError> {
    let mut rows = Vec::with_capacity(asked.len());
    for one in asked {
        let args = values![one.scope.as_str(), one.lane.as_str(), binding.as_str()];
        rows.push(tx.fetch_one(PENDING, args).await?);
    }
    Ok(rows)
}

/// Writes accepted requests.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn admit(tx: &mut Tx, binding: &BindingName, admitted: &Admitted<'_>) -> Result<(), TxError> {
    for (new, lane) in &admitted.created {
        save_lane(tx, lane).await?;
        works::insert(tx, new).await?;
        keys::put(tx, new.logical_key, &lane.key, new.id).await?;
    }
    for scope in &admitted.raised {
        tx.execute_one(RAISE_INTENT, values![binding.as_str(), scope.as_str()])
            .await?;
    }
    Ok(())
}

async fn save_lane(tx: &mut Tx, lane: &Lane) -> Result<(), TxError> {
    let head = Value::Int(lane.head.map(LaneSeq::get).and_then(|seq| i64::try_from(seq).ok()));
    tx.execute_one(SAVE_LANE, &[lane.key.as_str().into(), head, lane.next.get().into()])
        .await
}
