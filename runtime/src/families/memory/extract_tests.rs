use powercontext_core::ids::{EntryVersionId, SourceId, SourceType};
use serde_json::json;

use super::*;

fn source(id: &str) -> SourceRef {
    SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(id).expect("valid"),
    }
}

fn active() -> Vec<EntryVersion> {
    let content = EntryContent::new(
        EntryKind::parse("fact").expect("valid"),
        EntryText::parse("old").expect("valid"),
        Vec::new(),
        Vec::new(),
    );
    vec![EntryVersion::first(
        EntryId::parse("e1").expect("valid"),
        EntryVersionId::parse("v1").expect("valid"),
        content.expect("few references"),
    )]
}

fn read(answer: &Value) -> Result<Vec<Candidate>, Invalid> {
    candidates(answer, &[source("a"), source("b")], &active())
}

/// An answer of one candidate, changed.
fn answer(change: impl FnOnce(&mut Value)) -> Value {
    let mut candidate = json!({"intent": "add", "kind": "fact", "text": "new", "evidence_ids": ["source:1"]});
    change(&mut candidate);
    json!({"candidates": [candidate]})
}

#[test]
fn citations_lead_back_to_exact_sources() {
    let read = read(&answer(|c| {
        c["evidence_ids"] = json!(["source:1", "source:0", "source:1"]);
    }))
    .expect("valid");
    assert_eq!(read[0].content.source_refs(), [source("a"), source("b")]);
    assert_eq!(read[0].revises, None);
}

#[test]
fn an_empty_list_is_a_valid_answer() {
    assert_eq!(read(&json!({"candidates": []})), Ok(Vec::new()));
}

#[test]
fn optional_members_may_be_null_or_left_out() {
    let with_nulls = answer(|c| {
        c["entry_id"] = Value::Null;
        c["reason"] = Value::Null;
    });
    assert_eq!(read(&with_nulls), read(&answer(|_| {})));
    let revision = answer(|c| {
        c["intent"] = json!("revise");
        c["entry_id"] = json!("e1");
        c["reason"] = json!("because");
    });
    let revision = read(&revision).expect("valid");
    assert_eq!(revision[0].revises.as_ref().map(EntryId::as_str), Some("e1"));
    assert_eq!(revision[0].reason.as_ref().map(Reason::as_str), Some("because"));
}

#[test]
fn every_breach_of_the_contract_is_refused_with_its_own_reason() {
    type Change = fn(&mut Value);
    let table: [(Change, Invalid); 19] = [
        (|c| c["evidence_ids"] = json!([]), Invalid::NoCitation),
        (|c| c["evidence_ids"] = json!(["source:2"]), Invalid::UnknownCitation),
        (
            |c| c["evidence_ids"] = json!(["source:1", "artifact:0"]),
            Invalid::UnknownCitation,
        ),
        (|c| c["evidence_ids"] = json!(["source:01"]), Invalid::UnknownCitation),
        (|c| c["evidence_ids"] = json!(["source:+1"]), Invalid::UnknownCitation),
        (|c| c["evidence_ids"] = json!(["source:-1"]), Invalid::UnknownCitation),
        (|c| c["evidence_ids"] = json!(["1"]), Invalid::UnknownCitation),
        (|c| c["entry_id"] = json!("e1"), Invalid::AddWithEntry),
        (|c| c["intent"] = json!("revise"), Invalid::ReviseWithoutEntry),
        (
            |c| {
                c["intent"] = json!("revise");
                c["entry_id"] = json!("e2");
            },
            Invalid::ReviseUnknown,
        ),
        (|c| c["text"] = json!(" \n"), Invalid::Text),
        (|c| c["text"] = json!("x".repeat(8193)), Invalid::Text),
        (|c| c["reason"] = json!("x".repeat(513)), Invalid::Reason),
        (|c| c["kind"] = json!("opinion"), Invalid::Schema),
        (|c| c["intent"] = json!("delete"), Invalid::Schema),
        (|c| c["text"] = json!(7), Invalid::Schema),
        (|c| c["confidence"] = json!(1), Invalid::Schema),
        (|c| c["evidence_ids"] = json!("source:0"), Invalid::Schema),
        (|c| c["evidence_ids"] = json!([0]), Invalid::Schema),
    ];
    for (change, invalid) in table {
        let answer = answer(change);
        assert_eq!(read(&answer), Err(invalid), "{invalid:?}");
    }
    for whole in [
        json!({}),
        json!([]),
        json!(null),
        json!({"candidates": {}}),
        json!({"candidates": [], "x": 1}),
    ] {
        assert_eq!(read(&whole), Err(Invalid::Schema), "{whole}");
    }
}

#[test]
fn an_entry_is_revised_at_most_once() {
    let mut twice = answer(|c| {
        c["intent"] = json!("revise");
        c["entry_id"] = json!("e1");
    });
    let again = twice["candidates"][0].clone();
    twice["candidates"].as_array_mut().expect("a list").push(again);
    assert_eq!(read(&twice), Err(Invalid::ReviseTwice));
}

#[test]
fn text_and_candidates_are_accepted_up_to_their_limits() {
    assert!(read(&answer(|c| c["text"] = json!("x".repeat(8192)))).is_ok());
    assert!(read(&answer(|c| c["reason"] = json!("é".repeat(512)))).is_ok());
    let one = answer(|_| {})["candidates"][0].clone();
    assert!(read(&json!({"candidates": vec![one.clone(); 200]})).is_ok());
    assert_eq!(read(&json!({"candidates": vec![one; 201]})), Err(Invalid::TooMany));
}
