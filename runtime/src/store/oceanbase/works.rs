//! OceanBase texts of work items.

use crate::store::works::{WorksSql, work_columns};

pub(crate) const SQL: WorksSql = WorksSql {
    get: concat!(
        "-- works.get
SELECT ",
        work_columns!(),
        "
FROM pc_work_items
WHERE work_id = ?"
    ),
    lane_live: concat!(
        "-- works.lane_live
SELECT ",
        work_columns!(),
        ", UTC_TIMESTAMP(6) AS now
FROM pc_work_items
WHERE lane_key = ? AND lane_sequence >= ? AND status NOT IN ('succeeded', 'cancelled')
ORDER BY lane_sequence
LIMIT 4
FOR UPDATE"
    ),
    live: concat!(
        "-- works.live
SELECT ",
        work_columns!(),
        "
FROM pc_work_items
WHERE lane_key = ? AND lane_sequence >= (SELECT head_sequence FROM pc_work_lanes WHERE lane_key = ?)
  AND status NOT IN ('succeeded', 'cancelled')
ORDER BY lane_sequence
LIMIT 4"
    ),
    insert: "-- works.insert
INSERT INTO pc_work_items (work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id, payload, status,
                           available_at, ready_at, max_attempts, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?)",
    save: "-- works.save
UPDATE pc_work_items
SET status = ?, available_at = ?, ready_at = ?, lease_owner = ?, lease_fence = ?, lease_expires_at = ?, attempt_count = ?,
    generation_attempt_count = ?, recovery_generation = ?, conflict_streak = ?, cancel_requested = ?,
    claimed_request_generation = ?, claimed_dirty = ?, result_code = ?, result_payload = ?, error_category = ?,
    error_code = ?, state_version = ?, updated_at = ?, completed_at = ?
WHERE work_id = ? AND state_version = ?",
    save_fenced: "-- works.save_fenced
UPDATE pc_work_items
SET status = ?, available_at = ?, ready_at = ?, lease_owner = ?, lease_fence = ?, lease_expires_at = ?, attempt_count = ?,
    generation_attempt_count = ?, recovery_generation = ?, conflict_streak = ?, cancel_requested = ?,
    claimed_request_generation = ?, claimed_dirty = ?, result_code = ?, result_payload = ?, error_category = ?,
    error_code = ?, state_version = ?, updated_at = ?, completed_at = ?
WHERE work_id = ? AND state_version = ?
  AND lease_owner = ? AND lease_fence = ? AND (lease_expires_at IS NULL OR lease_expires_at > UTC_TIMESTAMP(6))",
    ready: "-- works.ready
SELECT work_id, lane_key
FROM pc_work_items
WHERE kind = ? AND payload_version = ? AND ready_at <= UTC_TIMESTAMP(6)
ORDER BY ready_at
LIMIT ?",
    expired: "-- works.expired
SELECT work_id, lane_key
FROM pc_work_items
WHERE status IN ('running', 'cancelling')
  AND (lease_expires_at <= UTC_TIMESTAMP(6) OR (lease_expires_at IS NULL AND lease_owner <> ?))
LIMIT ?",
    next_lapse: "-- works.next_lapse
SELECT UTC_TIMESTAMP(6) AS now,
  (SELECT MIN(lease_expires_at) FROM pc_work_items WHERE status = 'running') AS running,
  (SELECT MIN(lease_expires_at) FROM pc_work_items WHERE status = 'cancelling') AS cancelling",
    owned: "-- works.owned
SELECT work_id, lane_key
FROM pc_work_items
WHERE status IN ('running', 'cancelling') AND lease_owner = ?
LIMIT ?",
    beat_lock: "-- works.beat_lock
SELECT status FROM pc_work_items WHERE work_id = ?
FOR UPDATE SKIP LOCKED",
    beat: "-- works.beat
UPDATE pc_work_items
SET lease_expires_at = ?
WHERE work_id = ? AND lease_owner = ? AND lease_fence = ? AND status IN ('running', 'cancelling')
  AND lease_expires_at > UTC_TIMESTAMP(6)",
    page: concat!(
        "-- works.page
SELECT ",
        work_columns!(),
        "
FROM pc_work_items FORCE INDEX (ix_pc_work_items_created)
WHERE kind IN (?, ?) AND (? IS NULL OR status = ?)
  AND created_at <= ? AND (created_at < ? OR work_id < ?)
ORDER BY created_at DESC, work_id DESC
LIMIT ?"
    ),
    page_scope: concat!(
        "-- works.page_scope
SELECT ",
        work_columns!(),
        "
FROM pc_work_items
WHERE scope_id = ? AND kind IN (?, ?) AND (? IS NULL OR status = ?)
  AND created_at <= ? AND (created_at < ? OR work_id < ?)
ORDER BY created_at DESC, work_id DESC
LIMIT ?"
    ),
    by_ids: concat!(
        "-- works.by_ids
SELECT ",
        work_columns!(),
        "
FROM pc_work_items
WHERE work_id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    depths: "-- works.depths
SELECT kind, status, COUNT(*) AS items, MIN(created_at) AS oldest
FROM pc_work_items
WHERE status IN ('queued', 'running', 'retry_wait', 'cancelling', 'failed')
GROUP BY kind, status",
    promote: "-- works.promote
UPDATE pc_work_items
SET ready_at = GREATEST(available_at, UTC_TIMESTAMP(6))
WHERE work_id = ? AND status IN ('queued', 'retry_wait') AND ready_at IS NULL",
    unsupported: "-- works.unsupported
SELECT work_id
FROM pc_work_items
WHERE kind = ? AND ready_at IS NOT NULL AND (payload_version < ? OR payload_version > ?)
LIMIT 1",
    next_due: "-- works.next_due
SELECT MIN(ready_at) AS due
FROM pc_work_items
WHERE kind = ? AND payload_version = ?",
};
