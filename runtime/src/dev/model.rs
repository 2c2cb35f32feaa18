//! A deterministic model behind the interfaces of `OpenAI` and Anthropic, for the demonstration, for tests and for a cluster
//! without a provider.
//!
//! It serves `/v1/chat/completions`, `/v1/messages` and `/v1/embeddings`, chooses its answer by the instruction version in the system
//! message, and cites the evidence ids that it was given. The same request always has the same answer. It can be told to
//! be slow or to fail, and says at `/requests` how often it was asked. It is no part of a deployment's promises: its accept
//! loop bounds headers and bodies, and that is all.

mod embed;
mod extract;

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::rt;

/// Largest request body, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest wait for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before each byte of a slow answer.
const SLOW_BYTE: Duration = Duration::from_millis(250);

/// How the model fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    /// Says that there are too many requests.
    TooManyRequests,
    /// Breaks down.
    ServerError,
    /// Answers with broken JSON.
    Malformed,
    /// Answers with nothing.
    Empty,
    /// Answers byte by byte, four of them a second.
    Slow,
}

impl Fail {
    /// Every way.
    pub const ALL: [Self; 5] = [
        Self::TooManyRequests,
        Self::ServerError,
        Self::Malformed,
        Self::Empty,
        Self::Slow,
    ];

    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooManyRequests => "429",
            Self::ServerError => "500",
            Self::Malformed => "malformed",
            Self::Empty => "empty",
            Self::Slow => "slow",
        }
    }
}

/// Not a way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 429, 500, malformed, empty or slow")]
pub struct UnknownFail;

impl FromStr for Fail {
    type Err = UnknownFail;
    fn from_str(name: &str) -> Result<Self, UnknownFail> {
        Self::ALL
            .into_iter()
            .find(|fail| fail.as_str() == name)
            .ok_or(UnknownFail)
    }
}

/// How the model behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelOptions {
    /// Time before each answer. Probes (`max_tokens` 1) are answered at once, so that a slow model still counts as there.
    pub delay: Duration,
    /// How it fails, if it does.
    pub fail: Option<Fail>,
    /// Fails only the first so many requests; `None` fails all.
    pub fail_first: Option<u64>,
    /// Fails only so long after the start; `None` fails for ever.
    pub fail_for: Option<Duration>,
}

/// Switches of `powercontext dev model`.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long)]
    pub port: u16,
    /// Seconds before each answer.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub delay: Option<Duration>,
    /// Fail every request: 429, 500, malformed, empty or slow.
    #[arg(long, value_name = "HOW")]
    pub fail: Option<Fail>,
    /// Fail only the first N requests.
    #[arg(long, value_name = "N", requires = "fail")]
    pub fail_first: Option<u64>,
    /// Fail only in the first so many seconds.
    #[arg(long, value_name = "SECONDS", requires = "fail", value_parser = parse_seconds)]
    pub fail_for: Option<Duration>,
}

fn parse_seconds(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "must be a number of seconds from 0 to 86400";
    let seconds: f64 = text.parse().map_err(|_| WRONG)?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(WRONG)
    }
}

/// Runs `powercontext dev model` until `shutdown`; prints the base URL once it listens.
///
/// # Errors
/// When the address cannot be bound.
pub async fn run(args: ModelArgs, shutdown: CancellationToken) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(args.host, args.port)).await?;
    println!("listening on http://{}/v1", listener.local_addr()?);
    let options = ModelOptions {
        delay: args.delay.unwrap_or_default(),
        fail: args.fail,
        fail_first: args.fail_first,
        fail_for: args.fail_for,
    };
    serve(listener, options, shutdown).await;
    Ok(())
}

/// Serves the model on a bound socket until `shutdown`; open requests are dropped then.
pub async fn serve(listener: TcpListener, options: ModelOptions, shutdown: CancellationToken) {
    serve_router(listener, router(options), shutdown).await;
}

/// Serves any router in the model's way: for tests that need a provider with manners of its own.
pub async fn serve_router(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((socket, _)) = accepted else {
            // Out of descriptors, or the peer left: try again shortly, without spinning.
            rt::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let shutdown = shutdown.clone();
        rt::spawn(connections.track_future(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(socket), service);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                // A peer that goes away in the middle is its own affair.
                _ = connection => {}
            }
        }));
    }
    connections.close();
    connections.wait().await;
}

struct Model {
    options: ModelOptions,
    started: Instant,
    chat: AtomicU64,
    embeddings: AtomicU64,
    probes: AtomicU64,
    // Every request in one sequence: that is what `fail_first` counts.
    asked: AtomicU64,
    in_flight: AtomicU64,
}

/// Counts a request as in flight until it is answered or dropped.
struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn router(options: ModelOptions) -> Router {
    let model = Arc::new(Model {
        options,
        started: rt::now(),
        chat: AtomicU64::new(0),
        embeddings: AtomicU64::new(0),
        probes: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        in_flight: AtomicU64::new(0),
    });
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/messages", post(messages))
        .route("/v1/embeddings", post(embeddings))
        .route("/requests", get(requests))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(model)
}

async fn requests(State(model): State<Arc<Model>>) -> Json<Value> {
    let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
    Json(json!({
        "chat": read(&model.chat),
        "embeddings": read(&model.embeddings),
        "probes": read(&model.probes),
        "in_flight": read(&model.in_flight),
    }))
}

async fn chat(State(model): State<Arc<Model>>, Json(body): Json<Value>) -> Response {
    let system = first_message(&body, "system");
    model.generate(&body, system, completion).await
}

async fn messages(State(model): State<Arc<Model>>, Json(body): Json<Value>) -> Response {
    let system = body["system"].as_str().unwrap_or_default();
    model.generate(&body, system, message).await
}

async fn embeddings(State(model): State<Arc<Model>>, Json(body): Json<Value>) -> Response {
    let fail = model.next_fail();
    model.embeddings.fetch_add(1, Ordering::SeqCst);
    let _in_flight = InFlight::enter(&model.in_flight);
    rt::sleep(model.options.delay).await;
    match embed::response(&body) {
        Some(response) => respond(fail, &response),
        None => refuse(StatusCode::BAD_REQUEST, "invalid_request"),
    }
}

impl Model {
    /// Answers one generation or probe in the form of an interface.
    async fn generate(&self, body: &Value, system: &str, form: fn(&Value, &str) -> Value) -> Response {
        if body["max_tokens"] == json!(1) {
            self.probes.fetch_add(1, Ordering::SeqCst);
            return respond(self.next_fail(), &form(body, "o"));
        }
        let fail = self.next_fail();
        self.chat.fetch_add(1, Ordering::SeqCst);
        let _in_flight = InFlight::enter(&self.in_flight);
        rt::sleep(self.options.delay).await;
        respond(fail, &form(body, &answer(system, first_message(body, "user"))))
    }

    fn next_fail(&self) -> Option<Fail> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let is_early = self.options.fail_first.is_none_or(|first| number < first);
        let is_outage = self.options.fail_for.is_none_or(|span| rt::now() < self.started + span);
        self.options.fail.filter(|_| is_early && is_outage)
    }
}

fn first_message<'a>(body: &'a Value, role: &str) -> &'a str {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let message = messages.iter().find(|m| m["role"] == role);
    message.and_then(|m| m["content"].as_str()).unwrap_or_default()
}

/// The text of the answer: chosen by the instruction version that the system text names.
fn answer(system: &str, user: &str) -> String {
    let input: Value = serde_json::from_str(user).unwrap_or_default();
    if system.contains("powercontext.memory.extract.") {
        extract::answer(&input).to_string()
    } else {
        "{}".to_owned()
    }
}

/// Four bytes a token, near enough to be plausible in a usage table.
fn tokens(body: &Value, text: &str) -> (usize, usize) {
    let said = body["messages"].to_string().len() + body["system"].as_str().map_or(0, str::len);
    (said / 4, text.len().div_ceil(4))
}

fn message(body: &Value, text: &str) -> Value {
    let (read, written) = tokens(body, text);
    json!({
        "id": "msg_dev",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": read, "output_tokens": written},
    })
}

fn completion(body: &Value, text: &str) -> Value {
    let (read, written) = tokens(body, text);
    json!({
        "id": "chatcmpl-dev",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    })
}

fn respond(fail: Option<Fail>, response: &Value) -> Response {
    match fail {
        None => Json(response).into_response(),
        Some(Fail::TooManyRequests) => refuse(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
        Some(Fail::ServerError) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        Some(Fail::Malformed) => Json(with_text(response, "{\"candidates\": [{\"intent\":")).into_response(),
        Some(Fail::Empty) => Json(with_text(response, "")).into_response(),
        Some(Fail::Slow) => slowly(response),
    }
}

/// The response with another answer in it; an embeddings response loses its vectors instead.
fn with_text(response: &Value, text: &str) -> Value {
    let mut response = response.clone();
    for place in ["/choices/0/message/content", "/content/0/text"] {
        if let Some(content) = response.pointer_mut(place) {
            *content = Value::from(text);
            return response;
        }
    }
    response["data"] = json!([]);
    response
}

fn refuse(status: StatusCode, code: &str) -> Response {
    let error = json!({"error": {"message": "refused by the deterministic model", "type": code, "code": code}});
    (status, Json(error)).into_response()
}

fn slowly(response: &Value) -> Response {
    let bytes = Bytes::from(response.to_string());
    let body = stream::unfold(bytes, |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        rt::sleep(SLOW_BYTE).await;
        let first = rest.split_to(1);
        Some((Ok::<_, io::Error>(first), rest))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
