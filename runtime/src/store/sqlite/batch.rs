//! Statements of the ledger for SQLite that write many rows at once: each takes a JSON list, so that one prepared text does
//! for one item and for a hundred. What each writes is what the packet of the same name writes on OceanBase.

use powercontext_core::fence::Fence;
use powercontext_core::work::lane::{Lane, LaneSeq};
use serde_json::json;

use crate::store::batch::{Asked, ClaimRow, FinishRow, SettleRow, SlotRow};
use crate::store::works::{NewWork, work_columns};

/// Every text, for the test that prepares them. A plus before a column keeps its index out: rows are found by their key.
pub(crate) const ALL: [&str; 16] = [
    LEAVE_LANES,
    FINISH_ITEMS,
    CLOSE_ATTEMPTS,
    DELETE_KEYS,
    SETTLE_INTENTS,
    CLAIMABLE,
    CLAIM_ITEMS,
    OPEN_ATTEMPTS,
    TAKE_SLOTS,
    GIVE_BACK_SLOTS,
    PENDING,
    LIVE,
    SAVE_LANES,
    INSERT_ITEMS,
    PUT_KEYS,
    RAISE_INTENTS,
];

/// The name in a text's first line.
pub(crate) fn short_name(sql: &'static str) -> &'static str {
    sql.lines()
        .next()
        .map_or("unnamed", |line| line.trim_start_matches("-- "))
}

pub(crate) const LEAVE_LANES: &str = "-- lanes.leave_many
UPDATE pc_work_lanes
SET head_sequence = NULL
FROM json_each(?1) AS j
WHERE lane_key = j.value ->> 'lane' AND head_sequence = j.value ->> 'seq' AND next_sequence = j.value ->> 'next'";

pub(crate) const FINISH_ITEMS: &str = "-- works.finish_many
UPDATE pc_work_items
SET status = 'succeeded', available_at = ?2, ready_at = NULL, lease_owner = NULL, lease_expires_at = NULL,
    conflict_streak = 0, cancel_requested = 0, claimed_request_generation = NULL, claimed_dirty = NULL,
    result_code = j.value ->> 'code', result_payload = CAST(j.value ->> 'result' AS BLOB), error_category = NULL,
    error_code = NULL, state_version = state_version + 1, updated_at = ?2, completed_at = ?2
FROM json_each(?1) AS j
WHERE work_id = j.value ->> 'work' AND state_version = j.value ->> 'version' AND lease_owner = j.value ->> 'owner'
  AND lease_fence = j.value ->> 'fence' AND +status = 'running'
  AND (lease_expires_at IS NULL OR lease_expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))";

pub(crate) const CLOSE_ATTEMPTS: &str = "-- attempts.close_many
UPDATE pc_work_attempts
SET finished_at = ?2, heartbeat_at = ?2, outcome = 'succeeded', error_category = NULL, error_code = NULL
FROM json_each(?1) AS j
WHERE work_id = j.value ->> 'work' AND attempt_no = j.value ->> 'attempt' AND owner_id = j.value ->> 'owner'
  AND fence = j.value ->> 'fence' AND +finished_at IS NULL";

pub(crate) const DELETE_KEYS: &str = "-- keys.delete_many
DELETE FROM pc_work_keys
WHERE (logical_key, +work_id) IN (SELECT value ->> 'key', value ->> 'work' FROM json_each(?1))";

pub(crate) const SETTLE_INTENTS: &str = "-- intents.settle_many
UPDATE pc_artifact_processing_intents
SET clean_generation = MAX(clean_generation, MIN(dirty_generation, j.value ->> 'dirty')),
    handled_generation = requested_generation
FROM json_each(?1) AS j
WHERE binding_name = j.value ->> 'binding' AND scope_id = j.value ->> 'scope'";

pub(crate) const CLAIMABLE: &str = concat!(
    "-- works.claimable
SELECT ",
    work_columns!(),
    ",
       (SELECT head_sequence FROM pc_work_lanes l WHERE l.lane_key = pc_work_items.lane_key) AS head_sequence,
       (SELECT requested_generation FROM pc_artifact_processing_intents i
        WHERE i.scope_id = pc_work_items.scope_id AND i.binding_name = ?2) AS requested_generation,
       (SELECT dirty_generation FROM pc_artifact_processing_intents i
        WHERE i.scope_id = pc_work_items.scope_id AND i.binding_name = ?2) AS dirty_generation
FROM pc_work_items
WHERE work_id IN (SELECT value FROM json_each(?1))"
);

pub(crate) const CLAIM_ITEMS: &str = "-- works.claim_many
UPDATE pc_work_items
SET status = 'running', available_at = ?2, ready_at = NULL, lease_owner = ?3, lease_fence = lease_fence + 1,
    lease_expires_at = ?4, attempt_count = attempt_count + 1, generation_attempt_count = generation_attempt_count + 1,
    cancel_requested = 0, claimed_request_generation = j.value ->> 'requested', claimed_dirty = j.value ->> 'dirty',
    result_code = NULL, result_payload = NULL, error_category = NULL, error_code = NULL,
    state_version = state_version + 1, updated_at = ?2, completed_at = NULL
FROM json_each(?1) AS j
WHERE work_id = j.value ->> 'work' AND state_version = j.value ->> 'version' AND +status IN ('queued', 'retry_wait')";

pub(crate) const OPEN_ATTEMPTS: &str = "-- attempts.open_many
INSERT INTO pc_work_attempts (work_id, attempt_no, recovery_generation, owner_id, fence, started_at, heartbeat_at)
SELECT value ->> 'work', value ->> 'attempt', value ->> 'recovery', ?3, value ->> 'fence', ?2, ?2
FROM json_each(?1)";

pub(crate) const TAKE_SLOTS: &str = "-- slots.take_many
UPDATE pc_artifact_processing_slots
SET work_id = j.value ->> 'work', fence = j.value ->> 'fence'
FROM json_each(?1) AS j
WHERE family = j.value ->> 'family' AND slot_no = j.value ->> 'slot' AND +work_id IS NULL";

pub(crate) const GIVE_BACK_SLOTS: &str = "-- slots.give_back_many
UPDATE pc_artifact_processing_slots
SET work_id = NULL, fence = NULL
FROM json_each(?1) AS j
WHERE family = j.value ->> 'family' AND slot_no = j.value ->> 'slot' AND +work_id = j.value ->> 'work'
  AND +fence = j.value ->> 'fence'";

/// The list of slots that are taken or given back.
pub(crate) fn slot_list(slots: &[SlotRow<'_>]) -> String {
    let list = slots.iter().map(|row| {
        json!({
            "family": row.family.as_str(),
            "slot": row.slot.get(),
            "work": row.id.to_string(),
            "fence": row.fence.to_row(),
        })
    });
    encode(list.collect())
}

/// The list of a finish.
pub(crate) fn finish_list(rows: &[FinishRow<'_>]) -> String {
    let list: Vec<_> = rows
        .iter()
        .map(|row| {
            let (usual, holder) = (row.usual, row.usual.holder());
            json!({
                "lane": row.lane.as_str(),
                "seq": usual.seq().get(),
                "next": usual.seq().next().get(),
                "work": row.id().to_string(),
                "version": usual.claimed().version,
                "owner": holder.member.as_str(),
                "fence": holder.fence.to_row(),
                "attempt": usual.attempt().get(),
                "key": row.key.as_str(),
                "code": row.code,
                "result": String::from_utf8_lossy(row.result),
            })
        })
        .collect();
    encode(list)
}

/// The list of intents that are settled.
pub(crate) fn settle_list(rows: &[&SettleRow<'_>]) -> String {
    let list: Vec<_> = rows
        .iter()
        .map(|row| json!({"binding": row.binding.as_str(), "scope": row.scope.as_str(), "dirty": row.clean()}))
        .collect();
    encode(list)
}

/// The list of a claim.
pub(crate) fn claim_list(rows: &[ClaimRow]) -> String {
    let list: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "work": row.after.id.to_string(),
                "version": row.version,
                "requested": row.requested.get(),
                "dirty": row.dirty.get(),
                "attempt": row.after.counters.attempts,
                "recovery": row.after.counters.recoveries,
                "fence": row.after.fence.map_or(0, Fence::to_row),
            })
        })
        .collect();
    encode(list)
}

fn encode(list: Vec<serde_json::Value>) -> String {
    serde_json::Value::Array(list).to_string()
}

pub(crate) const PENDING: &str = "-- works.pending
SELECT h.position, c.sequence, l.lane_key, l.head_sequence, l.next_sequence, i.dirty_generation, i.clean_generation,
       i.requested_generation, i.handled_generation
FROM json_each(?1) AS j
LEFT JOIN pc_source_journal_heads h ON h.scope_id = j.value ->> 0
LEFT JOIN pc_source_cursors c ON c.scope_id = j.value ->> 0 AND c.binding_name = ?2
LEFT JOIN pc_work_lanes l ON l.lane_key = j.value ->> 1
LEFT JOIN pc_artifact_processing_intents i ON i.binding_name = ?2 AND i.scope_id = j.value ->> 0
ORDER BY j.key";

pub(crate) const LIVE: &str = "-- works.live_many
SELECT w.*
FROM json_each(?1) AS j
JOIN pc_work_lanes l ON l.lane_key = j.value
JOIN pc_work_items w ON w.lane_key = l.lane_key AND w.lane_sequence >= l.head_sequence
WHERE w.status NOT IN ('succeeded', 'cancelled')
ORDER BY w.lane_key, w.lane_sequence";

pub(crate) const SAVE_LANES: &str = "-- lanes.save_many
INSERT INTO pc_work_lanes (lane_key, head_sequence, next_sequence)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1) WHERE TRUE
ON CONFLICT (lane_key) DO UPDATE SET head_sequence = excluded.head_sequence, next_sequence = excluded.next_sequence";

pub(crate) const INSERT_ITEMS: &str = "-- works.insert_many
INSERT INTO pc_work_items (work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id, payload, status,
                           available_at, ready_at, max_attempts, created_at, updated_at)
SELECT value ->> 3, value ->> 4, value ->> 0, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
       CAST(value ->> 9 AS BLOB), 'queued', ?2, CASE value ->> 10 WHEN 1 THEN ?2 END, value ->> 11, ?2, ?2
FROM json_each(?1)";

pub(crate) const PUT_KEYS: &str = "-- keys.put_many
INSERT INTO pc_work_keys (logical_key, work_id, lane_key, created_at)
SELECT value ->> 4, value ->> 3, value ->> 0, ?2 FROM json_each(?1) WHERE TRUE
ON CONFLICT (logical_key) DO UPDATE SET work_id = excluded.work_id";

pub(crate) const RAISE_INTENTS: &str = "-- intents.raise_many
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, requested_generation)
SELECT ?2, value, 1 FROM json_each(?1) WHERE TRUE
ON CONFLICT (binding_name, scope_id) DO UPDATE SET requested_generation = requested_generation + 1";

/// The list of requests.
pub(crate) fn asked_list(asked: &[Asked<'_>]) -> String {
    encode(
        asked
            .iter()
            .map(|one| json!([one.scope.as_str(), one.lane.as_str()]))
            .collect(),
    )
}

/// The list of new items.
pub(crate) fn created_list(created: &[(NewWork<'_>, Lane)]) -> String {
    let list = created
        .iter()
        .map(|(new, lane)| {
            json!([
                lane.key.as_str(),
                lane.head.map(LaneSeq::get),
                lane.next.get(),
                new.id.to_string(),
                new.logical_key.as_str(),
                new.seq.get(),
                new.kind.as_str(),
                new.payload_version,
                new.scope.as_str(),
                String::from_utf8_lossy(new.payload),
                u32::from(new.is_head),
                new.attempts_max,
            ])
        })
        .collect();
    encode(list)
}
