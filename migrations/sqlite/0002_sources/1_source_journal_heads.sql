CREATE TABLE pc_source_journal_heads (
  scope_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (scope_id),
  CONSTRAINT ck_pc_source_journal_heads_position CHECK (position >= 0)
) STRICT
