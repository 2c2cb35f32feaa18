//! Rust text to words, as far as finding paths needs it.
//!
//! A whole parser would not look into macros; this does. Comments, strings and characters are left out, so that prose
//! cannot be taken for an import.

/// An identifier, or one character of punctuation, and the line it stands in (from 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// A path that starts at a root such as `crate`, with the segment that follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) segment: &'a str,
    pub(crate) line: usize,
}

/// Splits a text into words.
pub(crate) fn words(text: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(c) = text[at..].chars().next() {
        let length = skipped(&text[at..], c).unwrap_or_else(|| {
            let length = if is_ident(c) {
                text[at..].find(|c| !is_ident(c)).unwrap_or(text.len() - at)
            } else {
                c.len_utf8()
            };
            found.push(Word {
                text: &text[at..at + length],
                line,
            });
            length
        });
        line += text[at..at + length].matches('\n').count();
        at += length;
    }
    found
}

/// The first segments after `root::`, groups included: `root::{a, b::c}` has two. `$root` counts like `root`.
pub(crate) fn heads<'a>(words: &[Word<'a>], root: &str) -> Vec<Head<'a>> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let continues_a_path = at >= 2 && words[at - 1].text == ":" && words[at - 2].text == ":";
        // `a::root` is another thing, `::root` is the crate of that name.
        let continues_a_path = continues_a_path && at >= 3 && words[at - 3].text.starts_with(is_ident);
        if word.text == root && !continues_a_path {
            found.extend(after(words, at + 1));
        }
    }
    found
}

/// The segments that follow the word before `at`, when `::` does.
pub(crate) fn after<'a>(words: &[Word<'a>], at: usize) -> Vec<Head<'a>> {
    let text = |i: usize| words.get(i).map_or("", |word| word.text);
    if (text(at), text(at + 1)) != (":", ":") {
        return Vec::new();
    }
    let is_segment = |i: usize| text(i).starts_with(is_ident);
    let head = |i: usize| Head {
        segment: words[i].text,
        line: words[i].line,
    };
    if text(at + 2) != "{" {
        return is_segment(at + 2).then(|| head(at + 2)).into_iter().collect();
    }
    let (mut found, mut depth) = (Vec::new(), 0_usize);
    for i in at + 2..words.len() {
        let starts_an_item = depth == 1 && matches!(text(i - 1), "{" | ",");
        match text(i) {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            _ if starts_an_item && is_segment(i) => found.push(head(i)),
            _ => {}
        }
    }
    found
}

fn is_ident(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Length of what carries no words: blanks, comments, strings, characters. `None` where a word begins.
fn skipped(rest: &str, first: char) -> Option<usize> {
    if first.is_whitespace() {
        return Some(first.len_utf8());
    }
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if let Some(length) = raw_string(rest) {
        return Some(length);
    }
    match first {
        '"' => Some(quoted(rest, '"')),
        // `'a'` and `'\n'` are characters; in `'a` only the tick is left out, the name is harmless.
        '\'' if rest[1..].starts_with('\\') || rest[1..].chars().nth(1) == Some('\'') => Some(quoted(rest, '\'')),
        '\'' => Some(1),
        _ => None,
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        match (tail.starts_with(b"/*"), tail.starts_with(b"*/")) {
            (true, _) => (depth, at) = (depth + 1, at + 2),
            (_, true) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    while !rest.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// `r"…"`, `br##"…"##`: ends at a quote with as many hashes; a backslash means nothing in it.
fn raw_string(rest: &str) -> Option<usize> {
    let after_r = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = after_r.bytes().take_while(|b| *b == b'#').count();
    let body = after_r[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = rest.len() - body.len();
    Some(
        body.find(&end)
            .map_or(rest.len(), |length| opening + length + end.len()),
    )
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments<'a>(text: &'a str, root: &str) -> Vec<&'a str> {
        heads(&words(text), root).into_iter().map(|head| head.segment).collect()
    }

    #[test]
    fn paths_are_found_in_uses_expressions_and_macros() {
        let text = "use crate::store::tx; fn f() { crate::ledger::g(); assert!(crate::rt::now() == 1) }";
        assert_eq!(segments(text, "crate"), ["store", "ledger", "rt"]);
    }

    #[test]
    fn a_group_names_each_of_its_first_segments() {
        let text = "use crate::{api::{self, v1::{a, b}}, rt, store as s};\nuse crate::families;";
        assert_eq!(segments(text, "crate"), ["api", "rt", "store", "families"]);
        assert_eq!(heads(&words(text), "crate").last().map(|head| head.line), Some(2));
    }

    #[test]
    fn comments_strings_and_characters_are_no_paths() {
        let text = r##"
            // crate::a
            /* crate::b /* crate::c */ crate::d ü */
            let x = "crate::e \" crate::f"; let y = r#"crate::g " crate::h"#; let z = ('"', '\'', 'ü', b'"');
            fn f<'crate_like>(pub_: &'crate_like str) { crate::real::g() }
        "##;
        assert_eq!(segments(text, "crate"), ["real"]);
    }

    #[test]
    fn a_name_inside_another_path_is_not_a_root() {
        assert_eq!(
            segments("a::tokio::b; tokio::c; ::tokio::d; pub(crate) fn g() {}", "tokio"),
            ["c", "d"]
        );
        assert!(segments("pub(crate) fn g() {}", "crate").is_empty());
    }
}
