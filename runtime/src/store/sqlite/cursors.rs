//! SQLite texts of cursors.

use crate::store::cursors::CursorsSql;

pub(crate) const SQL: CursorsSql = CursorsSql {
    get: "-- cursors.get
SELECT sequence, generation
FROM pc_source_cursors
WHERE scope_id = ? AND binding_name = ?",
    lock: "-- cursors.lock
SELECT sequence, generation
FROM pc_source_cursors
WHERE scope_id = ? AND binding_name = ?",
    create: "-- cursors.create
INSERT INTO pc_source_cursors (scope_id, binding_name, sequence, generation)
VALUES (?, ?, ?, 1)",
    save: "-- cursors.save
UPDATE pc_source_cursors
SET sequence = ?, generation = ?
WHERE scope_id = ? AND binding_name = ? AND generation = ? AND sequence = ?",
};
