CREATE TABLE pc_artifact_processing_intents (
  binding_name VARBINARY(512) NOT NULL,
  scope_id VARBINARY(1024) NOT NULL,
  dirty_generation BIGINT NOT NULL DEFAULT 0,
  clean_generation BIGINT NOT NULL DEFAULT 0,
  requested_generation BIGINT NOT NULL DEFAULT 0,
  handled_generation BIGINT NOT NULL DEFAULT 0,
  last_auto_scan_generation BIGINT NOT NULL DEFAULT 0,
  pending_sequence BIGINT NOT NULL AUTO_INCREMENT,
  is_dirty TINYINT(1) GENERATED ALWAYS AS (dirty_generation > clean_generation) STORED,
  is_owed TINYINT(1) GENERATED ALWAYS AS (requested_generation > handled_generation) STORED,
  PRIMARY KEY (binding_name, scope_id),
  KEY ix_pc_artifact_processing_intents_dirty (binding_name, is_dirty, pending_sequence),
  KEY ix_pc_artifact_processing_intents_owed (binding_name, is_owed, pending_sequence),
  UNIQUE KEY uq_pc_artifact_processing_intents_pending (pending_sequence),
  CONSTRAINT ck_pc_artifact_processing_intents_clean CHECK (clean_generation >= 0 AND clean_generation <= dirty_generation),
  CONSTRAINT ck_pc_artifact_processing_intents_handled CHECK (handled_generation >= 0 AND handled_generation <= requested_generation),
  CONSTRAINT ck_pc_artifact_processing_intents_scan CHECK (last_auto_scan_generation >= 0)
)
