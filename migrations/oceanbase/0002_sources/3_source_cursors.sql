CREATE TABLE pc_source_cursors (
  scope_id VARBINARY(1024) NOT NULL,
  binding_name VARBINARY(512) NOT NULL,
  sequence BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  PRIMARY KEY (scope_id, binding_name),
  CONSTRAINT ck_pc_source_cursors_sequence CHECK (sequence >= 0),
  CONSTRAINT ck_pc_source_cursors_generation CHECK (generation > 0)
)
