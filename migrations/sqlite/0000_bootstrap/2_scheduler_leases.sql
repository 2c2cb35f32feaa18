CREATE TABLE pc_scheduler_leases (
  lease_name TEXT NOT NULL PRIMARY KEY,
  owner_id TEXT NULL,
  fence INTEGER NOT NULL,
  lease_expires_at INTEGER NULL,
  updated_at INTEGER NOT NULL,
  CONSTRAINT ck_pc_scheduler_leases_fence CHECK (fence >= 0)
) STRICT
