CREATE TABLE pc_artifact_processing_binding_states (
  binding_name TEXT NOT NULL,
  last_schedule_checkpoint_at INTEGER NULL,
  scan_generation INTEGER NOT NULL DEFAULT 0,
  scan_in_progress INTEGER NOT NULL DEFAULT 0,
  scan_upper_pending_sequence INTEGER NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (binding_name),
  CONSTRAINT ck_pc_artifact_processing_binding_states_generation CHECK (scan_generation >= 0),
  CONSTRAINT ck_pc_artifact_processing_binding_states_scan CHECK (scan_in_progress = 0 OR (scan_generation > 0 AND scan_upper_pending_sequence >= 0))
) STRICT
