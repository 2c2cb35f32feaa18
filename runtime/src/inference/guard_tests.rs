//! What holds for every client: each test runs over HTTP, once for each interface.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::Path;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use super::*;
use crate::dev::model::{Fail, ModelOptions};
use crate::inference::anthropic::Anthropic;
use crate::inference::openai::{self, OpenAiChat};
use crate::inference::testing::{PATHS, ask, bind, clients, custom, failing, model, reply};

const SLOW: ModelOptions = ModelOptions {
    delay: Duration::from_mins(1),
    fail: None,
    fail_first: None,
    fail_for: None,
};

#[tokio::test]
async fn an_answer_comes_over_http_with_its_usage() {
    let provider = model(ModelOptions::default()).await;
    for (name, client) in provider.clients() {
        let generation = ask(&*client).await.expect("an answer");
        assert_eq!(
            generation.value["candidates"][0]["text"], "必ず二人で確認する。",
            "{name}"
        );
        let usage = generation.usage;
        assert_eq!(usage.requests, 1, "{name}");
        assert!(usage.input_tokens > 0 && usage.output_tokens > 0, "{name}");
        assert!(usage.input_complete && usage.output_complete, "{name}");
    }
    assert_eq!(provider.count("chat").await, 2);
}

#[tokio::test]
async fn a_model_slower_than_the_timeout_is_a_timeout() {
    for provider in [model(SLOW).await, failing(Fail::Slow, None).await] {
        for (name, client) in provider.impatient() {
            assert_eq!(ask(&*client).await, Err(InferenceError::Timeout), "{name}");
        }
    }
}

#[tokio::test]
async fn busy_and_broken_providers_are_unavailable_and_asked_once() {
    for fail in [Fail::TooManyRequests, Fail::ServerError] {
        let provider = failing(fail, None).await;
        for (name, client) in provider.clients() {
            assert_eq!(
                ask(&*client).await,
                Err(InferenceError::Unavailable),
                "{name}: {fail:?}"
            );
        }
        assert_eq!(provider.count("chat").await, 2, "{fail:?}");
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_unavailable() {
    let (listener, provider) = bind().await;
    drop(listener);
    for (name, client) in provider.clients() {
        assert_eq!(ask(&*client).await, Err(InferenceError::Unavailable), "{name}");
    }
}

#[tokio::test]
async fn broken_and_empty_answers_are_asked_for_again_once_and_then_invalid() {
    for fail in [Fail::Malformed, Fail::Empty] {
        let provider = failing(fail, None).await;
        for (name, client) in provider.clients() {
            assert_eq!(
                ask(&*client).await,
                Err(InferenceError::InvalidOutput),
                "{name}: {fail:?}"
            );
        }
        assert_eq!(provider.count("chat").await, 4, "{fail:?}");

        for n in 0..2 {
            let provider = failing(fail, Some(1)).await;
            let (name, client) = &provider.clients()[n];
            let generation = ask(&**client).await.expect("right the second time");
            assert_eq!(generation.usage.requests, 2, "{name}: {fail:?}");
        }
    }
}

/// A router that answers both interfaces under a prefix.
fn both<H, T>(prefix: &str, handler: H) -> Router
where
    H: axum::handler::Handler<T, ()> + Clone,
    T: 'static,
{
    let [chat, messages] = PATHS.map(|path| format!("{prefix}{path}"));
    Router::new()
        .route(&chat, post(handler.clone()))
        .route(&messages, post(handler))
}

#[tokio::test]
async fn statuses_have_their_classes() {
    use InferenceError::{Rejected, Timeout, Unavailable};
    let provider = custom(both("/{status}/v1", async |Path(status): Path<u16>| {
        let status = StatusCode::from_u16(status).expect("a status");
        (status, "a body with a secret").into_response()
    }))
    .await;
    for (status, class) in [
        (400, Rejected),
        (401, Rejected),
        (403, Rejected),
        (404, Rejected),
        (413, Rejected),
        (422, Rejected),
        (408, Timeout),
        (504, Timeout),
        (409, Unavailable),
        (425, Unavailable),
        (429, Unavailable),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (529, Unavailable),
        (599, Unavailable),
        (304, Rejected),
    ] {
        let mut settings = provider.settings();
        settings.base_url = format!("http://{}/{status}/v1/", provider.address);
        for (name, client) in clients(&settings) {
            assert_eq!(ask(&*client).await, Err(class), "{name}: {status}");
            assert_eq!(client.probe().await, Err(class), "{name}: {status}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_of_any_length_changes_nothing() {
    for seconds in ["0", "1", "1000000000", "Wed, 21 Oct 2099 07:28:00 GMT", "-1"] {
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = asked.clone();
        let busy = async move || {
            seen.fetch_add(1, Ordering::SeqCst);
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", seconds)]).into_response()
        };
        let provider = custom(both("/v1", busy)).await;
        for (name, client) in provider.clients() {
            let answer = rt::within(Duration::from_secs(5), ask(&*client)).await;
            assert_eq!(answer, Ok(Err(InferenceError::Unavailable)), "{name}: {seconds}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2, "{seconds}");
    }
}

#[tokio::test]
async fn a_redirect_is_refused_and_not_followed() {
    let followed = Arc::new(AtomicUsize::new(0));
    let seen = followed.clone();
    let router = both("/v1", async || Redirect::to("/elsewhere")).route(
        "/elsewhere",
        get(async move || {
            seen.fetch_add(1, Ordering::SeqCst);
            Json(reply("{\"candidates\": []}"))
        }),
    );
    let provider = custom(router).await;
    for (name, client) in provider.clients() {
        assert_eq!(ask(&*client).await, Err(InferenceError::Rejected), "{name}");
    }
    assert_eq!(followed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_reply_is_read_up_to_4_mib() {
    // The answer is padded so that the whole body has the size in the path.
    let padded = async |Path(size): Path<usize>| -> Response {
        let mut body = reply("{\"candidates\": []}").to_string();
        body.push_str(&" ".repeat(size - body.len()));
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    };
    let provider = custom(both("/{size}/v1", padded)).await;
    for (size, accepted) in [(RESPONSE_BYTES_MAX, true), (RESPONSE_BYTES_MAX + 1, false)] {
        let mut settings = provider.settings();
        settings.base_url = format!("http://{}/{size}/v1", provider.address);
        for (name, client) in clients(&settings) {
            let answer = ask(&*client).await;
            assert_eq!(answer.is_ok(), accepted, "{name}: {size}");
            assert!(accepted || answer == Err(InferenceError::InvalidOutput));
        }
    }
}

#[tokio::test]
async fn a_body_that_is_no_reply_is_invalid_output() {
    for body in [
        "",
        "<html>",
        "[]",
        "{}",
        "{\"choices\": []}",
        "{\"choices\": [{}]}",
        "{\"content\": \"text\"}",
    ] {
        let provider = custom(both("/v1", async move || body)).await;
        for (name, client) in provider.clients() {
            assert_eq!(
                ask(&*client).await,
                Err(InferenceError::InvalidOutput),
                "{name}: {body}"
            );
            assert_eq!(
                client.probe().await,
                Err(InferenceError::InvalidOutput),
                "{name}: {body}"
            );
        }
    }
    let invalid_utf8 = async || [0x7b_u8, 0xff, 0x7d];
    let provider = custom(both("/v1", invalid_utf8)).await;
    for (name, client) in provider.clients() {
        assert_eq!(ask(&*client).await, Err(InferenceError::InvalidOutput), "{name}");
    }
}

#[tokio::test]
async fn a_wrong_answer_is_shown_to_the_model_with_the_reason() {
    for n in 0..2 {
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = seen.clone();
        let handler = async move |Json(body): Json<Value>| {
            let mut log = log.lock().expect("not poisoned");
            log.push(body);
            let texts = ["{\"wrong\": 1}", "```json\n{\"candidates\": []}\n```"];
            Json(reply(texts[log.len() - 1]))
        };
        let provider = custom(both("/v1", handler)).await;
        let (name, client) = &provider.clients()[n];
        let generation = ask(&**client).await.expect("right the second time");
        assert_eq!(generation.value, json!({"candidates": []}), "{name}");
        let usage = Usage {
            requests: 2,
            input_tokens: 6,
            output_tokens: 4,
            ..Usage::default()
        };
        assert_eq!(generation.usage, usage, "{name}");

        let seen = seen.lock().expect("not poisoned");
        let said = |n: usize| {
            let messages = seen[n]["messages"].as_array().expect("messages").iter();
            let said: Vec<_> = messages.filter(|m| m["role"] != "system").cloned().collect();
            said
        };
        assert_eq!(said(0).len(), 1, "{name}");
        let second = said(1);
        assert_eq!(second[..1], said(0)[..], "{name}");
        assert_eq!(second[1], json!({"role": "assistant", "content": "{\"wrong\": 1}"}));
        let told = second[2]["content"].as_str().expect("text");
        assert!(told.contains("it has no candidates"), "{name}");
        for body in &*seen {
            let system = body["system"].as_str().or(body["messages"][0]["content"].as_str());
            let system = system.expect("text");
            assert!(system.starts_with("Instruction set powercontext.memory.extract.v1\n"));
            assert!(system.ends_with(r#"{"type":"object"}"#));
        }
    }
}

#[tokio::test]
async fn a_usage_that_is_missing_or_absurd_is_told_and_bounded() {
    for (usage, input_tokens, is_complete) in [
        (json!(null), 0, false),
        (json!({"prompt_tokens": "3", "input_tokens": -3}), 0, false),
        (
            json!({"prompt_tokens": u64::MAX, "input_tokens": u64::MAX, "completion_tokens": 1, "output_tokens": 1}),
            1_000_000_000,
            true,
        ),
    ] {
        let mut body = reply("{\"candidates\": []}");
        body["usage"] = usage.clone();
        let provider = custom(both("/v1", async move || Json(body))).await;
        for (name, client) in provider.clients() {
            let found = ask(&*client).await.expect("an answer").usage;
            assert_eq!(found.input_tokens, input_tokens, "{name}: {usage}");
            assert_eq!(found.input_complete, is_complete, "{name}: {usage}");
            assert_eq!(found.output_complete, is_complete, "{name}: {usage}");
        }
    }
}

#[tokio::test]
async fn headers_and_settings_are_sent() {
    let seen: Arc<Mutex<Vec<(HeaderMap, Value)>>> = Arc::default();
    let log = seen.clone();
    let handler = async move |headers: HeaderMap, Json(body): Json<Value>| {
        log.lock().expect("not poisoned").push((headers, body));
        Json(reply("{\"candidates\": []}"))
    };
    let provider = custom(both("/v1", handler)).await;
    let mut settings = provider.settings();
    settings
        .headers
        .insert("X-Tenant".to_owned(), SecretString::from("blue"));
    settings.model_settings.insert("temperature".to_owned(), json!(0));
    for (_, client) in clients(&settings) {
        ask(&*client).await.expect("an answer");
    }
    let seen = seen.lock().expect("not poisoned");
    assert_eq!(seen.len(), 2);
    for (headers, body) in &*seen {
        assert_eq!(headers["x-tenant"], "blue");
        assert_eq!((&body["model"], &body["temperature"]), (&json!("dev"), &json!(0)));
        assert_eq!(body["stream"], json!(false));
    }
}

#[tokio::test]
async fn a_probe_asks_for_one_token_and_a_slow_model_still_answers_it() {
    let provider = model(SLOW).await;
    for (name, client) in provider.impatient() {
        assert_eq!(client.probe().await, Ok(()), "{name}");
    }
    assert_eq!((provider.count("probes").await, provider.count("chat").await), (2, 0));
    let provider = failing(Fail::ServerError, None).await;
    for (name, client) in provider.clients() {
        assert_eq!(client.probe().await, Err(InferenceError::Unavailable), "{name}");
    }
}

#[test]
fn settings_that_make_no_client_are_refused_without_repeating_them() {
    type Change = fn(&mut ClientSettings);
    let table: [(Change, Option<ClientFault>); 9] = [
        (|_| {}, None),
        (|s| s.model.clear(), Some(ClientFault::Model)),
        (
            |s| s.api_key = Some(SecretString::from("a\nb")),
            Some(ClientFault::Header),
        ),
        (
            |s| drop(s.headers.insert("a b".to_owned(), "x".into())),
            Some(ClientFault::Header),
        ),
        (
            |s| drop(s.headers.insert("Host".to_owned(), "x".into())),
            Some(ClientFault::Header),
        ),
        (
            |s| drop(s.headers.insert("x".to_owned(), "a\nb".into())),
            Some(ClientFault::Header),
        ),
        (
            |s| drop(s.model_settings.insert("messages".to_owned(), json!([]))),
            Some(ClientFault::ModelSettings),
        ),
        (
            |s| drop(s.model_settings.insert("extra_headers".to_owned(), json!({}))),
            Some(ClientFault::ModelSettings),
        ),
        (
            |s| drop(s.model_settings.insert("stream".to_owned(), json!(true))),
            Some(ClientFault::ModelSettings),
        ),
    ];
    for (n, (change, fault)) in table.into_iter().enumerate() {
        let mut settings = ClientSettings::new("m", openai::DEFAULT_BASE_URL);
        change(&mut settings);
        assert_eq!(OpenAiChat::new(settings.clone()).err(), fault, "{n}");
        assert_eq!(Anthropic::new(settings).err(), fault, "{n}");
    }
}

#[test]
fn plain_http_goes_to_loopback_only_unless_allowed() {
    use ClientFault::{BaseUrl, Insecure};
    for (url, closed, open) in [
        ("https://a/v1", None, None),
        ("http://localhost:1/v1", None, None),
        ("http://127.8.8.8/v1", None, None),
        ("http://[::1]/v1", None, None),
        ("http://a/v1", Some(Insecure), None),
        ("http://localhost.example/v1", Some(Insecure), None),
        ("http://0.0.0.0/v1", Some(Insecure), None),
        ("http://10.0.0.1/v1", Some(Insecure), None),
        ("", Some(BaseUrl), Some(BaseUrl)),
        ("x", Some(BaseUrl), Some(BaseUrl)),
        ("ftp://a/v1", Some(BaseUrl), Some(BaseUrl)),
        ("file:///v1", Some(BaseUrl), Some(BaseUrl)),
        ("https://u:p@a/v1", Some(BaseUrl), Some(BaseUrl)),
        ("https://u@a/v1", Some(BaseUrl), Some(BaseUrl)),
        ("https://a/v1?k=1", Some(BaseUrl), Some(BaseUrl)),
        ("http://127.0.0.1/v1#f", Some(BaseUrl), Some(BaseUrl)),
    ] {
        for (allow_insecure_http, fault) in [(false, closed), (true, open)] {
            let settings = ClientSettings {
                allow_insecure_http,
                ..ClientSettings::new("m", url)
            };
            assert_eq!(OpenAiChat::new(settings.clone()).err(), fault, "{url}");
            assert_eq!(Anthropic::new(settings).err(), fault, "{url}");
        }
    }
}

#[test]
fn settings_do_not_show_their_secrets() {
    let mut settings = ClientSettings::new("m", openai::DEFAULT_BASE_URL);
    settings.api_key = Some(SecretString::from("sk-hidden"));
    settings.headers.insert("x".to_owned(), SecretString::from("sk-hidden"));
    assert!(!format!("{settings:?}").contains("sk-hidden"));
}

#[test]
fn one_code_fence_is_taken_away() {
    for (text, inner) in [
        ("{}", "{}"),
        (" {} \n", "{}"),
        ("```json\n{}\n```", "{}"),
        ("```\n{}\n```\n", "{}"),
        ("```{}", "```{}"),
    ] {
        assert_eq!(unfenced(text), inner, "{text:?}");
    }
}
