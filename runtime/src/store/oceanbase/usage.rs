//! OceanBase texts of model usage.

use crate::store::usage::UsageSql;

pub(crate) const SQL: UsageSql = UsageSql {
    add: "-- usage.add
INSERT INTO pc_model_usage_daily
  (scope_id, usage_date, purpose, operation, requests, input_tokens, output_tokens, input_complete, output_complete)
VALUES (?, UTC_DATE(), ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
  requests = requests + VALUES(requests),
  input_tokens = input_tokens + VALUES(input_tokens),
  output_tokens = output_tokens + VALUES(output_tokens),
  input_complete = input_complete AND VALUES(input_complete),
  output_complete = output_complete AND VALUES(output_complete)",
};
