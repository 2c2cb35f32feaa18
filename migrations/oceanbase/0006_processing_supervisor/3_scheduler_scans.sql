CREATE TABLE pc_scheduler_scans (
  discoverer VARBINARY(512) NOT NULL,
  scan_generation BIGINT NOT NULL,
  after_pending_sequence BIGINT NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (discoverer),
  CONSTRAINT ck_pc_scheduler_scans_place CHECK (scan_generation > 0 AND after_pending_sequence >= 0)
)
