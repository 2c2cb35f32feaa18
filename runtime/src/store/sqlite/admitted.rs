//! SQLite texts of the ordinary items. CROSS JOIN keeps the order of the tables: there are few ordinary items, and any number of queued ones.

use crate::store::admitted::AdmittedSql;

pub(crate) const SQL: AdmittedSql = AdmittedSql {
    put: "-- admitted.put
INSERT INTO pc_artifact_processing_admitted (binding_name, work_id) VALUES (?, ?)",
    clear: "-- admitted.clear
DELETE FROM pc_artifact_processing_admitted
WHERE binding_name = ? AND NOT EXISTS (
  SELECT 1 FROM pc_work_items i
  WHERE i.work_id = pc_artifact_processing_admitted.work_id AND i.status = 'queued')",
    waiting: "-- admitted.waiting
SELECT COUNT(*) AS items
FROM pc_artifact_processing_admitted a
JOIN pc_work_items i ON i.work_id = a.work_id
WHERE a.binding_name = ? AND i.status = 'queued'",
    ready: "-- admitted.ready
SELECT i.work_id, i.lane_key
FROM pc_artifact_processing_admitted a
CROSS JOIN pc_work_items i ON i.work_id = a.work_id
WHERE a.binding_name = ? AND i.payload_version BETWEEN ? AND ? AND i.status = 'queued' AND i.ready_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
ORDER BY i.ready_at
LIMIT ?",
};
