CREATE TABLE pc_memory_entry_heads (
  scope_id VARBINARY(1024) NOT NULL,
  memory_artifact_id VARBINARY(512) NOT NULL,
  entry_id VARBINARY(512) NOT NULL,
  family VARBINARY(512) NOT NULL,
  head_revision BIGINT NOT NULL,
  entry_version_id VARBINARY(512) NOT NULL,
  entry_content_hash VARBINARY(256) NOT NULL,
  state VARBINARY(64) NOT NULL,
  searchable_text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (scope_id, memory_artifact_id, entry_id),
  FULLTEXT KEY ft_pc_memory_entry_heads_text (searchable_text) WITH PARSER SPACE,
  CONSTRAINT ck_pc_memory_entry_heads_revision CHECK (head_revision > 0),
  CONSTRAINT ck_pc_memory_entry_heads_state CHECK (state IN ('active', 'inactive'))
)
