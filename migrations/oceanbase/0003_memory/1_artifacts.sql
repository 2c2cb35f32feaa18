CREATE TABLE pc_artifacts (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  content MEDIUMBLOB NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision),
  CONSTRAINT ck_pc_artifacts_revision CHECK (revision > 0)
)
