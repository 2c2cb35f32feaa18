CREATE TABLE pc_scheduler_leases (
  lease_name VARBINARY(256) NOT NULL,
  owner_id VARBINARY(512) NULL,
  fence BIGINT NOT NULL,
  lease_expires_at DATETIME(6) NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (lease_name),
  CONSTRAINT ck_pc_scheduler_leases_fence CHECK (fence >= 0)
)
