CREATE TABLE pc_source_cursors (
  scope_id TEXT NOT NULL,
  binding_name TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (scope_id, binding_name),
  CONSTRAINT ck_pc_source_cursors_sequence CHECK (sequence >= 0),
  CONSTRAINT ck_pc_source_cursors_generation CHECK (generation > 0)
) STRICT
