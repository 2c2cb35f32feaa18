//! The deterministic model's idea of what is worth remembering: sentences that hold certain words.
//!
//! Each kind has a list of words in several languages; a sentence with a number is a fact if nothing else. The best sentences
//! of a window, in the order of the kinds, become candidates; each quotes its evidence and cites it. A sentence about the
//! same thing as an active entry revises that entry, and one that calls itself a correction revises the entry it shares
//! most words with. If a window holds nothing of the kind, its first sentence that is no small talk becomes a working note,
//! so that any input worth the name leaves something behind.

use std::collections::BTreeSet;

use powercontext_core::memory::analyzer::tokens;
use serde_json::{Value, json};

/// Most candidates of a small window; a large one has a quarter of its sources.
const CANDIDATES_MAX: usize = 12;
/// Fewest words of a sentence that counts, and fewest characters in scripts without spaces.
const WORDS_MIN: usize = 4;
const CJK_CHARS_MIN: usize = 7;
/// Fewest characters of the one word by which a correction finds its entry.
const TELLING_CHARS_MIN: usize = 8;
/// Longest quote, in characters.
const QUOTE_CHARS_MAX: usize = 400;
/// Longest name before a colon that counts as the speaker's, in characters.
const SPEAKER_CHARS_MAX: usize = 24;

/// Kinds in order of their weight, each with the words that mark it: folded, separated by `|`.
const MARKS: [(&str, &str); 5] = [
    (
        "decision",
        "decided|decision:|decide to|we agreed|agreed to|settled on|let's go with|we will use|we'll use|going with|\
         beschlossen|entschieden|avons décidé|hemos decidido|решили|決め|決定|採用|にしましょう|决定|采用|定了|결정",
    ),
    (
        "constraint",
        "must|never|always|do not |don't ever|deadline|not allowed|required|no later than|at most|at least|niemals|immer|\
         muss |jamais|toujours|doit |nunca|siempre|debe |нельзя|всегда|必ず|禁止|しないで|してはいけ|締め切り|締切|期限|必要|\
         条件|必须|不能|不要|截止|반드시|마감",
    ),
    (
        "preference",
        "prefer|i like|i love|favourite|favorite|i'd rather|i hate|allergic|bevorzug|lieber|préfère|prefiero|предпочита|\
         好き|好み|嫌い|苦手|希望|喜欢|偏好|讨厌|좋아|선호",
    ),
    (
        "working_note",
        "todo|to do:|follow up|remind|next step|remember to|don't forget|覚えて|忘れない|やること|宿題|确认一下|记得|别忘|\
         待办|잊지",
    ),
    (
        "fact",
        "remember|my name|is called|runs on|lives in|live in|works at|work at|listens on|birthday|located|moved to|wohnt|\
         heiße|habite|vivo en|зовут|住んで|名前|誕生日|引っ越|勤め|住在|生日|名字|이름|살아",
    ),
];

/// What a sentence says that takes an earlier one back.
const CORRECTIONS: &str = "correction|change of plan|no longer|instead of the|korrektur|訂正|変更です|更正|改为|정정";

/// Whole sentences, folded and without punctuation, that say nothing.
const SMALL_TALK: &str = "hello|hi|hi there|hey|thanks|thank you|ok|okay|yes|no|bye|good morning|hallo|danke|merci|\
                          bonjour|hola|gracias|こんにちは|ありがとう|はい|了解です|你好|谢谢|好的";

/// Words that say nothing about what a sentence is about.
const STOP_WORDS: &str = "a|an|the|we|i|you|it|is|are|was|to|on|in|at|of|for|and|or|our|my|your|that|this|with|be|will|\
                          from|by|as|not|no|have|has|do|now|so|nothing|else|only|です|ます|した|ので";

struct Sentence {
    text: String,
    evidence_ids: Vec<String>,
    kind: &'static str,
    weight: usize,
    corrects: bool,
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
    order.truncate(CANDIDATES_MAX.max(evidence.len() / 4));
    order.sort_unstable();
    let mut revised = BTreeSet::new();
    let candidates: Vec<Value> = order
        .into_iter()
        .filter_map(|i| candidate(&found[i], entries, &mut revised))
        .collect();
    json!({"candidates": candidates})
}

fn candidate(sentence: &Sentence, entries: &[Value], revised: &mut BTreeSet<String>) -> Option<Value> {
    if entries.iter().any(|entry| entry["text"] == *sentence.text) {
        return None;
    }
    let mut candidate = json!({
        "intent": "add",
        "kind": sentence.kind,
        "text": sentence.text,
        "evidence_ids": sentence.evidence_ids,
    });
    if let Some((entry, id)) = target(sentence, entries, revised) {
        revised.insert(id.to_owned());
        candidate["intent"] = json!("revise");
        candidate["entry_id"] = json!(id);
        candidate["kind"] = entry["kind"].clone();
        candidate["reason"] = json!("newer evidence on the same subject");
    }
    Some(candidate)
}

/// The entry that a sentence revises: of its kind and about the same thing, or, for a correction, the one that shares most.
fn target<'e>(sentence: &Sentence, entries: &'e [Value], revised: &BTreeSet<String>) -> Option<(&'e Value, &'e str)> {
    let own = subject(&sentence.text);
    let mut best: Option<(usize, &Value, &str)> = None;
    for entry in entries {
        let (Some(id), Some(text)) = (entry["entry_id"].as_str(), entry["text"].as_str()) else {
            continue;
        };
        let other = subject(text);
        let shared = own.intersection(&other).count();
        let chars: usize = own.intersection(&other).map(|word| word.chars().count()).sum();
        let same = entry["kind"] == sentence.kind && shared > 0 && shared * 2 >= own.union(&other).count();
        let corrected = sentence.corrects && (shared >= 2 || chars >= TELLING_CHARS_MIN);
        if (same || corrected) && !revised.contains(id) && best.is_none_or(|(most, ..)| chars > most) {
            best = Some((chars, entry, id));
        }
    }
    best.map(|(_, entry, id)| (entry, id))
}

/// Sentences worth remembering, in order; a repeated one cites all its evidence.
fn marked(evidence: &[Value]) -> Vec<Sentence> {
    let mut found: Vec<Sentence> = Vec::new();
    for (id, text) in statements(evidence) {
        if let Some(known) = found.iter_mut().find(|s| s.text == text) {
            if !known.evidence_ids.contains(&id) {
                known.evidence_ids.push(id);
            }
            continue;
        }
        let folded = text.to_lowercase();
        let corrects = holds_any(&folded, CORRECTIONS);
        let marked = MARKS.iter().position(|(_, words)| holds_any(&folded, words));
        let has_number = text.chars().any(char::is_numeric);
        let weight = match marked {
            _ if corrects => 0,
            Some(weight) => weight,
            None if has_number => MARKS.len(),
            None => continue,
        };
        if says_enough(&text) {
            found.push(Sentence {
                text,
                evidence_ids: vec![id],
                kind: marked.map_or("fact", |kind| MARKS[kind].0),
                weight,
                corrects,
            });
        }
    }
    found
}

fn says_enough(text: &str) -> bool {
    let tokens = tokens(spoken(text));
    let cjk = tokens.iter().filter(|t| is_cjk(t) && t.chars().count() == 1).count();
    let words = tokens.iter().filter(|t| !is_cjk(t)).count();
    words >= WORDS_MIN || cjk + words >= CJK_CHARS_MIN
}

fn first_plain(evidence: &[Value]) -> Option<Sentence> {
    let (id, text) = statements(evidence).into_iter().find(|(_, text)| {
        let words = tokens(spoken(text));
        !words.is_empty() && !SMALL_TALK.split('|').any(|talk| tokens(talk) == words)
    })?;
    Some(Sentence {
        text,
        evidence_ids: vec![id],
        kind: "working_note",
        weight: 0,
        corrects: false,
    })
}

/// Every statement of the evidence, with the id that cites it. Questions are left out; a correction takes what follows
/// it along, for it says little alone.
fn statements(evidence: &[Value]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for item in evidence {
        let Some(id) = item["evidence_id"].as_str() else {
            continue;
        };
        let content = &item["content"];
        let text = content
            .as_str()
            .or_else(|| content["content"].as_str())
            .unwrap_or_default();
        for (at, sentence) in split(text) {
            let corrects = holds_any(&sentence.to_lowercase(), CORRECTIONS);
            if corrects || !(sentence.ends_with(['?', '？']) || sentence.ends_with("か。")) {
                let quote = if corrects { text[at..].trim() } else { sentence };
                all.push((id.to_owned(), quote.chars().take(QUOTE_CHARS_MAX).collect()));
            }
            if corrects {
                break;
            }
        }
    }
    all
}

/// Cuts a text after its sentence ends and at its lines; each part with the byte where it starts.
fn split(text: &str) -> Vec<(usize, &str)> {
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
            parts.push((start, &text[start..at + c.len_utf8()]));
            start = at + c.len_utf8();
        }
    }
    parts.push((start, &text[start..]));
    parts
        .into_iter()
        .map(|(at, part)| (at, part.trim()))
        .filter(|(_, part)| !part.is_empty())
        .collect()
}

/// Whether a folded sentence holds one of the words: from its beginning in ASCII, anywhere in other scripts.
fn holds_any(folded: &str, words: &str) -> bool {
    words.split('|').any(|word| {
        folded.match_indices(word).any(|(at, _)| {
            let before = folded[..at].chars().next_back();
            !word.is_ascii() || before.is_none_or(|c| !c.is_alphanumeric())
        })
    })
}

/// The sentence without the name of its speaker.
fn spoken(text: &str) -> &str {
    match text.split_once([':', '：']) {
        Some((name, rest)) if name.chars().count() <= SPEAKER_CHARS_MAX && !rest.trim().is_empty() => rest.trim(),
        _ => text,
    }
}

fn is_cjk(token: &str) -> bool {
    token.chars().all(|c| ('\u{3000}'..'\u{fb00}').contains(&c))
}

/// The words that say what a sentence is about.
fn subject(text: &str) -> BTreeSet<String> {
    tokens(spoken(text))
        .into_iter()
        // A single character says little; its pairs say more.
        .filter(|token| !is_cjk(token) || token.chars().count() == 2)
        .filter(|token| !STOP_WORDS.split('|').any(|word| word == token) && !token.chars().all(char::is_numeric))
        .collect()
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
