CREATE TABLE pc_sources (
  scope_id TEXT NOT NULL,
  source_type TEXT NOT NULL,
  source_id TEXT NOT NULL,
  payload BLOB NOT NULL,
  journal_position INTEGER NOT NULL,
  PRIMARY KEY (scope_id, source_type, source_id),
  CONSTRAINT uq_pc_sources_position UNIQUE (scope_id, journal_position),
  CONSTRAINT ck_pc_sources_position CHECK (journal_position > 0)
) STRICT
