//! SQLite texts of upkeep. A plus before a column keeps its index out: there are any number of items that have ended.

use crate::store::upkeep::UpkeepSql;
use crate::store::works::work_columns;

pub(crate) const SQL: UpkeepSql = UpkeepSql {
    ended: "-- upkeep.ended
SELECT work_id, completed_at FROM pc_work_items WHERE completed_at >= ? AND completed_at < ? ORDER BY completed_at, work_id LIMIT ?",
    purge_attempts: "-- upkeep.purge_attempts
DELETE FROM pc_work_attempts WHERE work_id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    purge_acts: "-- upkeep.purge_acts
DELETE FROM pc_work_acts WHERE work_id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    purge_items: "-- upkeep.purge_items
DELETE FROM pc_work_items WHERE +status IN ('succeeded', 'cancelled') AND work_id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    long: "-- upkeep.long
SELECT i.work_id
FROM pc_work_items i
WHERE i.status IN ('queued', 'running', 'retry_wait', 'cancelling', 'failed') AND i.attempt_count > ?
  AND EXISTS (SELECT 1 FROM pc_work_attempts a WHERE a.work_id = i.work_id AND a.attempt_no <= i.attempt_count - ?)
LIMIT ?",
    lock: "-- upkeep.lock
SELECT attempt_count FROM pc_work_items WHERE work_id = ?",
    trim: "-- upkeep.trim
DELETE FROM pc_work_attempts WHERE work_id = ? AND attempt_no <= ? AND finished_at IS NOT NULL",
    payload_depths: "-- upkeep.payload_depths
SELECT payload_version, COUNT(*) AS items
FROM pc_work_items
WHERE status IN ('queued', 'running', 'retry_wait', 'cancelling', 'failed')
GROUP BY payload_version",
    revision: "-- upkeep.revision
SELECT MAX(revision) AS newest FROM pc_schema_revisions WHERE completed_at IS NOT NULL",
    find: concat!(
        "-- upkeep.find
SELECT ",
        work_columns!(),
        "
FROM pc_work_items
WHERE status IN ('queued', 'running', 'retry_wait', 'cancelling', 'failed') AND (? IS NULL OR status = ?) AND (? IS NULL OR kind = ?)
  AND (? IS NULL OR error_code = ?) AND work_id > ?
ORDER BY work_id
LIMIT ?"
    ),
};
