CREATE TRIGGER tr_pc_memory_entry_heads_update AFTER UPDATE OF searchable_text ON pc_memory_entry_heads BEGIN
  INSERT INTO pc_memory_entry_search (pc_memory_entry_search, rowid, searchable_text) VALUES ('delete', old.head_id, old.searchable_text);
  INSERT INTO pc_memory_entry_search (rowid, searchable_text) VALUES (new.head_id, new.searchable_text);
END
