//! SQLite texts of the processes that live.

use crate::store::members::MembersSql;

pub(crate) const SQL: MembersSql = MembersSql {
    announce: "-- members.announce
INSERT INTO pc_runtime_members (member_id, role, build_version, schema_min, schema_max, payload_min, payload_max,
                                behavior_revision, contract_digest, execution_digest, started_at, heartbeat_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (member_id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at",
    beat: "-- members.beat
UPDATE pc_runtime_members SET heartbeat_at = ?, expires_at = ? WHERE member_id = ?",
    live: "-- members.live
SELECT member_id, role, build_version, schema_min, schema_max, payload_min, payload_max, behavior_revision,
       contract_digest, execution_digest, started_at
FROM pc_runtime_members
WHERE expires_at > ?
ORDER BY started_at, member_id
LIMIT ?",
    leave: "-- members.leave
DELETE FROM pc_runtime_members WHERE member_id = ?",
    purge: "-- members.purge
DELETE FROM pc_runtime_members WHERE member_id IN (
  SELECT member_id FROM pc_runtime_members WHERE expires_at < ? LIMIT ?)",
};
