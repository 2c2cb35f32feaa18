CREATE TABLE pc_rate_limit_windows (
  principal_key TEXT NOT NULL,
  policy_id TEXT NOT NULL,
  window_started_at INTEGER NOT NULL,
  request_count INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (principal_key, policy_id, window_started_at),
  CONSTRAINT ck_pc_rate_limit_windows_count CHECK (request_count > 0)
) STRICT
