//! The form of requests and replies; what holds for every client is with the guard.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;

use super::*;
use crate::inference::testing::{ask, custom};

type Seen = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

fn message(blocks: &Value) -> Value {
    json!({
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 500, "output_tokens": 2},
    })
}

#[tokio::test]
async fn key_version_system_and_limit_are_sent() {
    let seen = Seen::default();
    let log = seen.clone();
    let router = Router::new().route(
        "/v1/messages",
        post(async move |headers: HeaderMap, Json(body): Json<Value>| {
            log.lock().expect("not poisoned").push((headers, body));
            Json(message(&json!([{"type": "text", "text": "{\"candidates\": []}"}])))
        }),
    );
    let provider = custom(router).await;
    let mut settings = provider.settings();
    settings.api_key = Some(SecretString::from("sk-ant-test"));
    let client = Anthropic::new(settings.clone()).expect("valid settings");
    ask(&client).await.expect("an answer");
    client.probe().await.expect("an answer");
    settings.model_settings.insert("max_tokens".to_owned(), json!(77));
    let thinking = json!({"type": "enabled", "budget_tokens": 50});
    settings.model_settings.insert("thinking".to_owned(), thinking.clone());
    let client = Anthropic::new(settings).expect("valid settings");
    ask(&client).await.expect("an answer");
    client.probe().await.expect("an answer");

    let seen = seen.lock().expect("not poisoned");
    for (headers, body) in &*seen {
        assert_eq!(
            (&headers["x-api-key"], &headers["anthropic-version"]),
            (
                &HeaderValue::from_static("sk-ant-test"),
                &HeaderValue::from_static(VERSION)
            )
        );
        assert!(headers.get("authorization").is_none());
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(1));
        assert_eq!(body["messages"][0]["role"], "user");
    }
    let sent = |n: usize| {
        (
            &seen[n].1["max_tokens"],
            &seen[n].1["thinking"],
            seen[n].1["system"].is_string(),
        )
    };
    assert_eq!(sent(0), (&json!(TOKENS_MAX), &Value::Null, true));
    assert_eq!(sent(1), (&json!(1), &Value::Null, false));
    assert_eq!(sent(2), (&json!(77), &thinking, true));
    assert_eq!(sent(3), (&json!(1), &Value::Null, false));
}

#[tokio::test]
async fn the_texts_of_a_reply_are_its_answer_and_cached_tokens_are_read_ones() {
    let blocks = json!([
        {"type": "thinking", "thinking": "{\"wrong\": true}", "signature": "s"},
        {"type": "text", "text": "{\"candi"},
        {"type": "text", "text": "dates\": []}"},
    ]);
    let router = Router::new().route("/v1/messages", post(async move || Json(message(&blocks))));
    let provider = custom(router).await;
    let client = Anthropic::new(provider.settings()).expect("valid settings");
    let generation = ask(&client).await.expect("an answer");
    assert_eq!(generation.value, json!({"candidates": []}));
    assert_eq!(
        (generation.usage.input_tokens, generation.usage.output_tokens),
        (543, 2)
    );
}

#[test]
fn the_base_url_ends_with_the_version_or_before_it() {
    for (base, path) in [
        (DEFAULT_BASE_URL, "messages"),
        ("https://api.anthropic.com", "v1/messages"),
        ("https://a/anthropic/", "v1/messages"),
        ("https://a/anthropic/v1/", "messages"),
    ] {
        let base = Url::parse(base).expect("valid");
        assert_eq!(Messages::path(&base), path, "{base}");
    }
}

#[test]
fn the_system_text_is_no_setting() {
    let mut settings = ClientSettings::new("m", DEFAULT_BASE_URL);
    settings.model_settings.insert("system".to_owned(), json!("x"));
    assert_eq!(Anthropic::new(settings).err(), Some(ClientFault::ModelSettings));
}
