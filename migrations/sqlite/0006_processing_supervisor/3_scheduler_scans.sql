CREATE TABLE pc_scheduler_scans (
  discoverer TEXT NOT NULL,
  scan_generation INTEGER NOT NULL,
  after_pending_sequence INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (discoverer),
  CONSTRAINT ck_pc_scheduler_scans_place CHECK (scan_generation > 0 AND after_pending_sequence >= 0)
) STRICT
