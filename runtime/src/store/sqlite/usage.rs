//! SQLite texts of model usage.

use crate::store::usage::UsageSql;

pub(crate) const SQL: UsageSql = UsageSql {
    add: "-- usage.add
INSERT INTO pc_model_usage_daily
  (scope_id, usage_date, purpose, operation, requests, input_tokens, output_tokens, input_complete, output_complete)
VALUES (?, date('now'), ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope_id, usage_date, purpose, operation) DO UPDATE SET
  requests = requests + excluded.requests,
  input_tokens = input_tokens + excluded.input_tokens,
  output_tokens = output_tokens + excluded.output_tokens,
  input_complete = input_complete AND excluded.input_complete,
  output_complete = output_complete AND excluded.output_complete",
};
