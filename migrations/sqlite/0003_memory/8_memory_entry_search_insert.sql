CREATE TRIGGER tr_pc_memory_entry_heads_insert AFTER INSERT ON pc_memory_entry_heads BEGIN
  INSERT INTO pc_memory_entry_search (rowid, searchable_text) VALUES (new.head_id, new.searchable_text);
END
