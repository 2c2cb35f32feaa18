CREATE TABLE pc_schema_revisions (
  revision INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  oldest_reader INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  completed_at INTEGER NULL,
  statements_total INTEGER NOT NULL,
  statements_done INTEGER NOT NULL,
  CONSTRAINT ck_pc_schema_revisions_numbers CHECK (revision > 0 AND oldest_reader > 0 AND oldest_reader <= revision),
  CONSTRAINT ck_pc_schema_revisions_progress CHECK (statements_done >= 0 AND statements_done <= statements_total),
  CONSTRAINT ck_pc_schema_revisions_completed CHECK (completed_at IS NULL OR statements_done = statements_total)
) STRICT
