//! Search analyzer v1: text to tokens, the same for entries and for queries.
//!
//! NFC, full case folding, then runs of letters, digits and underscores. A run in a script written without spaces
//! (Chinese, Japanese, and Korean with them) becomes its single characters and its pairs, so that a word inside a
//! sentence is found without a dictionary. How a database stores tokens is `store`'s affair. Changing anything here
//! needs a new analyzer version and a rebuilt index.

use caseless::Caseless as _;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// Most tokens of one text; a query of 8192 CJK characters has 16,383.
pub const TOKENS_MAX: usize = 16_384;
/// Longest token, in characters; a longer word is cut, in entries and queries alike.
pub const TOKEN_CHARS_MAX: usize = 64;

/// The tokens of a text in reading order, repeated ones included, at most [`TOKENS_MAX`].
pub fn tokens(text: &str) -> Vec<String> {
    let folded: Vec<char> = text.nfc().default_case_fold().nfc().collect();
    let mut out = Vec::new();
    let mut rest = folded.as_slice();
    while let Some(&first) = rest.first() {
        if out.len() >= TOKENS_MAX {
            break;
        }
        let run = match Class::of(first) {
            Class::Other => 1,
            Class::Word => {
                let run = run_length(rest, Class::Word);
                out.push(rest[..run.min(TOKEN_CHARS_MAX)].iter().collect());
                run
            }
            Class::Cjk => {
                let run = run_length(rest, Class::Cjk);
                push_cjk(&rest[..run], &mut out);
                run
            }
        };
        rest = &rest[run..];
    }
    out.truncate(TOKENS_MAX);
    out
}

fn push_cjk(run: &[char], out: &mut Vec<String>) {
    for (i, c) in run.iter().enumerate() {
        if out.len() >= TOKENS_MAX {
            return;
        }
        out.push(c.to_string());
        if let Some(next) = run.get(i + 1) {
            out.push([*c, *next].iter().collect());
        }
    }
}

/// Length of the run at the start of `rest`; a mark belongs to the letter before it.
fn run_length(rest: &[char], class: Class) -> usize {
    rest.iter()
        .enumerate()
        .take_while(|&(i, &c)| Class::of(c) == class || (i > 0 && class == Class::Word && is_combining_mark(c)))
        .count()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    Cjk,
    Other,
}

impl Class {
    fn of(c: char) -> Self {
        if is_cjk(c) {
            Self::Cjk
        } else if c == '_' || c.is_alphanumeric() {
            Self::Word
        } else {
            Self::Other
        }
    }
}

/// Han, Kana, Bopomofo and Hangul letters, their iteration and length marks, and the half-width forms.
fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{3005}'..='\u{3007}' | '\u{3031}'..='\u{3035}' | '\u{303b}' | '\u{303c}'
        | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}'
        | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
        | '\u{3105}'..='\u{312f}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}'
        | '\u{1100}'..='\u{11ff}' | '\u{3131}'..='\u{318e}' | '\u{a960}'..='\u{a97c}'
        | '\u{ac00}'..='\u{d7a3}' | '\u{d7b0}'..='\u{d7fb}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}' | '\u{ffa0}'..='\u{ffdc}'
        | '\u{1b000}'..='\u{1b16f}' | '\u{20000}'..='\u{323af}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_letters_digits_and_underscores_without_case() {
        let table: [(&str, &[&str]); 10] = [
            ("", &[]),
            (" .,!—\n", &[]),
            (
                "Deploy on Friday, at 17:30",
                &["deploy", "on", "friday", "at", "17", "30"],
            ),
            ("max_retries=5", &["max_retries", "5"]),
            ("don't", &["don", "t"]),
            ("STRASSE Straße", &["strasse", "strasse"]),
            ("ΣΊΣΥΦΟΣ σίσυφος", &["σίσυφοσ", "σίσυφοσ"]),
            ("caf\u{e9} CAFE\u{301}", &["caf\u{e9}", "caf\u{e9}"]),
            ("हिन्दी", &["हिन्दी"]),
            ("Привет, Мир", &["привет", "мир"]),
        ];
        for (text, expected) in table {
            assert_eq!(tokens(text), expected, "{text:?}");
        }
    }

    #[test]
    fn cjk_runs_become_characters_and_pairs() {
        let table: [(&str, &[&str]); 7] = [
            ("猫", &["猫"]),
            ("東京都", &["東", "東京", "京", "京都", "都"]),
            ("東京、京都", &["東", "東京", "京", "京", "京都", "都"]),
            ("v2版API", &["v2", "版", "api"]),
            ("コーヒー", &["コ", "コー", "ー", "ーヒ", "ヒ", "ヒー", "ー"]),
            ("한국", &["한", "한국", "국"]),
            ("人々", &["人", "人々", "々"]),
        ];
        for (text, expected) in table {
            assert_eq!(tokens(text), expected, "{text:?}");
        }
        // Decomposed kana and jamo compose before they are cut.
        assert_eq!(tokens("か\u{3099}"), ["が"]);
        assert_eq!(tokens("\u{1112}\u{1161}\u{11ab}"), ["한"]);
    }

    #[test]
    fn a_query_inside_a_sentence_shares_its_pairs() {
        let entry = tokens("会議は毎週金曜日に決めました");
        assert!(tokens("金曜日").iter().all(|token| entry.contains(token)));
    }

    #[test]
    fn tokens_are_bounded_in_number_and_length() {
        assert_eq!(tokens(&"a".repeat(1000)), ["a".repeat(64)]);
        assert_eq!(tokens(&"a ".repeat(20_000)).len(), TOKENS_MAX);
        assert_eq!(tokens(&"記".repeat(8192)).len(), 16_383);
        assert_eq!(tokens(&"記".repeat(9000)).len(), TOKENS_MAX);
    }

    proptest! {
        #[test]
        fn analysing_a_token_again_finds_it_again(text in "\\PC{0,60}") {
            for token in tokens(&text) {
                prop_assert!(tokens(&token).contains(&token), "{:?}", token);
                prop_assert!(token.chars().count() <= TOKEN_CHARS_MAX);
            }
        }

        #[test]
        fn composed_and_decomposed_text_have_the_same_tokens(text in "\\PC{0,60}") {
            let decomposed: String = text.nfd().collect();
            prop_assert_eq!(tokens(&text), tokens(&decomposed));
        }
    }
}
