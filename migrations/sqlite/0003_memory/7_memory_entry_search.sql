CREATE VIRTUAL TABLE pc_memory_entry_search USING fts5(
  searchable_text,
  content = 'pc_memory_entry_heads',
  content_rowid = 'head_id',
  tokenize = "unicode61 remove_diacritics 0 tokenchars '_'"
)
