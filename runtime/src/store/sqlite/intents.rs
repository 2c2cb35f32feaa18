//! SQLite texts of what is pending and what is owed.

use crate::store::intents::IntentsSql;

pub(crate) const SQL: IntentsSql = IntentsSql {
    get: "-- intents.get
SELECT dirty_generation, clean_generation, requested_generation, handled_generation
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND scope_id = ?",
    lock: "-- intents.lock
SELECT dirty_generation, clean_generation, requested_generation, handled_generation
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND scope_id = ?",
    create: "-- intents.create
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id)
VALUES (?, ?)
ON CONFLICT (binding_name, scope_id) DO NOTHING",
    save: "-- intents.save
UPDATE pc_artifact_processing_intents
SET dirty_generation = ?, clean_generation = ?, requested_generation = ?, handled_generation = ?
WHERE binding_name = ? AND scope_id = ?",
    mark_dirty: "-- intents.mark_dirty
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, dirty_generation)
VALUES (?, ?, 1)
ON CONFLICT (binding_name, scope_id) DO UPDATE SET dirty_generation = dirty_generation + 1",
    mark_all_dirty: "-- intents.mark_all_dirty
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, dirty_generation)
VALUES (?, ?, 1), (?, ?, 1), (?, ?, 1), (?, ?, 1)
ON CONFLICT (binding_name, scope_id) DO UPDATE SET dirty_generation = dirty_generation + 1",
    pending: "-- intents.pending
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p0,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p1,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p2,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p3,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p4,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p5,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p6,
  (SELECT 1 FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1 LIMIT 1) AS p7",
    upper: "-- intents.upper
SELECT MAX(newest) AS newest FROM (
  SELECT MAX(pending_sequence) AS newest FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 1
  UNION ALL
  SELECT MAX(pending_sequence) AS newest FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_dirty = 0) u",
    page_dirty: "-- intents.page_dirty
SELECT pending_sequence, scope_id, is_owed
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND is_dirty = 1 AND pending_sequence > ? AND pending_sequence <= ?
ORDER BY pending_sequence
LIMIT ?",
    page_owed: "-- intents.page_owed
SELECT pending_sequence, scope_id, is_owed
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND is_owed = 1 AND pending_sequence > ?
ORDER BY pending_sequence
LIMIT ?",
    lock_scan: "-- intents.lock_scan
SELECT dirty_generation, clean_generation, requested_generation, handled_generation, last_auto_scan_generation
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND scope_id = ?",
    save_scan: "-- intents.save_scan
UPDATE pc_artifact_processing_intents
SET requested_generation = ?, last_auto_scan_generation = ?
WHERE binding_name = ? AND scope_id = ?",
    mark_if_clean: "-- intents.mark_if_clean
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, dirty_generation)
VALUES (?, ?, 1)
ON CONFLICT (binding_name, scope_id) DO UPDATE SET dirty_generation = dirty_generation + (dirty_generation = clean_generation)",
    owed: "-- intents.owed
SELECT COUNT(*) AS items FROM pc_artifact_processing_intents WHERE binding_name = ? AND is_owed = 1",
};
