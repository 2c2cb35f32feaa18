CREATE TABLE pc_artifact_lineage_sources (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  source_type TEXT NOT NULL,
  source_id TEXT NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_sources_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_sources_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_sources_source FOREIGN KEY (scope_id, source_type, source_id) REFERENCES pc_sources (scope_id, source_type, source_id) ON DELETE RESTRICT
) STRICT
