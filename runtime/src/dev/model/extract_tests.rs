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
        ("TODO: rotate the keys", "working_note"),
        ("The server listens on 8443.", "fact"),
        ("Berths measure 14 by 4 metres.", "fact"),
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
fn a_correction_quotes_what_follows_it_and_revises_the_entry_it_shares_most_with() {
    let entries = json!([
        {"entry_id": "e1", "kind": "decision", "text": "Ada: Decided: Rust service, Postgres 16."},
        {"entry_id": "e2", "kind": "fact", "text": "The Postgres service pages Ada."},
        {"entry_id": "e3", "kind": "fact", "text": "一番多いのはポルトガル語です。"},
    ]);
    let english = "Bo: One correction: the Rust service needs Postgres 17. Nothing else changes.";
    let japanese = "李：訂正です。多いのはポルトガル語ではなく、ネパール語でした。";
    let candidates = ask(&["Hello.", english, japanese, "Correction: lunch moves."], &entries);
    let short: Vec<_> = candidates
        .iter()
        .map(|c| (&c["entry_id"], &c["kind"], &c["text"]))
        .collect();
    assert_eq!(
        short,
        [
            (&json!("e1"), &json!("decision"), &json!(english)),
            (&json!("e3"), &json!("fact"), &json!(japanese)),
        ]
    );
}

#[test]
fn the_same_sentence_twice_is_one_candidate_that_cites_both() {
    let candidates = ask(&["I prefer green tea.", "I prefer green tea."], &json!([]));
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
