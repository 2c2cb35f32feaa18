CREATE TABLE pc_artifact_lineage_sources (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  ordinal BIGINT NOT NULL,
  source_type VARBINARY(512) NOT NULL,
  source_id VARBINARY(1024) NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_sources_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_sources_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_sources_source FOREIGN KEY (scope_id, source_type, source_id) REFERENCES pc_sources (scope_id, source_type, source_id) ON DELETE RESTRICT
)
