CREATE TABLE pc_schema_revisions (
  revision BIGINT NOT NULL,
  name VARBINARY(512) NOT NULL,
  checksum VARBINARY(256) NOT NULL,
  oldest_reader BIGINT NOT NULL,
  started_at DATETIME(6) NOT NULL,
  completed_at DATETIME(6) NULL,
  statements_total BIGINT NOT NULL,
  statements_done BIGINT NOT NULL,
  PRIMARY KEY (revision),
  CONSTRAINT ck_pc_schema_revisions_numbers CHECK (revision > 0 AND oldest_reader > 0 AND oldest_reader <= revision),
  CONSTRAINT ck_pc_schema_revisions_progress CHECK (statements_done >= 0 AND statements_done <= statements_total),
  CONSTRAINT ck_pc_schema_revisions_completed CHECK (completed_at IS NULL OR statements_done = statements_total)
)
