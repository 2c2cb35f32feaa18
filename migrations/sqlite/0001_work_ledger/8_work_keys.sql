CREATE TABLE pc_work_keys (
  logical_key TEXT NOT NULL,
  work_id TEXT NOT NULL,
  lane_key TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (logical_key),
  CONSTRAINT uq_pc_work_keys_work UNIQUE (work_id)
) STRICT
