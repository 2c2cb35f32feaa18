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
) STRICT
