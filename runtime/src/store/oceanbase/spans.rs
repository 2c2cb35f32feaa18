//! OceanBase texts of the spans of attempts.

use crate::store::spans::SpansSql;

pub(crate) const SQL: SpansSql = SpansSql {
    lock: "-- spans.lock
SELECT lease_fence FROM pc_work_items WHERE work_id = ? AND lease_owner = ? AND lease_fence = ?
FOR UPDATE SKIP LOCKED",
    save: "-- spans.save
UPDATE pc_work_attempts
SET trace_id = ?, span_id = ?
WHERE work_id = ? AND attempt_no = ? AND owner_id = ? AND fence = ? AND trace_id IS NULL",
    read: "-- spans.read
SELECT attempt_no, recovery_generation, trace_id, span_id
FROM pc_work_attempts
WHERE work_id = ? AND attempt_no IN (?, ?)",
};
