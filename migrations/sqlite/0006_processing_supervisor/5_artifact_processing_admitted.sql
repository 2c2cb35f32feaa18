CREATE TABLE pc_artifact_processing_admitted (
  binding_name TEXT NOT NULL,
  work_id TEXT NOT NULL,
  PRIMARY KEY (binding_name, work_id)
) STRICT
