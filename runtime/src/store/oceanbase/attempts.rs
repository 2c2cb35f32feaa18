//! OceanBase texts of the audit of attempts.

use crate::store::attempts::AttemptsSql;

pub(crate) const SQL: AttemptsSql = AttemptsSql {
    open: "-- attempts.open
INSERT INTO pc_work_attempts (work_id, attempt_no, recovery_generation, owner_id, fence, started_at, heartbeat_at)
VALUES (?, ?, ?, ?, ?, ?, ?)",
    close: "-- attempts.close
UPDATE pc_work_attempts
SET finished_at = ?, heartbeat_at = ?, outcome = ?, error_category = ?, error_code = ?
WHERE work_id = ? AND attempt_no = ? AND owner_id = ? AND fence = ? AND finished_at IS NULL",
    beat: "-- attempts.beat
UPDATE pc_work_attempts
SET heartbeat_at = ?
WHERE work_id = ? AND owner_id = ? AND fence = ? AND finished_at IS NULL",
    started: "-- attempts.started
SELECT started_at FROM pc_work_attempts WHERE work_id = ? AND attempt_no = ?",
    list: "-- attempts.list
SELECT attempt_no, fence, started_at, finished_at, outcome, error_category, error_code
FROM pc_work_attempts
WHERE work_id = ?
ORDER BY attempt_no DESC
LIMIT ?",
};
