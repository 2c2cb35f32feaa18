CREATE TABLE pc_artifacts (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  content BLOB NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision),
  CONSTRAINT ck_pc_artifacts_revision CHECK (revision > 0)
) STRICT
