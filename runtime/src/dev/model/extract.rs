//! The deterministic model's idea of what is worth remembering: sentences that hold certain words.
//!
//! Each kind has a list of words in several languages. The best sentences of a window, in the order of the kinds, become
//! candidates; each quotes its evidence and cites it. A sentence about the same thing as an active entry revises that entry.
//! If no sentence holds such a word, the first one that is no small talk becomes a working note, so that any input worth the
//! name leaves something behind; small talk alone leaves nothing.

use std::collections::BTreeSet;

use powercontext_core::memory::analyzer::tokens;
use serde_json::{Value, json};

/// Most candidates of one window.
const CANDIDATES_MAX: usize = 12;
/// Longest quoted sentence, in characters.
const QUOTE_CHARS_MAX: usize = 400;
/// Longest name before a colon that counts as the speaker's, in characters.
const SPEAKER_CHARS_MAX: usize = 24;

/// Kinds in order of their weight, each with the words that mark it, folded.
const MARKS: [(&str, &[&str]); 5] = [
    (
        "decision",
        &[
            "decided",
            "decide to",
            "we agreed",
            "agreed to",
            "settled on",
            "let's go with",
            "we will use",
            "we'll use",
            "going with",
            "beschlossen",
            "entschieden",
            "avons décidé",
            "hemos decidido",
            "решили",
            "決め",
            "決定",
            "採用",
            "にしましょう",
            "决定",
            "采用",
            "定了",
            "결정",
        ],
    ),
    (
        "constraint",
        &[
            "must",
            "never",
            "always",
            "do not ",
            "don't ever",
            "deadline",
            "not allowed",
            "required",
            "no later than",
            "at most",
            "at least",
            "niemals",
            "immer",
            "muss ",
            "jamais",
            "toujours",
            "doit ",
            "nunca",
            "siempre",
            "debe ",
            "нельзя",
            "всегда",
            "必ず",
            "禁止",
            "しないで",
            "してはいけ",
            "締め切り",
            "締切",
            "期限",
            "必须",
            "不能",
            "不要",
            "截止",
            "반드시",
            "마감",
        ],
    ),
    (
        "preference",
        &[
            "prefer",
            "i like",
            "i love",
            "favourite",
            "favorite",
            "i'd rather",
            "i hate",
            "allergic",
            "bevorzug",
            "lieber",
            "préfère",
            "prefiero",
            "предпочита",
            "好き",
            "好み",
            "嫌い",
            "苦手",
            "喜欢",
            "偏好",
            "讨厌",
            "좋아",
            "선호",
        ],
    ),
    (
        "working_note",
        &[
            "todo",
            "to do:",
            "follow up",
            "remind",
            "next step",
            "remember to",
            "don't forget",
            "до завтра",
            "覚えて",
            "忘れない",
            "やること",
            "宿題",
            "记得",
            "别忘",
            "待办",
            "잊지",
        ],
    ),
    (
        "fact",
        &[
            "remember",
            "my name",
            "is called",
            "runs on",
            "lives in",
            "live in",
            "works at",
            "work at",
            "listens on",
            "birthday",
            "located",
            "moved to",
            "version",
            "port ",
            "wohnt",
            "heiße",
            "habite",
            "vivo en",
            "зовут",
            "住んで",
            "名前",
            "誕生日",
            "引っ越",
            "勤め",
            "です",
            "住在",
            "生日",
            "名字",
            "版本",
            "이름",
            "살아",
        ],
    ),
];

/// Whole sentences, folded and without punctuation, that say nothing.
const SMALL_TALK: [&str; 24] = [
    "hello",
    "hi",
    "hi there",
    "hey",
    "thanks",
    "thank you",
    "ok",
    "okay",
    "yes",
    "no",
    "bye",
    "good morning",
    "hallo",
    "danke",
    "merci",
    "bonjour",
    "hola",
    "gracias",
    "こんにちは",
    "ありがとう",
    "はい",
    "你好",
    "谢谢",
    "好的",
];

/// Words that say nothing about what a sentence is about.
const STOP_WORDS: [&str; 36] = [
    "a", "an", "the", "we", "i", "you", "it", "is", "are", "was", "to", "on", "in", "at", "of", "for", "and", "or",
    "our", "my", "your", "that", "this", "with", "be", "will", "from", "by", "as", "not", "no", "have", "has", "do",
    "now", "so",
];

struct Sentence {
    text: String,
    evidence_ids: Vec<String>,
    kind: &'static str,
    weight: usize,
}

/// The answer to an extraction input.
pub(super) fn answer(input: &Value) -> Value {
    let evidence = input["evidence"].as_array().map_or(&[][..], Vec::as_slice);
    let entries = input["current_entries"].as_array().map_or(&[][..], Vec::as_slice);
    let mut found = marked(evidence);
    if found.is_empty() {
        found.extend(first_plain(evidence));
    }
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|&i| (found[i].weight, i));
    order.truncate(CANDIDATES_MAX);
    order.sort_unstable();
    let mut revised = BTreeSet::new();
    let candidates: Vec<Value> = order
        .into_iter()
        .filter_map(|i| candidate(&found[i], entries, &mut revised))
        .collect();
    json!({"candidates": candidates})
}

fn candidate(sentence: &Sentence, entries: &[Value], revised: &mut BTreeSet<String>) -> Option<Value> {
    let text = |entry: &Value| entry["text"].as_str().unwrap_or_default().to_owned();
    if entries.iter().any(|entry| text(entry) == sentence.text) {
        return None;
    }
    let target = entries
        .iter()
        .filter(|entry| entry["kind"] == sentence.kind && same_subject(&text(entry), &sentence.text))
        .filter_map(|entry| entry["entry_id"].as_str())
        .find(|id| !revised.contains(*id));
    let mut candidate = json!({
        "intent": "add",
        "kind": sentence.kind,
        "text": sentence.text,
        "evidence_ids": sentence.evidence_ids,
    });
    if let Some(id) = target {
        revised.insert(id.to_owned());
        candidate["intent"] = json!("revise");
        candidate["entry_id"] = json!(id);
        candidate["reason"] = json!("newer evidence on the same subject");
    }
    Some(candidate)
}

/// Sentences that hold a mark, in order; a repeated one cites all its evidence.
fn marked(evidence: &[Value]) -> Vec<Sentence> {
    let mut found: Vec<Sentence> = Vec::new();
    for (id, text) in sentences(evidence) {
        if let Some(known) = found.iter_mut().find(|s| s.text == text) {
            if !known.evidence_ids.contains(&id) {
                known.evidence_ids.push(id);
            }
            continue;
        }
        let folded = text.to_lowercase();
        let mark = MARKS
            .iter()
            .enumerate()
            .find(|(_, (_, words))| words.iter().any(|word| holds(&folded, word)));
        if let Some((weight, (kind, _))) = mark {
            found.push(Sentence {
                text,
                evidence_ids: vec![id],
                kind,
                weight,
            });
        }
    }
    found
}

fn first_plain(evidence: &[Value]) -> Option<Sentence> {
    let (id, text) = sentences(evidence).into_iter().find(|(_, text)| {
        let words = tokens(spoken(text));
        !words.is_empty() && !SMALL_TALK.iter().any(|talk| tokens(talk) == words)
    })?;
    Some(Sentence {
        text,
        evidence_ids: vec![id],
        kind: "working_note",
        weight: 0,
    })
}

/// Every statement of the evidence, with the id that cites it. Questions are left out.
fn sentences(evidence: &[Value]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for item in evidence {
        let Some(id) = item["evidence_id"].as_str() else {
            continue;
        };
        let content = &item["content"];
        let text = content.as_str().or_else(|| content["content"].as_str());
        for sentence in split(text.unwrap_or_default()) {
            if !sentence.ends_with(['?', '？']) && !sentence.ends_with("か。") {
                all.push((id.to_owned(), sentence.chars().take(QUOTE_CHARS_MAX).collect()));
            }
        }
    }
    all
}

/// Cuts a text after its sentence ends and at its lines.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let ends = match c {
            '\n' | '。' | '！' | '？' => true,
            // Not inside `3.5` or `example.com`.
            '.' | '!' | '?' => next.is_none_or(char::is_whitespace),
            _ => false,
        };
        if ends {
            parts.push(&text[start..at + c.len_utf8()]);
            start = at + c.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

/// Whether a folded sentence holds a word: from its beginning in scripts with spaces, anywhere in others.
fn holds(folded: &str, word: &str) -> bool {
    if !word.is_ascii() {
        return folded.contains(word);
    }
    folded.match_indices(word).any(|(at, _)| {
        let before = folded[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric())
    })
}

/// The sentence without the name of its speaker.
fn spoken(text: &str) -> &str {
    match text.split_once([':', '：']) {
        Some((name, rest)) if name.chars().count() <= SPEAKER_CHARS_MAX && !rest.trim().is_empty() => rest.trim(),
        _ => text,
    }
}

/// Whether two sentences share at least half of the words that say what they are about.
fn same_subject(a: &str, b: &str) -> bool {
    let (a, b) = (subject(a), subject(b));
    let shared = a.intersection(&b).count();
    shared > 0 && shared * 2 >= a.union(&b).count()
}

fn subject(text: &str) -> BTreeSet<String> {
    let all = tokens(spoken(text));
    let is_cjk = |token: &String| token.chars().all(|c| ('\u{3000}'..'\u{fb00}').contains(&c));
    all.into_iter()
        // A single character says little; its pairs say more.
        .filter(|token| !is_cjk(token) || token.chars().count() == 2)
        .filter(|token| !STOP_WORDS.contains(&token.as_str()) && !token.chars().all(char::is_numeric))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(texts: &[&str]) -> Value {
        let items = texts.iter().enumerate();
        let items = items.map(|(i, text)| {
            json!({"evidence_id": format!("source:{i}"), "evidence_type": "source", "content": {"content": text}})
        });
        items.collect()
    }

    fn ask(texts: &[&str], entries: &Value) -> Vec<Value> {
        let answer = answer(&json!({"evidence": evidence(texts), "current_entries": entries}));
        answer["candidates"].as_array().expect("a list").clone()
    }

    #[test]
    fn marked_sentences_become_candidates_of_their_kind_in_many_languages() {
        for (text, kind) in [
            ("We decided to ship on Friday.", "decision"),
            ("Passwords must never be logged.", "constraint"),
            ("Bo: I prefer tabs over spaces.", "preference"),
            ("TODO rotate the keys", "working_note"),
            ("The server listens on 8443.", "fact"),
            ("来週の会議は金曜日に決めました。", "decision"),
            ("本番環境には必ず二人で入ってください。", "constraint"),
            ("私は猫が好きです。", "preference"),
            ("私の名前は花子。", "fact"),
            ("我们决定采用这个方案。", "decision"),
            ("Wir haben beschlossen, am Montag zu liefern.", "decision"),
            ("Je préfère le thé.", "preference"),
        ] {
            let candidates = ask(&[text], &json!([]));
            assert_eq!(candidates.len(), 1, "{text}");
            assert_eq!(candidates[0]["kind"], kind, "{text}");
            assert_eq!(candidates[0]["text"], text);
            assert_eq!(candidates[0]["evidence_ids"], json!(["source:0"]));
            assert_eq!(candidates[0]["intent"], "add");
        }
    }

    #[test]
    fn only_the_sentence_is_quoted_and_questions_are_not() {
        let candidates = ask(&["Hello. Must we? We always use v3.5 here! Bye."], &json!([]));
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0]["text"], "We always use v3.5 here!");
    }

    #[test]
    fn plain_text_leaves_a_note_and_small_talk_leaves_nothing() {
        for text in ["the sky was grey", "今日は晴れ", "x1"] {
            let candidates = ask(&["Hello!", text], &json!([]));
            assert_eq!(candidates.len(), 1, "{text}");
            assert_eq!(candidates[0]["kind"], "working_note");
            assert_eq!(candidates[0]["evidence_ids"], json!(["source:1"]));
        }
        for text in ["", "Hello!", "Ada: thank you.", "こんにちは。", "…", "Really?"] {
            assert!(ask(&[text], &json!([])).is_empty(), "{text}");
        }
        assert!(ask(&[], &json!([])).is_empty());
    }

    #[test]
    fn at_most_twelve_of_the_weightiest_are_kept_in_order() {
        let mut texts: Vec<String> = (0..20).map(|n| format!("Host {n} runs on Linux.")).collect();
        texts[15] = "We decided on blue.".to_owned();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let candidates = ask(&texts, &json!([]));
        assert_eq!(candidates.len(), 12);
        assert_eq!(candidates[11]["text"], "We decided on blue.");
    }

    #[test]
    fn a_sentence_on_the_subject_of_an_entry_revises_it_once_and_a_repeated_one_is_dropped() {
        let entries = json!([
            {"entry_id": "e1", "kind": "decision", "text": "We decided to deploy on Friday."},
            {"entry_id": "e2", "kind": "preference", "text": "私は猫が好きです。"},
        ]);
        let candidates = ask(
            &[
                "We decided to deploy on Monday.",
                "We decided to deploy on Tuesday.",
                "We decided to deploy on Friday.",
                "私は犬が好きです。",
                "We decided to paint the bikeshed green.",
            ],
            &entries,
        );
        let short: Vec<_> = candidates
            .iter()
            .map(|c| (c["intent"].as_str().unwrap_or_default(), c["entry_id"].as_str()))
            .collect();
        assert_eq!(
            short,
            [
                ("revise", Some("e1")),
                ("add", None),
                ("revise", Some("e2")),
                ("add", None)
            ]
        );
    }

    #[test]
    fn the_same_sentence_twice_is_one_candidate_that_cites_both() {
        let candidates = ask(&["I prefer tea.", "I prefer tea."], &json!([]));
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0]["evidence_ids"], json!(["source:0", "source:1"]));
    }

    #[test]
    fn input_of_another_form_has_an_empty_answer() {
        for input in [
            json!(null),
            json!({"evidence": 3}),
            json!({"evidence": [{"content": "We decided."}]}),
        ] {
            assert_eq!(answer(&input), json!({"candidates": []}));
        }
    }
}
