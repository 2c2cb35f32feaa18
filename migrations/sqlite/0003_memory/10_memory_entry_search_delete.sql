CREATE TRIGGER tr_pc_memory_entry_heads_delete AFTER DELETE ON pc_memory_entry_heads BEGIN
  INSERT INTO pc_memory_entry_search (pc_memory_entry_search, rowid, searchable_text) VALUES ('delete', old.head_id, old.searchable_text);
END
