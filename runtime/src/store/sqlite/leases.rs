//! SQLite texts of named leases.

use crate::store::leases::LeasesSql;

pub(crate) const SQL: LeasesSql = LeasesSql {
    lock: "-- leases.lock
SELECT owner_id, fence, lease_expires_at FROM pc_scheduler_leases WHERE lease_name = ?",
    create: "-- leases.create
INSERT INTO pc_scheduler_leases (lease_name, owner_id, fence, lease_expires_at, updated_at)
VALUES (?, NULL, 0, NULL, ?)
ON CONFLICT (lease_name) DO NOTHING",
    take: "-- leases.take
UPDATE pc_scheduler_leases
SET owner_id = ?, fence = ?, lease_expires_at = ?, updated_at = ?
WHERE lease_name = ?",
    renew: "-- leases.renew
UPDATE pc_scheduler_leases
SET lease_expires_at = ?, updated_at = ?
WHERE lease_name = ? AND owner_id = ? AND fence = ? AND lease_expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
    release: "-- leases.release
UPDATE pc_scheduler_leases
SET owner_id = NULL, lease_expires_at = ?, updated_at = ?
WHERE lease_name = ? AND owner_id = ? AND fence = ?",
    peek: "-- leases.peek
SELECT owner_id, fence, lease_expires_at FROM pc_scheduler_leases WHERE lease_name = ?",
    assert: "-- leases.assert
UPDATE pc_scheduler_leases
SET updated_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
WHERE lease_name = ? AND owner_id = ? AND fence = ? AND (lease_expires_at IS NULL OR lease_expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))",
    lock_supervisors: "-- leases.lock_supervisors
SELECT lease_name, owner_id, fence, lease_expires_at
FROM pc_scheduler_leases
WHERE lease_name = 'global' OR (lease_name >= 'artifact:' AND lease_name < 'artifact;')
ORDER BY lease_name",
    end_terms: "-- leases.end_terms
UPDATE pc_scheduler_leases
SET owner_id = NULL, fence = fence + 1, lease_expires_at = ?, updated_at = ?
WHERE lease_name = 'global' OR (lease_name >= 'artifact:' AND lease_name < 'artifact;')",
    terms: "-- leases.terms
SELECT lease_name, owner_id, fence, lease_expires_at
FROM pc_scheduler_leases
WHERE lease_name = 'global' OR (lease_name >= 'artifact:' AND lease_name < 'artifact;')
ORDER BY lease_name",
};
