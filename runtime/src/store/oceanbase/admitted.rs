//! OceanBase texts of the ordinary items. There are few of them, so each names its item: a plan that was made while both tables
//! were empty, and is kept, would read every item that waits.

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
SELECT /*+ LEADING(a i) USE_NL(i) INDEX(i PRIMARY) */ COUNT(*) AS items
FROM pc_artifact_processing_admitted a
JOIN pc_work_items i ON i.work_id = a.work_id
WHERE a.binding_name = ? AND i.status = 'queued'",
    ready: "-- admitted.ready
SELECT /*+ LEADING(a i) USE_NL(i) INDEX(i PRIMARY) */ i.work_id, i.lane_key
FROM pc_artifact_processing_admitted a
JOIN pc_work_items i ON i.work_id = a.work_id
WHERE a.binding_name = ? AND i.payload_version BETWEEN ? AND ? AND i.status = 'queued' AND i.ready_at <= UTC_TIMESTAMP(6)
ORDER BY i.ready_at
LIMIT ?",
};
