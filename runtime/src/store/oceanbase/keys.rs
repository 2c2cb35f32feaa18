//! OceanBase texts of the newest live item of a logical key.

use crate::store::keys::KeysSql;

pub(crate) const SQL: KeysSql = KeysSql {
    get: "-- keys.get
SELECT work_id FROM pc_work_keys WHERE logical_key = ?",
    put: "-- keys.put
INSERT INTO pc_work_keys (logical_key, work_id, lane_key, created_at)
VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE work_id = VALUES(work_id)",
    move_to: "-- keys.move_to
UPDATE pc_work_keys SET work_id = ? WHERE logical_key = ?",
    delete: "-- keys.delete
DELETE FROM pc_work_keys WHERE logical_key = ?",
    present: "-- keys.present
SELECT logical_key FROM pc_work_keys WHERE logical_key IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
};
