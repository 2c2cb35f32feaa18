//! OceanBase texts of what was captured.

use crate::store::sources::SourcesSql;

pub(crate) const SQL: SourcesSql = SourcesSql {
    head: "-- sources.head
SELECT position FROM pc_source_journal_heads WHERE scope_id = ?",
    lock_head: "-- sources.lock_head
SELECT position FROM pc_source_journal_heads WHERE scope_id = ?
FOR UPDATE",
    create_head: "-- sources.create_head
INSERT INTO pc_source_journal_heads (scope_id, position)
VALUES (?, 0)
ON DUPLICATE KEY UPDATE scope_id = scope_id",
    move_head: "-- sources.move_head
UPDATE pc_source_journal_heads
SET position = ?
WHERE scope_id = ? AND position = ?",
    get: "-- sources.get
SELECT journal_position, payload
FROM pc_sources
WHERE scope_id = ? AND source_type = ? AND source_id = ?",
    insert: "-- sources.insert
INSERT INTO pc_sources (scope_id, source_type, source_id, payload, journal_position)
VALUES (?, ?, ?, ?, ?)",
    window: "-- sources.window
SELECT source_type, source_id, payload, journal_position
FROM pc_sources
WHERE scope_id = ? AND journal_position > ? AND journal_position <= ?
ORDER BY journal_position
LIMIT ?",
    sizes: "-- sources.sizes
SELECT journal_position, LENGTH(payload) AS bytes
FROM pc_sources
WHERE scope_id = ? AND journal_position > ? AND journal_position <= ?
ORDER BY journal_position
LIMIT ?",
    unread: "-- sources.unread
SELECT h.scope_id, h.position, c.sequence, i.is_dirty
FROM pc_source_journal_heads h
LEFT JOIN pc_source_cursors c ON c.scope_id = h.scope_id AND c.binding_name = ?
LEFT JOIN pc_artifact_processing_intents i ON i.binding_name = ? AND i.scope_id = h.scope_id
WHERE h.scope_id > ?
ORDER BY h.scope_id
LIMIT ?",
};
