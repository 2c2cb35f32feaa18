//! OceanBase texts of memory entries.

use crate::store::memory_entries::MemoryEntriesSql;
use crate::store::search_text;

pub(crate) const SQL: MemoryEntriesSql = MemoryEntriesSql {
    insert_version: "-- memory_entries.insert_version
INSERT INTO pc_memory_entry_versions (scope_id, memory_artifact_id, entry_version_id, family, entry_id, version,
                                      previous_version_id, kind, text, source_refs, artifact_refs, entry_content_hash,
                                      created_in_revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    create_head: "-- memory_entries.create_head
INSERT INTO pc_memory_entry_heads (scope_id, memory_artifact_id, entry_id, family, head_revision, entry_version_id,
                                   entry_content_hash, state, searchable_text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    move_head: "-- memory_entries.move_head
UPDATE pc_memory_entry_heads
SET head_revision = ?, entry_version_id = ?, entry_content_hash = ?, state = ?, searchable_text = ?
WHERE scope_id = ? AND memory_artifact_id = ? AND entry_id = ? AND entry_version_id = ?",
    version: "-- memory_entries.version
SELECT v.entry_id AS entry_id, v.entry_version_id AS entry_version_id, v.version AS version,
       v.previous_version_id AS previous_version_id, v.kind AS kind, v.text AS text, v.source_refs AS source_refs,
       v.artifact_refs AS artifact_refs, v.entry_content_hash AS entry_content_hash
FROM pc_memory_entry_versions AS v
WHERE v.scope_id = ? AND v.memory_artifact_id = ? AND v.entry_version_id = ?",
    written_in: "-- memory_entries.written_in
SELECT created_in_revision
FROM pc_memory_entry_versions
WHERE scope_id = ? AND memory_artifact_id = ? AND entry_version_id = ?",
    versions: "-- memory_entries.versions
SELECT v.entry_id AS entry_id, v.entry_version_id AS entry_version_id, v.version AS version,
       v.previous_version_id AS previous_version_id, v.kind AS kind, v.text AS text, v.source_refs AS source_refs,
       v.artifact_refs AS artifact_refs, v.entry_content_hash AS entry_content_hash
FROM pc_memory_entry_versions AS v
WHERE v.scope_id = ? AND v.memory_artifact_id = ? AND v.entry_version_id IN (
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)",
    page: "-- memory_entries.page
SELECT v.entry_id AS entry_id, v.entry_version_id AS entry_version_id, v.version AS version,
       v.previous_version_id AS previous_version_id, v.kind AS kind, v.text AS text, v.source_refs AS source_refs,
       v.artifact_refs AS artifact_refs, v.entry_content_hash AS entry_content_hash,
       h.head_revision AS head_revision, h.state AS state
FROM pc_memory_entry_heads AS h
JOIN pc_memory_entry_versions AS v
  ON v.scope_id = h.scope_id AND v.memory_artifact_id = h.memory_artifact_id AND v.entry_version_id = h.entry_version_id
WHERE h.scope_id = ? AND h.memory_artifact_id = ? AND (? = 1 OR h.state = 'active')
  AND (h.head_revision < ? OR (h.head_revision = ? AND h.entry_id > ?))
ORDER BY h.head_revision DESC, h.entry_id
LIMIT ?",
    stated: "-- memory_entries.stated
SELECT v.entry_id AS entry_id, v.entry_version_id AS entry_version_id, v.version AS version,
       v.previous_version_id AS previous_version_id, v.kind AS kind, v.text AS text, v.source_refs AS source_refs,
       v.artifact_refs AS artifact_refs, v.entry_content_hash AS entry_content_hash
FROM pc_memory_entry_heads AS h
JOIN pc_memory_entry_versions AS v
  ON v.scope_id = h.scope_id AND v.memory_artifact_id = h.memory_artifact_id AND v.entry_version_id = h.entry_version_id
WHERE h.scope_id = ? AND h.memory_artifact_id = ? AND h.state = 'active' AND v.kind = ? AND v.text = ?
ORDER BY h.entry_id
LIMIT ?",
    search: search_text::OCEANBASE.search,
};
