CREATE TABLE pc_memory_entry_heads (
  head_id INTEGER NOT NULL PRIMARY KEY,
  scope_id TEXT NOT NULL,
  memory_artifact_id TEXT NOT NULL,
  entry_id TEXT NOT NULL,
  family TEXT NOT NULL,
  head_revision INTEGER NOT NULL,
  entry_version_id TEXT NOT NULL,
  entry_content_hash TEXT NOT NULL,
  state TEXT NOT NULL,
  searchable_text TEXT NOT NULL,
  CONSTRAINT uq_pc_memory_entry_heads_identity UNIQUE (scope_id, memory_artifact_id, entry_id),
  CONSTRAINT ck_pc_memory_entry_heads_revision CHECK (head_revision > 0),
  CONSTRAINT ck_pc_memory_entry_heads_state CHECK (state IN ('active', 'inactive'))
) STRICT
