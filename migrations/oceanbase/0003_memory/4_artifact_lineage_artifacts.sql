CREATE TABLE pc_artifact_lineage_artifacts (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  ordinal BIGINT NOT NULL,
  upstream_family VARBINARY(512) NOT NULL,
  upstream_artifact_id VARBINARY(512) NOT NULL,
  upstream_revision BIGINT NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_artifacts_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_artifacts_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_artifacts_upstream FOREIGN KEY (scope_id, upstream_family, upstream_artifact_id, upstream_revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
)
