CREATE TABLE pc_artifact_processing_admitted (
  binding_name VARBINARY(512) NOT NULL,
  work_id VARBINARY(144) NOT NULL,
  PRIMARY KEY (binding_name, work_id)
)
