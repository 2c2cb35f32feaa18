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
) STRICT
