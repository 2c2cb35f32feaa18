-- 0000_bootstrap/1_schema_revisions.sql
CREATE TABLE pc_schema_revisions (
  revision BIGINT NOT NULL,
  name VARBINARY(512) NOT NULL,
  checksum VARBINARY(256) NOT NULL,
  oldest_reader BIGINT NOT NULL,
  started_at DATETIME(6) NOT NULL,
  completed_at DATETIME(6) NULL,
  statements_total BIGINT NOT NULL,
  statements_done BIGINT NOT NULL,
  PRIMARY KEY (revision),
  CONSTRAINT ck_pc_schema_revisions_numbers CHECK (revision > 0 AND oldest_reader > 0 AND oldest_reader <= revision),
  CONSTRAINT ck_pc_schema_revisions_progress CHECK (statements_done >= 0 AND statements_done <= statements_total),
  CONSTRAINT ck_pc_schema_revisions_completed CHECK (completed_at IS NULL OR statements_done = statements_total)
);

-- 0000_bootstrap/2_scheduler_leases.sql
CREATE TABLE pc_scheduler_leases (
  lease_name VARBINARY(256) NOT NULL,
  owner_id VARBINARY(512) NULL,
  fence BIGINT NOT NULL,
  lease_expires_at DATETIME(6) NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (lease_name),
  CONSTRAINT ck_pc_scheduler_leases_fence CHECK (fence >= 0)
);

-- 0001_work_ledger/1_work_lanes.sql
CREATE TABLE pc_work_lanes (
  lane_key VARBINARY(256) NOT NULL,
  head_sequence BIGINT NULL,
  next_sequence BIGINT NOT NULL,
  PRIMARY KEY (lane_key),
  CONSTRAINT ck_pc_work_lanes_head CHECK (head_sequence IS NULL OR head_sequence > 0),
  CONSTRAINT ck_pc_work_lanes_next CHECK (next_sequence > 0)
);

-- 0001_work_ledger/2_work_items.sql
CREATE TABLE pc_work_items (
  work_id VARBINARY(144) NOT NULL,
  logical_key VARBINARY(256) NOT NULL,
  lane_key VARBINARY(256) NOT NULL,
  lane_sequence BIGINT NOT NULL,
  kind VARBINARY(512) NOT NULL,
  payload_version BIGINT NOT NULL,
  scope_id VARBINARY(1024) NOT NULL,
  payload MEDIUMBLOB NOT NULL,
  status VARBINARY(64) NOT NULL,
  available_at DATETIME(6) NOT NULL,
  ready_at DATETIME(6) NULL,
  lease_owner VARBINARY(512) NULL,
  lease_fence BIGINT NOT NULL DEFAULT 0,
  lease_expires_at DATETIME(6) NULL,
  attempt_count BIGINT NOT NULL DEFAULT 0,
  generation_attempt_count BIGINT NOT NULL DEFAULT 0,
  recovery_generation BIGINT NOT NULL DEFAULT 0,
  conflict_streak BIGINT NOT NULL DEFAULT 0,
  max_attempts BIGINT NULL,
  cancel_requested TINYINT(1) NOT NULL DEFAULT 0,
  claimed_request_generation BIGINT NULL,
  claimed_dirty BIGINT NULL,
  result_code VARBINARY(512) NULL,
  result_payload MEDIUMBLOB NULL,
  error_category VARBINARY(256) NULL,
  error_code VARBINARY(512) NULL,
  state_version BIGINT NOT NULL DEFAULT 1,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  completed_at DATETIME(6) NULL,
  PRIMARY KEY (work_id),
  UNIQUE KEY uq_pc_work_items_lane_sequence (lane_key, lane_sequence),
  KEY ix_pc_work_items_ready (kind, payload_version, ready_at),
  KEY ix_pc_work_items_lease (status, lease_expires_at),
  KEY ix_pc_work_items_created (created_at, work_id),
  KEY ix_pc_work_items_scope_created (scope_id, created_at, work_id),
  KEY ix_pc_work_items_completed (completed_at),
  CONSTRAINT ck_pc_work_items_status CHECK (status IN ('queued', 'running', 'retry_wait', 'cancelling', 'succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_pc_work_items_positive CHECK (lane_sequence > 0 AND payload_version > 0 AND state_version > 0 AND (max_attempts IS NULL OR max_attempts > 0)),
  CONSTRAINT ck_pc_work_items_counters CHECK (lease_fence >= 0 AND attempt_count >= 0 AND generation_attempt_count >= 0 AND recovery_generation >= 0 AND conflict_streak >= 0),
  CONSTRAINT ck_pc_work_items_cancel CHECK (cancel_requested IN (0, 1)),
  CONSTRAINT ck_pc_work_items_ready CHECK (ready_at IS NULL OR status IN ('queued', 'retry_wait')),
  CONSTRAINT ck_pc_work_items_owner CHECK (status NOT IN ('running', 'cancelling') OR (lease_owner IS NOT NULL AND lease_fence > 0)),
  CONSTRAINT ck_pc_work_items_completed CHECK ((completed_at IS NOT NULL) = (status IN ('succeeded', 'cancelled'))),
  CONSTRAINT ck_pc_work_items_error CHECK ((error_category IS NULL) = (error_code IS NULL))
);

-- 0001_work_ledger/3_work_keys.sql
CREATE TABLE pc_work_keys (
  logical_key VARBINARY(256) NOT NULL,
  work_id VARBINARY(144) NOT NULL,
  lane_key VARBINARY(256) NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (logical_key),
  UNIQUE KEY uq_pc_work_keys_work (work_id)
);

-- 0001_work_ledger/4_work_attempts.sql
CREATE TABLE pc_work_attempts (
  work_id VARBINARY(144) NOT NULL,
  attempt_no BIGINT NOT NULL,
  recovery_generation BIGINT NOT NULL,
  owner_id VARBINARY(512) NOT NULL,
  fence BIGINT NOT NULL,
  started_at DATETIME(6) NOT NULL,
  heartbeat_at DATETIME(6) NOT NULL,
  finished_at DATETIME(6) NULL,
  outcome VARBINARY(128) NULL,
  error_category VARBINARY(256) NULL,
  error_code VARBINARY(512) NULL,
  trace_id VARBINARY(128) NULL,
  span_id VARBINARY(64) NULL,
  PRIMARY KEY (work_id, attempt_no),
  KEY ix_pc_work_attempts_finished (finished_at),
  CONSTRAINT ck_pc_work_attempts_positive CHECK (attempt_no > 0 AND fence > 0 AND recovery_generation >= 0),
  CONSTRAINT ck_pc_work_attempts_outcome CHECK (outcome IS NULL OR outcome IN ('succeeded', 'retry_wait', 'failed', 'cancelled', 'lease_expired_retry', 'lease_expired_failed', 'released', 'conflict')),
  CONSTRAINT ck_pc_work_attempts_finished CHECK ((finished_at IS NULL) = (outcome IS NULL)),
  CONSTRAINT ck_pc_work_attempts_error CHECK ((error_category IS NULL) = (error_code IS NULL)),
  CONSTRAINT ck_pc_work_attempts_trace CHECK ((trace_id IS NULL) = (span_id IS NULL))
);

-- 0002_sources/1_source_journal_heads.sql
CREATE TABLE pc_source_journal_heads (
  scope_id VARBINARY(1024) NOT NULL,
  position BIGINT NOT NULL,
  PRIMARY KEY (scope_id),
  CONSTRAINT ck_pc_source_journal_heads_position CHECK (position >= 0)
);

-- 0002_sources/2_sources.sql
CREATE TABLE pc_sources (
  scope_id VARBINARY(1024) NOT NULL,
  source_type VARBINARY(512) NOT NULL,
  source_id VARBINARY(1024) NOT NULL,
  payload MEDIUMBLOB NOT NULL,
  journal_position BIGINT NOT NULL,
  PRIMARY KEY (scope_id, source_type, source_id),
  UNIQUE KEY uq_pc_sources_position (scope_id, journal_position),
  CONSTRAINT ck_pc_sources_position CHECK (journal_position > 0)
);

-- 0002_sources/3_source_cursors.sql
CREATE TABLE pc_source_cursors (
  scope_id VARBINARY(1024) NOT NULL,
  binding_name VARBINARY(512) NOT NULL,
  sequence BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  PRIMARY KEY (scope_id, binding_name),
  CONSTRAINT ck_pc_source_cursors_sequence CHECK (sequence >= 0),
  CONSTRAINT ck_pc_source_cursors_generation CHECK (generation > 0)
);

-- 0002_sources/4_artifact_processing_intents.sql
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
);

-- 0003_memory/1_artifacts.sql
CREATE TABLE pc_artifacts (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  content MEDIUMBLOB NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision),
  CONSTRAINT ck_pc_artifacts_revision CHECK (revision > 0)
);

-- 0003_memory/2_artifact_heads.sql
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
);

-- 0003_memory/3_artifact_lineage_sources.sql
CREATE TABLE pc_artifact_lineage_sources (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  ordinal BIGINT NOT NULL,
  source_type VARBINARY(512) NOT NULL,
  source_id VARBINARY(1024) NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_sources_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_sources_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_sources_source FOREIGN KEY (scope_id, source_type, source_id) REFERENCES pc_sources (scope_id, source_type, source_id) ON DELETE RESTRICT
);

-- 0003_memory/4_artifact_lineage_artifacts.sql
CREATE TABLE pc_artifact_lineage_artifacts (
  scope_id VARBINARY(1024) NOT NULL,
  family VARBINARY(512) NOT NULL,
  artifact_id VARBINARY(512) NOT NULL,
  revision BIGINT NOT NULL,
  ordinal BIGINT NOT NULL,
  upstream_family VARBINARY(512) NOT NULL,
  upstream_artifact_id VARBINARY(512) NOT NULL,
  upstream_revision BIGINT NOT NULL,
  PRIMARY KEY (scope_id, family, artifact_id, revision, ordinal),
  CONSTRAINT ck_pc_artifact_lineage_artifacts_ordinal CHECK (ordinal >= 0),
  CONSTRAINT fk_pc_artifact_lineage_artifacts_artifact FOREIGN KEY (scope_id, family, artifact_id, revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT,
  CONSTRAINT fk_pc_artifact_lineage_artifacts_upstream FOREIGN KEY (scope_id, upstream_family, upstream_artifact_id, upstream_revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
);

-- 0003_memory/5_memory_entry_versions.sql
CREATE TABLE pc_memory_entry_versions (
  scope_id VARBINARY(1024) NOT NULL,
  memory_artifact_id VARBINARY(512) NOT NULL,
  entry_version_id VARBINARY(512) NOT NULL,
  family VARBINARY(512) NOT NULL,
  entry_id VARBINARY(512) NOT NULL,
  version BIGINT NOT NULL,
  previous_version_id VARBINARY(512) NULL,
  kind VARBINARY(512) NOT NULL,
  text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  source_refs MEDIUMBLOB NOT NULL,
  artifact_refs MEDIUMBLOB NOT NULL,
  entry_content_hash VARBINARY(256) NOT NULL,
  created_in_revision BIGINT NOT NULL,
  PRIMARY KEY (scope_id, memory_artifact_id, entry_version_id),
  KEY ix_pc_memory_entry_versions_entry (scope_id, memory_artifact_id, entry_id, version),
  UNIQUE KEY uq_pc_memory_entry_versions_scope_version (scope_id, entry_version_id),
  CONSTRAINT ck_pc_memory_entry_versions_version CHECK (version > 0),
  CONSTRAINT ck_pc_memory_entry_versions_previous CHECK (previous_version_id IS NOT NULL OR version = 1),
  CONSTRAINT fk_pc_memory_entry_versions_revision FOREIGN KEY (scope_id, family, memory_artifact_id, created_in_revision) REFERENCES pc_artifacts (scope_id, family, artifact_id, revision) ON DELETE RESTRICT
);

-- 0003_memory/6_memory_entry_heads.sql
CREATE TABLE pc_memory_entry_heads (
  scope_id VARBINARY(1024) NOT NULL,
  memory_artifact_id VARBINARY(512) NOT NULL,
  entry_id VARBINARY(512) NOT NULL,
  family VARBINARY(512) NOT NULL,
  head_revision BIGINT NOT NULL,
  entry_version_id VARBINARY(512) NOT NULL,
  entry_content_hash VARBINARY(256) NOT NULL,
  state VARBINARY(64) NOT NULL,
  searchable_text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (scope_id, memory_artifact_id, entry_id),
  FULLTEXT KEY ft_pc_memory_entry_heads_text (searchable_text) WITH PARSER SPACE,
  CONSTRAINT ck_pc_memory_entry_heads_revision CHECK (head_revision > 0),
  CONSTRAINT ck_pc_memory_entry_heads_state CHECK (state IN ('active', 'inactive'))
);

-- 0004_rate_limit/1_rate_limit_windows.sql
CREATE TABLE pc_rate_limit_windows (
  principal_key VARBINARY(256) NOT NULL,
  policy_id VARBINARY(256) NOT NULL,
  window_started_at DATETIME(6) NOT NULL,
  request_count BIGINT NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  PRIMARY KEY (principal_key, policy_id, window_started_at),
  KEY ix_pc_rate_limit_windows_expiry (expires_at),
  CONSTRAINT ck_pc_rate_limit_windows_count CHECK (request_count > 0)
);

-- 0005_model_usage/1_model_usage_daily.sql
CREATE TABLE pc_model_usage_daily (
  scope_id VARBINARY(1024) NOT NULL,
  usage_date DATE NOT NULL,
  purpose VARBINARY(256) NOT NULL,
  operation VARBINARY(64) NOT NULL,
  requests BIGINT NOT NULL,
  input_tokens BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL,
  input_complete TINYINT(1) NOT NULL,
  output_complete TINYINT(1) NOT NULL,
  PRIMARY KEY (scope_id, usage_date, purpose, operation),
  CONSTRAINT ck_pc_model_usage_daily_operation CHECK (operation IN ('generation', 'embedding')),
  CONSTRAINT ck_pc_model_usage_daily_counts CHECK (requests >= 0 AND input_tokens >= 0 AND output_tokens >= 0)
);

-- 0006_processing_supervisor/1_runtime_members.sql
CREATE TABLE pc_runtime_members (
  member_id VARBINARY(512) NOT NULL,
  role VARBINARY(64) NOT NULL,
  build_version VARBINARY(256) NOT NULL,
  schema_min BIGINT NOT NULL,
  schema_max BIGINT NOT NULL,
  payload_min BIGINT NOT NULL,
  payload_max BIGINT NOT NULL,
  behavior_revision VARBINARY(512) NOT NULL,
  contract_digest VARBINARY(256) NOT NULL,
  execution_digest VARBINARY(256) NULL,
  started_at DATETIME(6) NOT NULL,
  heartbeat_at DATETIME(6) NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  PRIMARY KEY (member_id),
  KEY ix_pc_runtime_members_role_expiry (role, expires_at),
  CONSTRAINT ck_pc_runtime_members_role CHECK (role IN ('all', 'api', 'scheduler', 'worker', 'background')),
  CONSTRAINT ck_pc_runtime_members_schema CHECK (schema_min > 0 AND schema_max >= schema_min),
  CONSTRAINT ck_pc_runtime_members_payload CHECK (payload_min > 0 AND payload_max >= payload_min)
);

-- 0006_processing_supervisor/2_artifact_processing_binding_states.sql
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
);

-- 0006_processing_supervisor/3_scheduler_scans.sql
CREATE TABLE pc_scheduler_scans (
  discoverer VARBINARY(512) NOT NULL,
  scan_generation BIGINT NOT NULL,
  after_pending_sequence BIGINT NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (discoverer),
  CONSTRAINT ck_pc_scheduler_scans_place CHECK (scan_generation > 0 AND after_pending_sequence >= 0)
);

-- 0006_processing_supervisor/4_artifact_processing_slots.sql
CREATE TABLE pc_artifact_processing_slots (
  family VARBINARY(192) NOT NULL,
  slot_no BIGINT NOT NULL,
  work_id VARBINARY(144) NULL,
  fence BIGINT NULL,
  PRIMARY KEY (family, slot_no),
  CONSTRAINT ck_pc_artifact_processing_slots_number CHECK (slot_no > 0),
  CONSTRAINT ck_pc_artifact_processing_slots_holder CHECK ((work_id IS NULL) = (fence IS NULL))
);

-- 0006_processing_supervisor/5_artifact_processing_admitted.sql
CREATE TABLE pc_artifact_processing_admitted (
  binding_name VARBINARY(512) NOT NULL,
  work_id VARBINARY(144) NOT NULL,
  PRIMARY KEY (binding_name, work_id)
);

-- 0007_work_acts/1_work_acts.sql
CREATE TABLE pc_work_acts (
  work_id VARBINARY(144) NOT NULL,
  state_version BIGINT NOT NULL,
  act VARBINARY(64) NOT NULL,
  principal_type VARBINARY(256) NOT NULL,
  principal_id VARBINARY(1020) NOT NULL,
  acted_at DATETIME(6) NOT NULL,
  PRIMARY KEY (work_id, state_version),
  CONSTRAINT ck_pc_work_acts_act CHECK (act IN ('cancel', 'retry')),
  CONSTRAINT ck_pc_work_acts_version CHECK (state_version > 0)
);
