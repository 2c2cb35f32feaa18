//! SQLite texts of artifact revisions, heads and lineage.

use crate::store::artifacts::ArtifactsSql;

pub(crate) const SQL: ArtifactsSql = ArtifactsSql {
    head: "-- artifacts.head
SELECT revision
FROM pc_artifact_heads
WHERE scope_id = ? AND family = ? AND artifact_id = ?",
    lock_head: "-- artifacts.lock_head
SELECT revision
FROM pc_artifact_heads
WHERE scope_id = ? AND family = ? AND artifact_id = ?",
    create_head: "-- artifacts.create_head
INSERT INTO pc_artifact_heads (scope_id, family, artifact_id, revision)
VALUES (?, ?, ?, ?)",
    move_head: "-- artifacts.move_head
UPDATE pc_artifact_heads
SET revision = ?
WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision = ?",
    insert: "-- artifacts.insert
INSERT INTO pc_artifacts (scope_id, family, artifact_id, revision, content)
VALUES (?, ?, ?, ?, ?)",
    content: "-- artifacts.content
SELECT content
FROM pc_artifacts
WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision = ?",
    page: "-- artifacts.page
SELECT revision, content
FROM pc_artifacts
WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision > ? AND revision <= ?
ORDER BY revision
LIMIT ?",
    add_source: "-- artifacts.add_source
INSERT INTO pc_artifact_lineage_sources (scope_id, family, artifact_id, revision, ordinal, source_type, source_id)
VALUES (?, ?, ?, ?, ?, ?, ?)",
    add_artifact: "-- artifacts.add_artifact
INSERT INTO pc_artifact_lineage_artifacts (scope_id, family, artifact_id, revision, ordinal, upstream_family,
                                           upstream_artifact_id, upstream_revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    sources: "-- artifacts.sources
SELECT source_type, source_id
FROM pc_artifact_lineage_sources
WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision = ?
ORDER BY ordinal
LIMIT ?",
    artifacts: "-- artifacts.artifacts
SELECT upstream_family, upstream_artifact_id, upstream_revision
FROM pc_artifact_lineage_artifacts
WHERE scope_id = ? AND family = ? AND artifact_id = ? AND revision = ?
ORDER BY ordinal
LIMIT ?",
};
