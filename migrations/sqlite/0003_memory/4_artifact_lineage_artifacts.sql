CREATE TABLE pc_artifact_lineage_artifacts (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  upstream_family TEXT NOT NULL,
  upstream_artifact_id TEXT NOT NULL,
  upstream_revision INTEGER NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_artifacts_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_artifacts_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_artifacts_upstream FOREIGN KEY (scope_id, upstream_family, upstream_artifact_id, upstream_revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
) STRICT
