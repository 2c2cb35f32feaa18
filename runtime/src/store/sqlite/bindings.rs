//! SQLite texts of the checks of a binding.

use crate::store::bindings::BindingsSql;

pub(crate) const SQL: BindingsSql = BindingsSql {
    get: "-- bindings.get
SELECT last_schedule_checkpoint_at, scan_generation, scan_in_progress, scan_upper_pending_sequence
FROM pc_artifact_processing_binding_states
WHERE binding_name = ?",
    lock: "-- bindings.lock
SELECT last_schedule_checkpoint_at, scan_generation, scan_in_progress, scan_upper_pending_sequence
FROM pc_artifact_processing_binding_states
WHERE binding_name = ?",
    create: "-- bindings.create
INSERT INTO pc_artifact_processing_binding_states (binding_name, updated_at)
VALUES (?, ?)
ON CONFLICT (binding_name) DO NOTHING",
    save: "-- bindings.save
UPDATE pc_artifact_processing_binding_states
SET last_schedule_checkpoint_at = ?, scan_generation = ?, scan_in_progress = ?, scan_upper_pending_sequence = ?, updated_at = ?
WHERE binding_name = ?",
    place: "-- bindings.place
SELECT after_pending_sequence FROM pc_scheduler_scans WHERE discoverer = ? AND scan_generation = ?",
    save_place: "-- bindings.save_place
INSERT INTO pc_scheduler_scans (discoverer, scan_generation, after_pending_sequence, updated_at)
VALUES (?, ?, ?, ?)
ON CONFLICT (discoverer) DO UPDATE SET scan_generation = excluded.scan_generation,
                                       after_pending_sequence = excluded.after_pending_sequence, updated_at = excluded.updated_at",
};
