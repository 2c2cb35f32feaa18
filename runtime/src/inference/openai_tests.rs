use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::dev::model::{Fail, ModelOptions, serve, serve_router};
use crate::inference::Instructions;

/// A provider on loopback that ends with the test.
struct Provider {
    address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn bind() -> (TcpListener, Provider) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let provider = Provider {
        address: listener.local_addr().expect("bound"),
        stop: CancellationToken::new(),
    };
    (listener, provider)
}

async fn model(options: ModelOptions) -> Provider {
    let (listener, provider) = bind().await;
    rt::spawn(serve(listener, options, provider.stop.clone()));
    provider
}

async fn failing(fail: Fail, fail_first: Option<u64>) -> Provider {
    model(ModelOptions {
        fail: Some(fail),
        fail_first,
        ..ModelOptions::default()
    })
    .await
}

async fn custom(router: Router) -> Provider {
    let (listener, provider) = bind().await;
    rt::spawn(serve_router(listener, router, provider.stop.clone()));
    provider
}

impl Provider {
    fn settings(&self) -> OpenAiSettings {
        OpenAiSettings {
            timeout: Duration::from_secs(10),
            ..OpenAiSettings::new("dev", format!("http://{}/v1", self.address))
        }
    }

    fn client(&self) -> OpenAiChat {
        OpenAiChat::new(self.settings()).expect("valid settings")
    }

    fn impatient(&self) -> OpenAiChat {
        OpenAiChat::new(OpenAiSettings {
            timeout: Duration::from_millis(200),
            ..self.settings()
        })
        .expect("valid settings")
    }

    async fn count(&self, what: &str) -> u64 {
        let url = format!("http://{}/requests", self.address);
        let client = Client::builder().no_proxy().build().expect("plain client");
        let counts: Value = client.get(url).send().await.expect("up").json().await.expect("JSON");
        counts[what].as_u64().expect("a count")
    }
}

fn is_answer(value: &Value) -> Result<(), &'static str> {
    value["candidates"].as_array().map(drop).ok_or("it has no candidates")
}

async fn ask(client: &OpenAiChat) -> Result<Generation, InferenceError> {
    let schema = json!({"type": "object"});
    let input = json!({
        "evidence": [{"evidence_id": "source:0", "evidence_type": "source", "content": {"content": "必ず二人で確認する。"}}],
        "current_entries": [],
    });
    let request = GenerationRequest {
        instructions: Instructions {
            version: "powercontext.memory.extract.v1",
            text: "Extract.",
        },
        schema: &schema,
        input: &input,
        check: &is_answer,
    };
    client.generate(request).await
}

fn completion(text: &str) -> Value {
    json!({"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
}

#[tokio::test]
async fn an_answer_comes_over_http_with_its_usage() {
    let provider = model(ModelOptions::default()).await;
    let generation = ask(&provider.client()).await.expect("an answer");
    assert_eq!(generation.value["candidates"][0]["text"], "必ず二人で確認する。");
    assert_eq!(generation.usage.requests, 1);
    assert!(generation.usage.input_tokens > 0 && generation.usage.output_tokens > 0);
    assert_eq!(provider.count("chat").await, 1);
}

#[tokio::test]
async fn a_model_slower_than_the_timeout_is_a_timeout() {
    let provider = model(ModelOptions {
        delay: Duration::from_mins(1),
        ..ModelOptions::default()
    })
    .await;
    assert_eq!(ask(&provider.impatient()).await, Err(InferenceError::Timeout));
    let slow = failing(Fail::Slow, None).await;
    assert_eq!(ask(&slow.impatient()).await, Err(InferenceError::Timeout));
}

#[tokio::test]
async fn busy_and_broken_providers_are_unavailable_and_asked_once() {
    for fail in [Fail::TooManyRequests, Fail::ServerError] {
        let provider = failing(fail, None).await;
        assert_eq!(
            ask(&provider.client()).await,
            Err(InferenceError::Unavailable),
            "{fail:?}"
        );
        assert_eq!(provider.count("chat").await, 1, "{fail:?}");
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_unavailable() {
    let (listener, provider) = bind().await;
    drop(listener);
    assert_eq!(ask(&provider.client()).await, Err(InferenceError::Unavailable));
}

#[tokio::test]
async fn broken_and_empty_answers_are_asked_for_again_once_and_then_invalid() {
    for fail in [Fail::Malformed, Fail::Empty] {
        let provider = failing(fail, None).await;
        assert_eq!(
            ask(&provider.client()).await,
            Err(InferenceError::InvalidOutput),
            "{fail:?}"
        );
        assert_eq!(provider.count("chat").await, 2, "{fail:?}");

        let provider = failing(fail, Some(1)).await;
        let generation = ask(&provider.client()).await.expect("right the second time");
        assert_eq!(generation.usage.requests, 2, "{fail:?}");
    }
}

#[tokio::test]
async fn statuses_have_their_classes() {
    use InferenceError::{Rejected, Timeout, Unavailable};
    let provider = custom(Router::new().route(
        "/{status}/chat/completions",
        post(async |axum::extract::Path(status): axum::extract::Path<u16>| {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, "a body with a secret").into_response()
        }),
    ))
    .await;
    for (status, class) in [
        (400, Rejected),
        (401, Rejected),
        (403, Rejected),
        (404, Rejected),
        (422, Rejected),
        (408, Timeout),
        (504, Timeout),
        (409, Unavailable),
        (425, Unavailable),
        (429, Unavailable),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
    ] {
        let mut settings = provider.settings();
        settings.base_url = format!("http://{}/{status}/", provider.address);
        let client = OpenAiChat::new(settings).expect("valid settings");
        assert_eq!(ask(&client).await, Err(class), "{status}");
        assert_eq!(client.probe().await, Err(class), "{status}");
    }
}

#[tokio::test]
async fn a_redirect_is_refused_and_not_followed() {
    let followed = Arc::new(AtomicUsize::new(0));
    let seen = followed.clone();
    let router = Router::new()
        .route("/v1/chat/completions", post(async || Redirect::to("/elsewhere")))
        .route(
            "/elsewhere",
            get(async move || {
                seen.fetch_add(1, Ordering::SeqCst);
                Json(completion("{\"candidates\": []}"))
            }),
        );
    let provider = custom(router).await;
    assert_eq!(ask(&provider.client()).await, Err(InferenceError::Rejected));
    assert_eq!(followed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_wrong_answer_is_shown_to_the_model_with_the_reason() {
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = seen.clone();
    let router = Router::new().route(
        "/v1/chat/completions",
        post(async move |Json(body): Json<Value>| {
            let mut log = log.lock().expect("not poisoned");
            log.push(body["messages"].clone());
            let texts = ["{\"wrong\": 1}", "```json\n{\"candidates\": []}\n```"];
            Json(completion(texts[log.len() - 1]))
        }),
    );
    let provider = custom(router).await;
    let generation = ask(&provider.client()).await.expect("right the second time");
    assert_eq!(generation.value, json!({"candidates": []}));
    let usage = Usage {
        requests: 2,
        input_tokens: 6,
        output_tokens: 4,
    };
    assert_eq!(generation.usage, usage);

    let seen = seen.lock().expect("not poisoned");
    let first = seen[0].as_array().expect("messages");
    assert_eq!(first.len(), 2);
    let system = first[0]["content"].as_str().expect("text");
    assert!(system.starts_with("Instruction set powercontext.memory.extract.v1\n"));
    assert!(system.ends_with(r#"{"type":"object"}"#));
    let second = seen[1].as_array().expect("messages");
    assert_eq!(second[..2], first[..]);
    assert_eq!(second[2], json!({"role": "assistant", "content": "{\"wrong\": 1}"}));
    assert!(
        second[3]["content"]
            .as_str()
            .expect("text")
            .contains("it has no candidates")
    );
}

#[tokio::test]
async fn a_reply_is_read_up_to_4_mib() {
    // The answer is padded so that the whole body has the size in the path.
    let padded = async |axum::extract::Path(size): axum::extract::Path<usize>| -> Response {
        let mut body = completion("{\"candidates\": []}").to_string();
        body.push_str(&" ".repeat(size - body.len()));
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    };
    let provider = custom(Router::new().route("/{size}/chat/completions", post(padded))).await;
    for (size, accepted) in [(RESPONSE_BYTES_MAX, true), (RESPONSE_BYTES_MAX + 1, false)] {
        let mut settings = provider.settings();
        settings.base_url = format!("http://{}/{size}", provider.address);
        let answer = ask(&OpenAiChat::new(settings).expect("valid settings")).await;
        assert_eq!(answer.is_ok(), accepted, "{size}");
        assert!(accepted || answer == Err(InferenceError::InvalidOutput));
    }
}

#[tokio::test]
async fn a_body_that_is_no_completion_is_invalid_output() {
    for body in ["", "<html>", "[]", "{\"choices\": []}", "{\"choices\": [{}]}"] {
        let router = Router::new().route("/v1/chat/completions", post(async move || body));
        let provider = custom(router).await;
        assert_eq!(
            ask(&provider.client()).await,
            Err(InferenceError::InvalidOutput),
            "{body}"
        );
    }
}

#[tokio::test]
async fn key_headers_and_settings_are_sent() {
    let seen: Arc<Mutex<Option<(HeaderMap, Value)>>> = Arc::default();
    let log = seen.clone();
    let router = Router::new().route(
        "/v1/chat/completions",
        post(async move |headers: HeaderMap, Json(body): Json<Value>| {
            *log.lock().expect("not poisoned") = Some((headers, body));
            Json(completion("{\"candidates\": []}"))
        }),
    );
    let provider = custom(router).await;
    let mut settings = provider.settings();
    settings.api_key = Some(SecretString::from("sk-test"));
    settings
        .headers
        .insert("X-Tenant".to_owned(), SecretString::from("blue"));
    settings.model_settings.insert("temperature".to_owned(), json!(0));
    ask(&OpenAiChat::new(settings).expect("valid settings"))
        .await
        .expect("an answer");
    let seen = seen.lock().expect("not poisoned").take().expect("asked");
    assert_eq!(seen.0[AUTHORIZATION], "Bearer sk-test");
    assert_eq!(seen.0["x-tenant"], "blue");
    assert_eq!((&seen.1["model"], &seen.1["temperature"]), (&json!("dev"), &json!(0)));
}

#[tokio::test]
async fn a_probe_asks_for_one_token_and_a_slow_model_still_answers_it() {
    let provider = model(ModelOptions {
        delay: Duration::from_mins(1),
        ..ModelOptions::default()
    })
    .await;
    assert_eq!(provider.impatient().probe().await, Ok(()));
    assert_eq!((provider.count("probes").await, provider.count("chat").await), (1, 0));
    let provider = failing(Fail::ServerError, None).await;
    assert_eq!(provider.client().probe().await, Err(InferenceError::Unavailable));
}

#[test]
fn settings_that_make_no_client_are_refused_without_repeating_them() {
    let refused = |change: fn(&mut OpenAiSettings)| {
        let mut settings = OpenAiSettings::new("m", DEFAULT_BASE_URL);
        change(&mut settings);
        OpenAiChat::new(settings).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|s| s.model.clear()), Some(ClientFault::Model));
    for url in [
        "",
        "x",
        "ftp://a/v1",
        "http://u:p@a/v1",
        "http://a/v1?k=1",
        "http://a/v1#f",
        "file:///v1",
    ] {
        let mut settings = OpenAiSettings::new("m", url);
        settings.api_key = None;
        assert_eq!(OpenAiChat::new(settings).err(), Some(ClientFault::BaseUrl), "{url}");
    }
    assert_eq!(
        refused(|s| s.api_key = Some(SecretString::from("a\nb"))),
        Some(ClientFault::Header)
    );
    assert_eq!(
        refused(|s| drop(s.model_settings.insert("messages".to_owned(), json!([])))),
        Some(ClientFault::ModelSettings)
    );
}

#[test]
fn settings_do_not_show_their_secrets() {
    let mut settings = OpenAiSettings::new("m", DEFAULT_BASE_URL);
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
