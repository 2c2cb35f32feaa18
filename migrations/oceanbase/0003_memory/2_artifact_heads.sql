CREATE TABLE pc_artifact_heads (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  searchable_text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  lifecycle_state VARBINARY(64) NOT NULL DEFAULT 'active',
  replacement_artifact_id VARBINARY(512) NULL,
  governance_generation BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (scope_id, family, artifact_id),
  CONSTRAINT ck_pc_artifact_heads_revision CHECK (revision > 0),
  CONSTRAINT ck_pc_artifact_heads_lifecycle CHECK (lifecycle_state IN ('active', 'deprecated', 'retired')),
  CONSTRAINT ck_pc_artifact_heads_replacement CHECK (replacement_artifact_id IS NULL OR lifecycle_state = 'deprecated'),
  CONSTRAINT ck_pc_artifact_heads_governance CHECK (governance_generation >= 0),
  CONSTRAINT fk_pc_artifact_heads_revision FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
)
