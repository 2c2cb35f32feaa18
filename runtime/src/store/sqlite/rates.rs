//! SQLite texts of the request limit's windows.

use crate::store::rates::RatesSql;

pub(crate) const SQL: RatesSql = RatesSql {
    take: "-- rates.take
UPDATE pc_rate_limit_windows SET request_count = request_count + 1
WHERE principal_key = ? AND policy_id = ?
  AND window_started_at = unixepoch() / ? * ? * 1000000
  AND request_count < ?",
    read: "-- rates.read
SELECT request_count FROM pc_rate_limit_windows
WHERE principal_key = ? AND policy_id = ? AND window_started_at = ?",
    open: "-- rates.open
INSERT INTO pc_rate_limit_windows (principal_key, policy_id, window_started_at, request_count, expires_at)
VALUES (?, ?, ?, 1, ?)",
    purge: "-- rates.purge
DELETE FROM pc_rate_limit_windows WHERE rowid IN (
  SELECT rowid FROM pc_rate_limit_windows WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
};
