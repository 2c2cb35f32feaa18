//! OceanBase texts of what is pending and what is owed.

use crate::store::intents::IntentsSql;

pub(crate) const SQL: IntentsSql = IntentsSql {
    get: "-- intents.get
SELECT dirty_generation, clean_generation, requested_generation, handled_generation
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND scope_id = ?",
    lock: "-- intents.lock
SELECT dirty_generation, clean_generation, requested_generation, handled_generation
FROM pc_artifact_processing_intents
WHERE binding_name = ? AND scope_id = ?
FOR UPDATE",
    create: "-- intents.create
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE binding_name = binding_name",
    save: "-- intents.save
UPDATE pc_artifact_processing_intents
SET dirty_generation = ?, clean_generation = ?, requested_generation = ?, handled_generation = ?
WHERE binding_name = ? AND scope_id = ?",
    mark_dirty: "-- intents.mark_dirty
INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, dirty_generation)
VALUES (?, ?, 1)
ON DUPLICATE KEY UPDATE dirty_generation = dirty_generation + 1",
};
