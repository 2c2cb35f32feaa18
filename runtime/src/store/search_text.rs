//! How tokens of the analyzer are spelled inside the search indexes (ADR 0008).
//!
//! The analyzer knows words; this module knows what the two engines do to them. OceanBase's SPACE parser drops tokens
//! under 3 and over 84 characters and a list of stop words, and folds case and accents; FTS5 has operators. So each token
//! is stored as lower-case ASCII of 10 to 73 characters that no engine changes, and a query is spelled the same way. Each
//! begins with a tag of its scope: a search reads the postings of one scope, however large the others are, and its
//! scores tell nothing about them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use powercontext_core::ids::ScopeId;
use sha2::{Digest, Sha256};

/// Most distinct tokens of one query; the rest of it is not searched for.
pub const QUERY_TOKENS_MAX: usize = 64;
/// Longest token, in bytes of its spelling without the scope's tag, before a digest replaces it.
const SPELLING_BYTES_MAX: usize = 64;
/// Bytes of the scope's digest that make its tag; two scopes of one tag are told apart by the `scope_id` column.
const TAG_BYTES: usize = 4;

/// The search statement of an engine. Bind query, scope, query again and the highest number of hits; it answers
/// `entry_id`, `entry_version_id` and `score` (a float; larger is better) of active entries, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchSql {
    /// The statement.
    pub search: &'static str,
}

/// For OceanBase. The query must be bound as text, not as bytes.
pub const OCEANBASE: SearchSql = SearchSql {
    search: "-- memory_entries.search
SELECT entry_id, entry_version_id,
       MATCH (searchable_text) AGAINST (? IN NATURAL LANGUAGE MODE) AS score
FROM pc_memory_entry_heads
WHERE scope_id = ? AND state = 'active'
  AND MATCH (searchable_text) AGAINST (? IN NATURAL LANGUAGE MODE)
ORDER BY score DESC, entry_id
LIMIT ?",
};

/// For SQLite. `CROSS JOIN` keeps the order of the tables: the planner would walk the heads of the scope and ask the index
/// once for each.
pub const SQLITE: SearchSql = SearchSql {
    search: "-- memory_entries.search
SELECT head.entry_id, head.entry_version_id, -bm25(pc_memory_entry_search) AS score
FROM pc_memory_entry_search
CROSS JOIN pc_memory_entry_heads AS head ON head.head_id = pc_memory_entry_search.rowid
WHERE pc_memory_entry_search MATCH ?1 AND head.scope_id = ?2 AND head.state = 'active'
ORDER BY score DESC, head.entry_id
LIMIT ?4",
};

/// What the column `searchable_text` holds for the tokens of one entry, in either engine.
pub fn stored_form(scope: &ScopeId, tokens: &[String]) -> String {
    let tag = tag(scope);
    let mut text = String::new();
    for token in tokens.iter().filter(|token| !token.is_empty()) {
        if !text.is_empty() {
            text.push(' ');
        }
        spell(&mut text, &tag, token);
    }
    text
}

/// The query for OceanBase that finds entries holding at least one of the tokens; `None` when there is nothing to find.
pub fn oceanbase_query(scope: &ScopeId, tokens: &[String]) -> Option<String> {
    let spelled = query_tokens(scope, tokens);
    (!spelled.is_empty()).then(|| spelled.join(" "))
}

/// The query for SQLite that finds entries holding at least one of the tokens; `None` when there is nothing to find.
pub fn sqlite_query(scope: &ScopeId, tokens: &[String]) -> Option<String> {
    let spelled = query_tokens(scope, tokens);
    // Quoted, so that no token can be an operator; the spelling holds no quote.
    (!spelled.is_empty()).then(|| format!("\"{}\"", spelled.join("\" OR \"")))
}

fn query_tokens(scope: &ScopeId, tokens: &[String]) -> Vec<String> {
    let tag = tag(scope);
    let mut seen = BTreeSet::new();
    tokens
        .iter()
        .filter(|token| !token.is_empty() && seen.insert(token.as_str()))
        .take(QUERY_TOKENS_MAX)
        .map(|token| {
            let mut text = String::new();
            spell(&mut text, &tag, token);
            text
        })
        .collect()
}

fn tag(scope: &ScopeId) -> String {
    let mut tag = String::with_capacity(2 * TAG_BYTES);
    hex(&mut tag, &Sha256::digest(scope.as_str())[..TAG_BYTES]);
    tag
}

/// Tag, then `_` and the token itself, or `x` and its bytes, or `h` and half of its digest when those are too long.
fn spell(text: &mut String, tag: &str, token: &str) {
    text.push_str(tag);
    let plain = token
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if plain && token.len() <= SPELLING_BYTES_MAX {
        text.push('_');
        text.push_str(token);
    } else if !plain && 2 * token.len() <= SPELLING_BYTES_MAX {
        text.push('x');
        hex(text, token.as_bytes());
    } else {
        text.push('h');
        hex(text, &Sha256::digest(token)[..16]);
    }
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str) -> ScopeId {
        ScopeId::parse(name).expect("a scope")
    }

    fn tokens(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn tokens_are_spelled_as_ascii_that_no_engine_drops_or_folds() {
        let long = "y".repeat(64);
        let longer = "y".repeat(65);
        let words = tokens(&[
            "a",
            "the",
            "snake_case",
            "東",
            "東京",
            "é",
            &long,
            &longer,
            &"記".repeat(11),
        ]);
        let stored = stored_form(&scope("s"), &words);
        assert_eq!(stored.split(' ').count(), words.len());
        for spelled in stored.split(' ') {
            assert!((10..=73).contains(&spelled.len()), "{spelled}");
            assert!(
                spelled
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
        }
        let distinct: BTreeSet<_> = stored.split(' ').collect();
        assert_eq!(distinct.len(), words.len());
        assert!(stored.contains("_the ") && stored.contains("xe69db1 ") && stored.contains("xe69db1e4baac "));
    }

    #[test]
    fn a_word_that_looks_like_an_encoded_one_stays_another_word() {
        let stored = stored_form(&scope("s"), &tokens(&["東", "xe69db1", "E"]));
        let distinct: BTreeSet<_> = stored.split(' ').collect();
        assert_eq!(distinct.len(), 3);
    }

    #[test]
    fn two_scopes_share_no_token() {
        assert_ne!(
            stored_form(&scope("a"), &tokens(&["cat"])),
            stored_form(&scope("b"), &tokens(&["cat"]))
        );
    }

    #[test]
    fn a_query_names_each_token_once_and_at_most_the_limit() {
        let words = tokens(&["cat", "or", "cat"]);
        let plain = oceanbase_query(&scope("s"), &words).expect("two tokens");
        assert_eq!(plain.split(' ').count(), 2);
        assert_eq!(
            sqlite_query(&scope("s"), &words).expect("two tokens"),
            format!("\"{}\"", plain.replace(' ', "\" OR \""))
        );
        for (given, searched) in [
            (QUERY_TOKENS_MAX, QUERY_TOKENS_MAX),
            (QUERY_TOKENS_MAX + 1, QUERY_TOKENS_MAX),
        ] {
            let many: Vec<_> = (0..given).map(|n| n.to_string()).collect();
            let query = oceanbase_query(&scope("s"), &many).expect("tokens");
            assert_eq!(query.split(' ').count(), searched);
        }
    }

    #[test]
    fn nothing_to_search_for_is_no_query() {
        assert_eq!(oceanbase_query(&scope("s"), &[]), None);
        assert_eq!(sqlite_query(&scope("s"), &tokens(&[""])), None);
        assert_eq!(
            stored_form(&scope("s"), &tokens(&["", "a", ""])).matches(' ').count(),
            0
        );
    }
}
