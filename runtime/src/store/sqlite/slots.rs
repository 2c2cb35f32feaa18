//! SQLite texts of slots.

use crate::store::slots::SlotsSql;

pub(crate) const SQL: SlotsSql = SlotsSql {
    numbers: "-- slots.numbers
SELECT slot_no FROM pc_artifact_processing_slots WHERE family = ? AND slot_no <= ?",
    create: "-- slots.create
INSERT INTO pc_artifact_processing_slots (family, slot_no, work_id, fence) VALUES (?, ?, NULL, NULL)
ON CONFLICT (family, slot_no) DO NOTHING",
    free:
        "-- slots.free
SELECT slot_no FROM pc_artifact_processing_slots WHERE family = ? AND slot_no <= ? AND work_id IS NULL ORDER BY slot_no",
    of: "-- slots.of
SELECT family, slot_no FROM pc_artifact_processing_slots WHERE work_id = ? ORDER BY family, slot_no",
    give_back: "-- slots.give_back
UPDATE pc_artifact_processing_slots SET work_id = NULL, fence = NULL
WHERE family = ? AND slot_no = ? AND work_id = ? AND fence = ?",
};
