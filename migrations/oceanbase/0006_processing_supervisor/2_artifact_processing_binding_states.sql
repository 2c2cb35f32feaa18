CREATE TABLE pc_artifact_processing_binding_states (
  binding_name VARBINARY(512) NOT NULL,
  last_schedule_checkpoint_at DATETIME(6) NULL,
  scan_generation BIGINT NOT NULL DEFAULT 0,
  scan_in_progress TINYINT(1) NOT NULL DEFAULT 0,
  scan_upper_pending_sequence BIGINT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (binding_name),
  CONSTRAINT ck_pc_artifact_processing_binding_states_generation CHECK (scan_generation >= 0),
  CONSTRAINT ck_pc_artifact_processing_binding_states_scan CHECK (scan_in_progress = 0 OR (scan_generation > 0 AND scan_upper_pending_sequence >= 0))
)
