CREATE TABLE pc_source_journal_heads (
  scope_id VARBINARY(1024) NOT NULL,
  position BIGINT NOT NULL,
  PRIMARY KEY (scope_id),
  CONSTRAINT ck_pc_source_journal_heads_position CHECK (position >= 0)
)
