CREATE TABLE pc_artifact_processing_intents (
  pending_sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  binding_name TEXT NOT NULL,
  scope_id TEXT NOT NULL,
  dirty_generation INTEGER NOT NULL DEFAULT 0,
  clean_generation INTEGER NOT NULL DEFAULT 0,
  requested_generation INTEGER NOT NULL DEFAULT 0,
  handled_generation INTEGER NOT NULL DEFAULT 0,
  last_auto_scan_generation INTEGER NOT NULL DEFAULT 0,
  is_dirty INTEGER NOT NULL GENERATED ALWAYS AS (dirty_generation > clean_generation) STORED,
  is_owed INTEGER NOT NULL GENERATED ALWAYS AS (requested_generation > handled_generation) STORED,
  CONSTRAINT uq_pc_artifact_processing_intents_identity UNIQUE (binding_name, scope_id),
  CONSTRAINT ck_pc_artifact_processing_intents_clean CHECK (clean_generation >= 0 AND clean_generation <= dirty_generation),
  CONSTRAINT ck_pc_artifact_processing_intents_handled CHECK (handled_generation >= 0 AND handled_generation <= requested_generation),
  CONSTRAINT ck_pc_artifact_processing_intents_scan CHECK (last_auto_scan_generation >= 0)
) STRICT
