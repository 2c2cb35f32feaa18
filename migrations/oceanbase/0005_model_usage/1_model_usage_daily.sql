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
)
