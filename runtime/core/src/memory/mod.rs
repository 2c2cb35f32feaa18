//! What a Memory is, and every decision about one: entries, revisions, plans, search tokens.
