//! What every route refuses, and that the application is not asked then: queries, ids, versions, bodies, limits.

use serde_json::{Value, json};

use super::app::OperationStatus;
use super::routes_tests::{SCOPE, citation, operation, posts, started};
use super::testing::post;

#[tokio::test]
async fn strange_queries_are_refused_with_their_place_and_the_application_is_not_asked() {
    let server = started().await;
    for (query, kind, name) in [
        ("limit=0", "greater_than_equal", "limit"),
        ("limit=-1", "greater_than_equal", "limit"),
        ("limit=1000000000", "less_than_equal", "limit"),
        ("limit=ten", "int_parsing", "limit"),
        ("limit=1&limit=2", "value_error", "limit"),
        ("kind=maintenance", "enum", "kind"),
        ("status=Queued", "enum", "status"),
        ("scope_id=", "string_pattern_mismatch", "scope_id"),
        ("scope_id=%00", "value_error", "scope_id"),
        ("scope_id=a%E2%80%AEb", "value_error", "scope_id"),
        ("scope_id=%ff", "value_error", "scope_id"),
        ("cursor=", "value_error", "cursor"),
        ("cursor=Zm9yZ2Vk", "value_error", "cursor"),
        ("cursor=W10", "value_error", "cursor"),
    ] {
        let reply = server.get(&format!("/v1/operations?{query}")).await;
        reply.assert_proper();
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (422, "invalid_request"),
            "{query}"
        );
        let faults = &reply.json()["error"]["details"]["errors"];
        assert_eq!(faults[0]["type"], kind, "{query}");
        assert_eq!(faults[0]["loc"], json!(["query", name]), "{query}");
    }
    let long = format!("/v1/operations?scope_id={}", "x".repeat(257));
    assert_eq!(server.get(&long).await.status, 422);
    assert_eq!(server.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn operation_ids_in_paths_are_checked() {
    let server = started().await;
    for id in [
        "x",
        "0198F0C2-8B1E-7C3A-9D52-3F7F4F0A1B2C",
        "0198f0c28b1e7c3a9d523f7f4f0a1b2c",
        "%ff",
        "%00",
        "a%2Fb",
    ] {
        for reply in [
            server.get(&format!("/v1/operations/{id}")).await,
            server
                .post(&format!("/v1/operations/{id}/cancel"), &json!({"expected_version": 1}))
                .await,
        ] {
            reply.assert_proper();
            assert_eq!(reply.status, 422, "{id}");
            assert_eq!(
                reply.json()["error"]["details"]["errors"][0]["loc"],
                json!(["path", "operation_id"])
            );
        }
    }
    let unknown = server.get("/v1/operations/0198f0c2-8b1e-7c3a-9d52-ffffffffffff").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "operation_not_found"));
}

#[tokio::test]
async fn an_expected_version_is_a_positive_integer_and_nothing_else() {
    let server = started().await;
    let id = operation(1, OperationStatus::Queued).id;
    for act in ["cancel", "retry"] {
        let target = format!("/v1/operations/{id}/{act}");
        for (text, kind) in [
            (r#"{"expected_version":-1}"#, "greater_than_equal"),
            (r#"{"expected_version":0}"#, "greater_than_equal"),
            (r#"{"expected_version":9007199254740992}"#, "less_than_equal"),
            (r#"{"expected_version":9223372036854775808}"#, "less_than_equal"),
            (r#"{"expected_version":"1"}"#, "int_type"),
            (r#"{"expected_version":1.0}"#, "int_type"),
            (r#"{"expected_version":1e0}"#, "int_type"),
            (r#"{"expected_version":true}"#, "int_type"),
            (r#"{"expected_version":null}"#, "int_type"),
            (r#"{"expected_version":1,"expected_version":1}"#, "json_invalid"),
            (r#"{"expected_version":1,"force":true}"#, "extra_forbidden"),
            ("{}", "missing"),
            ("[]", "object_type"),
            ("", "missing"),
        ] {
            let reply = server.send(&post(&target, "", text)).await;
            reply.assert_proper();
            assert_eq!(reply.status, 422, "{text}");
            assert_eq!(reply.json()["error"]["details"]["errors"][0]["type"], kind, "{text}");
        }
        assert_eq!(server.calls(), Vec::<String>::new(), "no work done");
        server
            .post(&target, &json!({"expected_version": 9_007_199_254_740_991_u64}))
            .await;
        assert_eq!(server.calls(), [format!("{act} {id} 9007199254740991")]);
        server.app.script().calls.clear();
    }
}

#[tokio::test]
async fn every_post_route_is_closed_strict_and_silent_about_values() {
    let server = started().await;
    for (target, good) in posts() {
        for (body, fields, kind) in [
            ("secret-value".to_owned(), "", "json_invalid"),
            (
                format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
                "",
                "json_invalid",
            ),
            (String::from("{\"scope_id\":\"\\ud800secret\"}"), "", "json_invalid"),
            (String::from("{\"scope_id\":NaN}"), "", "json_invalid"),
            (String::from("\"secret-value\""), "", "object_type"),
        ] {
            let reply = server.send(&post(&target, fields, &body)).await;
            reply.assert_proper();
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (422, "invalid_request"),
                "{target}"
            );
            assert_eq!(reply.json()["error"]["details"]["errors"][0]["type"], kind, "{target}");
            assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{target}");
        }
        let mut open = good.clone();
        open["surplus"] = json!("secret-value");
        let reply = server.post(&target, &open).await;
        assert_eq!(
            reply.json()["error"]["details"]["errors"][0]["loc"],
            json!(["body", "surplus"]),
            "{target}"
        );
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{target}");
        for name in good.as_object().expect("an object").keys() {
            let mut wrong = good.clone();
            wrong[name] = json!(["secret-value"]);
            let reply = server.post(&target, &wrong).await;
            reply.assert_proper();
            assert_eq!(reply.status, 422, "{target} {name}");
            let faults = reply.json()["error"]["details"]["errors"].clone();
            assert_eq!(faults[0]["loc"], json!(["body", name]), "{target}");
            assert!(
                !String::from_utf8_lossy(&reply.body).contains("secret"),
                "{target} {name}"
            );
        }
        let media =
            format!("POST {target} HTTP/1.1\r\nhost: t\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{{}}");
        let reply = server.send(&media).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (422, "invalid_request"),
            "{target}"
        );
    }
    assert_eq!(server.calls(), Vec::<String>::new(), "no work done");
}

async fn assert_limits(target: &str, cases: Vec<(Value, Option<&str>)>) {
    let server = started().await;
    for (body, place) in cases {
        let reply = server.post(target, &body).await;
        reply.assert_proper();
        let Some(place) = place else {
            assert!(reply.status < 300, "{target} {}", reply.status);
            continue;
        };
        assert_eq!(reply.status, 422, "{target} {place}");
        let loc = reply.json()["error"]["details"]["errors"][0]["loc"].clone();
        let names: Vec<_> = loc
            .as_array()
            .expect("a path")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(names.join("."), format!("body.{place}"));
    }
}

fn wide(count: usize) -> String {
    "記".repeat(count)
}

#[tokio::test]
async fn captures_are_accepted_at_their_limits_and_refused_one_past_them() {
    let capture =
        |scope: &str, source: &str, content: &str| json!({"scope_id": scope, "source_id": source, "content": content});
    let cases = vec![
        (capture(&wide(256), "a", "c"), None),
        (capture(&wide(257), "a", "c"), Some("scope_id")),
        (capture("s\u{0}", "a", "c"), Some("scope_id")),
        (capture("s", &wide(256), "c"), None),
        (capture("s", &wide(257), "c"), Some("source_id")),
        (capture("s", "a\u{202e}", "c"), Some("source_id")),
        (capture("s", "a", &wide(200_000)), None),
        (capture("s", "a", &wide(200_001)), Some("content")),
        (capture("s", "a", ""), Some("content")),
        (capture("s", "a", "line\nline\t\u{202e}"), None),
    ];
    assert_limits("/v1/sources/content", cases).await;
}

#[tokio::test]
async fn entries_are_accepted_at_their_limits_and_refused_one_past_them() {
    let remember =
        |kind: &str, text: &str, reason: &str| json!({"scope_id": SCOPE, "kind": kind, "text": text, "reason": reason});
    let cases = vec![
        (remember(&wide(128), "t", ""), None),
        (remember(&wide(129), "t", ""), Some("kind")),
        (remember("fact", &"x".repeat(8192), ""), None),
        (remember("fact", &"x".repeat(8193), ""), Some("text")),
        (remember("fact", " \n", ""), Some("text")),
        (remember("fact", "t", &wide(512)), None),
        (remember("fact", "t", &wide(513)), Some("reason")),
    ];
    assert_limits("/v1/memory/remember", cases).await;

    let get = |revision: i64| {
        let mut citation = citation();
        citation["memory_ref"]["revision"] = json!(revision);
        json!({"scope_id": SCOPE, "citation": citation})
    };
    let cases = vec![
        (get(1), None),
        (get(0), Some("citation.memory_ref.revision")),
        (get(1 << 32), Some("citation.memory_ref.revision")),
    ];
    assert_limits("/v1/memory/entries/get", cases).await;
}

#[tokio::test]
async fn searches_are_accepted_at_their_limits_and_refused_one_past_them() {
    let search = |query: &str, limit: i64| json!({"scope_id": SCOPE, "query": query, "limit": limit});
    let cases = vec![
        (search(&wide(8192), 50), None),
        (search(&wide(8193), 50), Some("query")),
        (search("", 50), Some("query")),
        (search("q", 1), None),
        (search("q", 0), Some("limit")),
        (search("q", -1), Some("limit")),
        (search("q", 51), Some("limit")),
        (search("q", 1_000_000_000), Some("limit")),
    ];
    assert_limits("/v1/memory/search", cases).await;
}

#[tokio::test]
async fn scopes_are_byte_exact_on_their_way_in() {
    let server = started().await;
    for scope in ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"] {
        server
            .post("/v1/memory/entries/list", &json!({"scope_id": scope}))
            .await;
    }
    let wanted = ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"].map(|scope| format!("entries {scope} false"));
    assert_eq!(server.calls(), wanted);
}
