CREATE TABLE pc_sources (
  scope_id VARBINARY(1024) NOT NULL,
  source_type VARBINARY(512) NOT NULL,
  source_id VARBINARY(1024) NOT NULL,
  payload MEDIUMBLOB NOT NULL,
  journal_position BIGINT NOT NULL,
  PRIMARY KEY (scope_id, source_type, source_id),
  UNIQUE KEY uq_pc_sources_position (scope_id, journal_position),
  CONSTRAINT ck_pc_sources_position CHECK (journal_position > 0)
)
