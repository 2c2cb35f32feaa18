CREATE TABLE pc_rate_limit_windows (
  principal_key VARBINARY(256) NOT NULL,
  policy_id VARBINARY(256) NOT NULL,
  window_started_at DATETIME(6) NOT NULL,
  request_count BIGINT NOT NULL,
  expires_at DATETIME(6) NOT NULL,
  PRIMARY KEY (principal_key, policy_id, window_started_at),
  KEY ix_pc_rate_limit_windows_expiry (expires_at),
  CONSTRAINT ck_pc_rate_limit_windows_count CHECK (request_count > 0)
)
