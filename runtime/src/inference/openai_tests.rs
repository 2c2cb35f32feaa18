//! The form of requests and replies; what holds for every client is with the guard.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;

use super::*;
use crate::inference::testing::{ask, custom, reply};

type Seen = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

fn client(settings: ClientSettings) -> OpenAiChat {
    OpenAiChat::new(settings).expect("valid settings")
}

#[tokio::test]
async fn the_key_is_a_bearer_token_and_the_instructions_are_the_first_message() {
    let seen = Seen::default();
    let log = seen.clone();
    let router = Router::new().route(
        "/v1/chat/completions",
        post(async move |headers: HeaderMap, Json(body): Json<Value>| {
            log.lock().expect("not poisoned").push((headers, body));
            Json(reply("{\"candidates\": []}"))
        }),
    );
    let provider = custom(router).await;
    let mut settings = provider.settings();
    settings.api_key = Some(SecretString::from("sk-test"));
    settings
        .model_settings
        .insert("max_completion_tokens".to_owned(), json!(9));
    let client = client(settings);
    ask(&client).await.expect("an answer");
    client.probe().await.expect("an answer");
    let seen = seen.lock().expect("not poisoned");
    assert_eq!(seen[0].0[AUTHORIZATION], "Bearer sk-test");
    let roles: Vec<_> = seen[0].1["messages"].as_array().expect("messages").iter().collect();
    assert_eq!(
        (roles.len(), &roles[0]["role"], &roles[1]["role"]),
        (2, &json!("system"), &json!("user"))
    );
    let limits = |n: usize| (&seen[n].1["max_tokens"], &seen[n].1["max_completion_tokens"]);
    assert_eq!(limits(0), (&Value::Null, &json!(9)));
    assert_eq!(limits(1), (&json!(1), &Value::Null));
}

#[tokio::test]
async fn a_probe_uses_the_newer_limit_where_the_older_one_is_refused() {
    let router = Router::new().route(
        "/v1/chat/completions",
        post(async |Json(body): Json<Value>| match body.get("max_tokens") {
            Some(_) => StatusCode::BAD_REQUEST.into_response(),
            None => Json(reply("o")).into_response(),
        }),
    );
    let provider = custom(router).await;
    assert_eq!(client(provider.settings()).probe().await, Ok(()));
}

#[tokio::test]
async fn an_answer_without_text_is_an_empty_one() {
    let router = Router::new().route(
        "/v1/chat/completions",
        post(async || Json(json!({"choices": [{"message": {"role": "assistant", "content": null}}]}))),
    );
    let provider = custom(router).await;
    let client = client(provider.settings());
    assert_eq!(client.probe().await, Ok(()));
    assert_eq!(ask(&client).await, Err(InferenceError::InvalidOutput));
}
