CREATE TABLE pc_work_keys (
  logical_key VARBINARY(256) NOT NULL,
  work_id VARBINARY(144) NOT NULL,
  lane_key VARBINARY(256) NOT NULL,
  created_at DATETIME(6) NOT NULL,
  PRIMARY KEY (logical_key),
  UNIQUE KEY uq_pc_work_keys_work (work_id)
)
