-- 0000_bootstrap/1_schema_revisions.sql
CREATE TABLE pc_schema_revisions (
  revision INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  oldest_reader INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  completed_at INTEGER NULL,
  statements_total INTEGER NOT NULL,
  statements_done INTEGER NOT NULL,
  CONSTRAINT ck_pc_schema_revisions_numbers CHECK (revision > 0 AND oldest_reader > 0 AND oldest_reader <= revision),
  CONSTRAINT ck_pc_schema_revisions_progress CHECK (statements_done >= 0 AND statements_done <= statements_total),
  CONSTRAINT ck_pc_schema_revisions_completed CHECK (completed_at IS NULL OR statements_done = statements_total)
) STRICT;

-- 0000_bootstrap/2_scheduler_leases.sql
CREATE TABLE pc_scheduler_leases (
  lease_name TEXT NOT NULL PRIMARY KEY,
  owner_id TEXT NULL,
  fence INTEGER NOT NULL,
  lease_expires_at INTEGER NULL,
  updated_at INTEGER NOT NULL,
  CONSTRAINT ck_pc_scheduler_leases_fence CHECK (fence >= 0)
) STRICT;

-- 0001_work_ledger/1_work_lanes.sql
CREATE TABLE pc_work_lanes (
  lane_key TEXT NOT NULL PRIMARY KEY,
  head_sequence INTEGER NULL,
  next_sequence INTEGER NOT NULL,
  CONSTRAINT ck_pc_work_lanes_head CHECK (head_sequence IS NULL OR head_sequence > 0),
  CONSTRAINT ck_pc_work_lanes_next CHECK (next_sequence > 0)
) STRICT;

-- 0001_work_ledger/2_work_items.sql
CREATE TABLE pc_work_items (
  work_id TEXT NOT NULL,
  logical_key TEXT NOT NULL,
  lane_key TEXT NOT NULL,
  lane_sequence INTEGER NOT NULL,
  kind TEXT NOT NULL,
  payload_version INTEGER NOT NULL,
  scope_id TEXT NOT NULL,
  payload BLOB NOT NULL,
  status TEXT NOT NULL,
  available_at INTEGER NOT NULL,
  ready_at INTEGER NULL,
  lease_owner TEXT NULL,
  lease_fence INTEGER NOT NULL DEFAULT 0,
  lease_expires_at INTEGER NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  generation_attempt_count INTEGER NOT NULL DEFAULT 0,
  recovery_generation INTEGER NOT NULL DEFAULT 0,
  conflict_streak INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NULL,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  claimed_request_generation INTEGER NULL,
  claimed_dirty INTEGER NULL,
  result_code TEXT NULL,
  result_payload BLOB NULL,
  error_category TEXT NULL,
  error_code TEXT NULL,
  state_version INTEGER NOT NULL DEFAULT 1,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  completed_at INTEGER NULL,
  PRIMARY KEY (work_id),
  CONSTRAINT uq_pc_work_items_lane_sequence UNIQUE (lane_key, lane_sequence),
  CONSTRAINT ck_pc_work_items_status CHECK (status IN ('queued', 'running', 'retry_wait', 'cancelling', 'succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pc_work_items_positive CHECK (lane_sequence > 0 AND payload_version > 0 AND state_version > 0 AND (max_attempts IS NULL OR max_attempts > 0)),
  CONSTRAINT ck_pc_work_items_counters CHECK (lease_fence >= 0 AND attempt_count >= 0 AND generation_attempt_count >= 0 AND recovery_generation >= 0 AND conflict_streak >= 0),
  CONSTRAINT ck_pc_work_items_cancel CHECK (cancel_requested IN (0, 1)),
  CONSTRAINT ck_pc_work_items_ready CHECK (ready_at IS NULL OR status IN ('queued', 'retry_wait')),
  CONSTRAINT ck_pc_work_items_owner CHECK (status NOT IN ('running', 'cancelling') OR (lease_owner IS NOT NULL AND lease_fence > 0)),
  CONSTRAINT ck_pc_work_items_completed CHECK ((completed_at IS NOT NULL) = (status IN ('succeeded', 'cancelled'))),
  CONSTRAINT ck_pc_work_items_error CHECK ((error_category IS NULL) = (error_code IS NULL))
) STRICT;

-- 0001_work_ledger/3_work_items_ready.sql
CREATE INDEX ix_pc_work_items_ready ON pc_work_items (kind, payload_version, ready_at);

-- 0001_work_ledger/4_work_items_lease.sql
CREATE INDEX ix_pc_work_items_lease ON pc_work_items (status, lease_expires_at);

-- 0001_work_ledger/5_work_items_created.sql
CREATE INDEX ix_pc_work_items_created ON pc_work_items (created_at, work_id);

-- 0001_work_ledger/6_work_items_scope_created.sql
CREATE INDEX ix_pc_work_items_scope_created ON pc_work_items (scope_id, created_at, work_id);

-- 0001_work_ledger/7_work_items_completed.sql
CREATE INDEX ix_pc_work_items_completed ON pc_work_items (completed_at);

-- 0001_work_ledger/8_work_keys.sql
CREATE TABLE pc_work_keys (
  logical_key TEXT NOT NULL,
  work_id TEXT NOT NULL,
  lane_key TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (logical_key),
  CONSTRAINT uq_pc_work_keys_work UNIQUE (work_id)
) STRICT;

-- 0001_work_ledger/9_work_attempts.sql
CREATE TABLE pc_work_attempts (
  work_id TEXT NOT NULL,
  attempt_no INTEGER NOT NULL,
  recovery_generation INTEGER NOT NULL,
  owner_id TEXT NOT NULL,
  fence INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  finished_at INTEGER NULL,
  outcome TEXT NULL,
  error_category TEXT NULL,
  error_code TEXT NULL,
  trace_id TEXT NULL,
  span_id TEXT NULL,
  PRIMARY KEY (work_id, attempt_no),
  CONSTRAINT ck_pc_work_attempts_positive CHECK (attempt_no > 0 AND fence > 0 AND recovery_generation >= 0),
  CONSTRAINT ck_pc_work_attempts_outcome CHECK (outcome IS NULL OR outcome IN ('succeeded', 'retry_wait', 'failed', 'cancelled', 'lease_expired_retry', 'lease_expired_failed', 'released', 'conflict')),
  CONSTRAINT ck_pc_work_attempts_finished CHECK ((finished_at IS NULL) = (outcome IS NULL)),
  CONSTRAINT ck_pc_work_attempts_error CHECK ((error_category IS NULL) = (error_code IS NULL)),
  CONSTRAINT ck_pc_work_attempts_trace CHECK ((trace_id IS NULL) = (span_id IS NULL))
) STRICT;

-- 0001_work_ledger/10_work_attempts_finished.sql
CREATE INDEX ix_pc_work_attempts_finished ON pc_work_attempts (finished_at);

-- 0002_sources/1_source_journal_heads.sql
CREATE TABLE pc_source_journal_heads (
  scope_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (scope_id),
  CONSTRAINT ck_pc_source_journal_heads_position CHECK (position >= 0)
) STRICT;

-- 0002_sources/2_sources.sql
CREATE TABLE pc_sources (
  scope_id TEXT NOT NULL,
  source_type TEXT NOT NULL,
  source_id TEXT NOT NULL,
  payload BLOB NOT NULL,
  journal_position INTEGER NOT NULL,
  PRIMARY KEY (scope_id, source_type, source_id),
  CONSTRAINT uq_pc_sources_position UNIQUE (scope_id, journal_position),
  CONSTRAINT ck_pc_sources_position CHECK (journal_position > 0)
) STRICT;

-- 0002_sources/3_source_cursors.sql
CREATE TABLE pc_source_cursors (
  scope_id TEXT NOT NULL,
  binding_name TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (scope_id, binding_name),
  CONSTRAINT ck_pc_source_cursors_sequence CHECK (sequence >= 0),
  CONSTRAINT ck_pc_source_cursors_generation CHECK (generation > 0)
) STRICT;

-- 0002_sources/4_artifact_processing_intents.sql
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
) STRICT;

-- 0002_sources/5_artifact_processing_intents_dirty.sql
CREATE INDEX ix_pc_artifact_processing_intents_dirty ON pc_artifact_processing_intents (binding_name, is_dirty, pending_sequence);

-- 0002_sources/6_artifact_processing_intents_owed.sql
CREATE INDEX ix_pc_artifact_processing_intents_owed ON pc_artifact_processing_intents (binding_name, is_owed, pending_sequence);

-- 0003_memory/1_artifacts.sql
CREATE TABLE pc_artifacts (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  content BLOB NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision),
  CONSTRAINT ck_pc_artifacts_revision CHECK (revision > 0)
) STRICT;

-- 0003_memory/2_artifact_heads.sql
CREATE TABLE pc_artifact_heads (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  searchable_text TEXT NULL,
  lifecycle_state TEXT NOT NULL DEFAULT 'active',
  replacement_artifact_id TEXT NULL,
  governance_generation INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope_id, family, artifact_id),
  CONSTRAINT ck_pc_artifact_heads_revision CHECK (revision > 0),
  CONSTRAINT ck_pc_artifact_heads_lifecycle CHECK (lifecycle_state IN ('active', 'deprecated', 'retired')),
  CONSTRAINT ck_pc_artifact_heads_replacement CHECK (replacement_artifact_id IS NULL OR lifecycle_state = 'deprecated'),
  CONSTRAINT ck_pc_artifact_heads_governance CHECK (governance_generation >= 0),
  CONSTRAINT fk_pc_artifact_heads_revision FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
) STRICT;

-- 0003_memory/3_artifact_lineage_sources.sql
CREATE TABLE pc_artifact_lineage_sources (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  source_type TEXT NOT NULL,
  source_id TEXT NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_sources_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_sources_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_sources_source FOREIGN KEY (scope_id, source_type, source_id) REFERENCES pc_sources (scope_id, source_type, source_id) ON DELETE RESTRICT
) STRICT;

-- 0003_memory/4_artifact_lineage_artifacts.sql
CREATE TABLE pc_artifact_lineage_artifacts (
  scope_id TEXT NOT NULL,
  family TEXT NOT NULL,
  artifact_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  upstream_family TEXT NOT NULL,
  upstream_artifact_id TEXT NOT NULL,
  upstream_revision INTEGER NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_artifacts_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_artifacts_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_artifacts_upstream FOREIGN KEY (scope_id, upstream_family, upstream_artifact_id, upstream_revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
) STRICT;

-- 0003_memory/5_memory_entry_versions.sql
CREATE TABLE pc_memory_entry_versions (
  scope_id TEXT NOT NULL,
  memory_artifact_id TEXT NOT NULL,
  entry_version_id TEXT NOT NULL,
  family TEXT NOT NULL,
  entry_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  previous_version_id TEXT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL,
  source_refs BLOB NOT NULL,
  artifact_refs BLOB NOT NULL,
  entry_content_hash TEXT NOT NULL,
  created_in_revision INTEGER NOT NULL,
  PRIMARY KEY (scope_id, memory_artifact_id, entry_version_id),
  CONSTRAINT uq_pc_memory_entry_versions_scope_version UNIQUE (scope_id, entry_version_id),
  CONSTRAINT ck_pc_memory_entry_versions_version CHECK (version > 0),
  CONSTRAINT ck_pc_memory_entry_versions_previous CHECK (previous_version_id IS NOT NULL OR version = 1),
  CONSTRAINT fk_pc_memory_entry_versions_revision FOREIGN KEY (scope_id, family, memory_artifact_id, created_in_revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
) STRICT;

-- 0003_memory/6_memory_entry_heads.sql
CREATE TABLE pc_memory_entry_heads (
  head_id INTEGER NOT NULL PRIMARY KEY,
  scope_id TEXT NOT NULL,
  memory_artifact_id TEXT NOT NULL,
  entry_id TEXT NOT NULL,
  family TEXT NOT NULL,
  head_revision INTEGER NOT NULL,
  entry_version_id TEXT NOT NULL,
  entry_content_hash TEXT NOT NULL,
  state TEXT NOT NULL,
  searchable_text TEXT NOT NULL,
  CONSTRAINT uq_pc_memory_entry_heads_identity UNIQUE (scope_id, memory_artifact_id, entry_id),
  CONSTRAINT ck_pc_memory_entry_heads_revision CHECK (head_revision > 0),
  CONSTRAINT ck_pc_memory_entry_heads_state CHECK (state IN ('active', 'inactive'))
) STRICT;

-- 0003_memory/7_memory_entry_search.sql
CREATE VIRTUAL TABLE pc_memory_entry_search USING fts5(
  searchable_text,
  content = 'pc_memory_entry_heads',
  content_rowid = 'head_id',
  tokenize = "unicode61 remove_diacritics 0 tokenchars '_'"
);

-- 0003_memory/8_memory_entry_search_insert.sql
CREATE TRIGGER tr_pc_memory_entry_heads_insert AFTER INSERT ON pc_memory_entry_heads BEGIN
  INSERT INTO pc_memory_entry_search (rowid, searchable_text) VALUES (new.head_id, new.searchable_text);
END;

-- 0003_memory/9_memory_entry_search_update.sql
CREATE TRIGGER tr_pc_memory_entry_heads_update AFTER UPDATE OF searchable_text ON pc_memory_entry_heads BEGIN
  INSERT INTO pc_memory_entry_search (pc_memory_entry_search, rowid, searchable_text) VALUES ('delete', old.head_id, old.searchable_text);
  INSERT INTO pc_memory_entry_search (rowid, searchable_text) VALUES (new.head_id, new.searchable_text);
END;

-- 0003_memory/10_memory_entry_search_delete.sql
CREATE TRIGGER tr_pc_memory_entry_heads_delete AFTER DELETE ON pc_memory_entry_heads BEGIN
  INSERT INTO pc_memory_entry_search (pc_memory_entry_search, rowid, searchable_text) VALUES ('delete', old.head_id, old.searchable_text);
END;

-- 0004_rate_limit/1_rate_limit_windows.sql
CREATE TABLE pc_rate_limit_windows (
  principal_key TEXT NOT NULL,
  policy_id TEXT NOT NULL,
  window_started_at INTEGER NOT NULL,
  request_count INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (principal_key, policy_id, window_started_at),
  CONSTRAINT ck_pc_rate_limit_windows_count CHECK (request_count > 0)
) STRICT;

-- 0004_rate_limit/2_rate_limit_windows_expiry.sql
CREATE INDEX ix_pc_rate_limit_windows_expiry ON pc_rate_limit_windows (expires_at);

-- 0005_model_usage/1_model_usage_daily.sql
CREATE TABLE pc_model_usage_daily (
  scope_id TEXT NOT NULL,
  usage_date TEXT NOT NULL,
  purpose TEXT NOT NULL,
  operation TEXT NOT NULL,
  requests INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  input_complete INTEGER NOT NULL,
  output_complete INTEGER NOT NULL,
  PRIMARY KEY (scope_id, usage_date, purpose, operation),
  CONSTRAINT ck_pc_model_usage_daily_operation CHECK (operation IN ('generation', 'embedding')),
  CONSTRAINT ck_pc_model_usage_daily_counts CHECK (requests >= 0 AND input_tokens >= 0 AND output_tokens >= 0)
) STRICT;

-- 0006_processing_supervisor/1_runtime_members.sql
CREATE TABLE pc_runtime_members (
  member_id TEXT NOT NULL,
  role TEXT NOT NULL,
  build_version TEXT NOT NULL,
  schema_min INTEGER NOT NULL,
  schema_max INTEGER NOT NULL,
  payload_min INTEGER NOT NULL,
  payload_max INTEGER NOT NULL,
  behavior_revision TEXT NOT NULL,
  contract_digest TEXT NOT NULL,
  execution_digest TEXT NULL,
  started_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (member_id),
  CONSTRAINT ck_pc_runtime_members_role CHECK (role IN ('all', 'api', 'scheduler', 'worker', 'background')),
  CONSTRAINT ck_pc_runtime_members_schema CHECK (schema_min > 0 AND schema_max >= schema_min),
  CONSTRAINT ck_pc_runtime_members_payload CHECK (payload_min > 0 AND payload_max >= payload_min)
) STRICT;

-- 0006_processing_supervisor/2_artifact_processing_binding_states.sql
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
) STRICT;

-- 0006_processing_supervisor/3_scheduler_scans.sql
CREATE TABLE pc_scheduler_scans (
  discoverer TEXT NOT NULL,
  scan_generation INTEGER NOT NULL,
  after_pending_sequence INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (discoverer),
  CONSTRAINT ck_pc_scheduler_scans_place CHECK (scan_generation > 0 AND after_pending_sequence >= 0)
) STRICT;

-- 0006_processing_supervisor/4_artifact_processing_slots.sql
CREATE TABLE pc_artifact_processing_slots (
  family TEXT NOT NULL,
  slot_no INTEGER NOT NULL,
  work_id TEXT NULL,
  fence INTEGER NULL,
  PRIMARY KEY (family, slot_no),
  CONSTRAINT ck_pc_artifact_processing_slots_number CHECK (slot_no > 0),
  CONSTRAINT ck_pc_artifact_processing_slots_holder CHECK ((work_id IS NULL) = (fence IS NULL))
) STRICT;

-- 0006_processing_supervisor/5_artifact_processing_admitted.sql
CREATE TABLE pc_artifact_processing_admitted (
  binding_name TEXT NOT NULL,
  work_id TEXT NOT NULL,
  PRIMARY KEY (binding_name, work_id)
) STRICT;

-- 0006_processing_supervisor/6_runtime_members_role_expiry.sql
CREATE INDEX ix_pc_runtime_members_role_expiry ON pc_runtime_members (role, expires_at);

-- 0007_work_acts/1_work_acts.sql
CREATE TABLE pc_work_acts (
  work_id TEXT NOT NULL,
  state_version INTEGER NOT NULL,
  act TEXT NOT NULL,
  principal_type TEXT NOT NULL,
  principal_id TEXT NOT NULL,
  acted_at INTEGER NOT NULL,
  PRIMARY KEY (work_id, state_version),
  CONSTRAINT ck_pc_work_acts_act CHECK (act IN ('cancel', 'retry')),
  CONSTRAINT ck_pc_work_acts_version CHECK (state_version > 0)
) STRICT;
