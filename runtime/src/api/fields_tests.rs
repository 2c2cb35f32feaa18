//! What each getter accepts, at its limits and one past them.

use axum::body::to_bytes;
use axum::response::IntoResponse as _;
use powercontext_core::ids::ScopeId;
use serde_json::json;

use super::*;

fn errors(problem: Problem) -> Value {
    let response = problem.into_response();
    assert_eq!(response.status(), 422);
    let bytes = futures_util::FutureExt::now_or_never(to_bytes(response.into_body(), 1 << 20))
        .expect("in memory")
        .expect("a body");
    let body: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(body["error"]["code"], "invalid_request");
    body["error"]["details"]["errors"].clone()
}

fn faults_of<T>(body: &Value, read: impl FnOnce(&mut Fields<'_>) -> Read<T>) -> Value {
    match read_object(body, read) {
        Ok(_) => json!([]),
        Err(problem) => errors(problem),
    }
}

fn kinds(faults: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    faults
        .as_array()
        .expect("an array")
        .iter()
        .map(|fault| {
            let loc: Vec<_> = fault["loc"].as_array().expect("a path").iter().map(text).collect();
            (text(&fault["type"]), loc.join("."))
        })
        .collect()
}

fn int_kind(value: &Value) -> Option<String> {
    let faults = faults_of(&json!({ "n": value }), |f| f.int("n", IntRange::POSITIVE));
    kinds(&faults).first().map(|(kind, _)| kind.clone())
}

#[test]
fn integers_are_strict() {
    for good in [json!(1), json!(INTEGER_MAX)] {
        assert_eq!(int_kind(&good), None, "{good}");
    }
    for (bad, kind) in [
        (json!("1"), "int_type"),
        (json!(1.0), "int_type"),
        (json!(1e3), "int_type"),
        (json!(true), "int_type"),
        (json!(null), "int_type"),
        (json!([1]), "int_type"),
        (json!({}), "int_type"),
        (json!(0), "greater_than_equal"),
        (json!(-1), "greater_than_equal"),
        (json!(i64::MIN), "greater_than_equal"),
        (json!(INTEGER_MAX + 1), "less_than_equal"),
        (json!(i64::MAX), "less_than_equal"),
        (json!(1_u64 << 63), "less_than_equal"),
        (json!(u64::MAX), "less_than_equal"),
    ] {
        assert_eq!(int_kind(&bad).as_deref(), Some(kind), "{bad}");
    }
}

#[test]
fn texts_are_measured_in_characters() {
    let range = TextRange { min: 1, max: 3 };
    for (text, fault) in [
        ("", Some("string_too_short")),
        ("é", None),
        ("記記記", None),
        ("記記記記", Some("string_too_long")),
    ] {
        let faults = faults_of(&json!({ "t": text }), |f| f.text("t", range));
        assert_eq!(kinds(&faults).first().map(|(kind, _)| kind.as_str()), fault, "{text}");
    }
}

#[test]
fn every_fault_is_listed_at_once_with_its_place() {
    let body = json!({
        "scope_id": "a\u{0}b", "limit": "5", "mode": "fuzzy", "flag": 1, "inner": {"x": 1, "y": 2}, "more": null
    });
    let faults = faults_of(&body, |f| {
        let scope = f.id("scope_id", |text| ScopeId::parse(text));
        let limit = f.int_or("limit", IntRange::POSITIVE, 10);
        let mode = f.choice_or("mode", &[("auto", 0), ("fts", 1)], 0);
        let flag = f.flag_or("flag", false);
        let inner = f.nested("inner", |f| f.text("x", TextRange { min: 1, max: 9 }));
        let text = f.text("text", TextRange { min: 1, max: 9 });
        Ok((scope?, limit?, mode?, flag?, inner?, text?))
    });
    let mut seen = kinds(&faults);
    seen.sort();
    let mut wanted: Vec<(String, String)> = [
        ("value_error", "body.scope_id"),
        ("int_type", "body.limit"),
        ("enum", "body.mode"),
        ("bool_type", "body.flag"),
        ("string_type", "body.inner.x"),
        ("extra_forbidden", "body.inner.y"),
        ("missing", "body.text"),
        ("extra_forbidden", "body.more"),
    ]
    .map(|(kind, loc)| (kind.to_owned(), loc.to_owned()))
    .to_vec();
    wanted.sort();
    assert_eq!(seen, wanted);
    assert!(!faults.to_string().contains("fuzzy"), "no value is shown");
}

#[test]
fn identifiers_say_which_rule_they_break() {
    for (scope, kind, ctx) in [
        ("", "string_pattern_mismatch", json!({"pattern": "\\S"})),
        ("  ", "string_pattern_mismatch", json!({"pattern": "\\S"})),
        (&"x".repeat(257), "string_too_long", json!({"max_length": 256})),
        ("ab\u{202e}", "value_error", json!({"at": 2})),
    ] {
        let faults = faults_of(&json!({ "scope_id": scope }), |f| {
            f.id("scope_id", |text| ScopeId::parse(text))
        });
        assert_eq!(faults[0]["type"], kind, "{scope:?}");
        assert_eq!(faults[0]["ctx"], ctx, "{scope:?}");
    }
}

#[test]
fn null_is_absence_only_where_the_contract_says_so() {
    let body = json!({"a": null, "b": null, "c": null, "d": null, "e": null});
    let faults = faults_of(&body, |f| {
        let number = f.int_or_null("a", IntRange::NATURAL);
        let object = f.open_object_or_null("b");
        let scope = f.parsed_or_null("c", |text| ScopeId::parse(text), Fault::of_text);
        let (d, e) = (f.int_or("d", IntRange::NATURAL, 1), f.flag_or("e", true));
        assert_eq!((number, object, scope), (Ok(None), Ok(None), Ok(None)));
        Ok((d?, e?))
    });
    assert_eq!(
        kinds(&faults).iter().map(|(_, loc)| loc.as_str()).collect::<Vec<_>>(),
        ["body.d", "body.e"]
    );
}

#[test]
fn a_body_that_is_no_object_is_one_fault() {
    for body in [json!([]), json!(null), json!("x"), json!(1)] {
        let faults = faults_of(&body, |f| f.flag_or("x", true));
        assert_eq!(kinds(&faults), [("object_type".to_owned(), "body".to_owned())]);
    }
}

#[test]
fn the_list_of_faults_and_unknown_names_are_bounded() {
    let body: Value = (0..1000)
        .map(|n| (format!("field{n}"), json!(1)))
        .collect::<Map<_, _>>()
        .into();
    let faults = faults_of(&body, |_| Ok(()));
    assert_eq!(
        faults.as_array().expect("an array").len(),
        super::super::faults::FAULTS_MAX
    );

    for (name, shown) in [
        ("x".repeat(64), "x".repeat(64)),
        ("x".repeat(65), "?".to_owned()),
        ("a\nb".to_owned(), "?".to_owned()),
    ] {
        let faults = faults_of(&json!({ name: 1 }), |_| Ok(()));
        assert_eq!(faults[0]["loc"], json!(["body", shown]));
    }
}
