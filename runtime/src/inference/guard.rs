//! What every provider client has in common: one guarded way out of the process, and one loop that asks, judges and asks
//! again.
//!
//! A client of a provider is a [`Wire`]: it writes bodies and reads replies, and never touches the network. Everything that
//! protects the deployment is here, once: https outside loopback unless allowed, no redirects (a key must not travel to an
//! address that nobody configured), a deadline over all requests of one generation, a cap on the bytes of a reply, and
//! error bodies that are dropped unread.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use super::{Check, Generation, GenerationRequest, InferenceError, Usage};
use crate::rt;

/// Largest reply that is read, in bytes.
pub const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest refused answer that the model is shown again, in bytes.
const REPEATED_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Headers that belong to the connection or to the client.
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// What a deployment sets for a model.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Name of the model, without the provider's prefix.
    pub model: String,
    /// Address of the provider, such as `http://127.0.0.1:8080/v1`.
    pub base_url: String,
    /// Whether plain http may leave this machine.
    pub allow_insecure_http: bool,
    /// Sent as the provider wants it.
    pub api_key: Option<SecretString>,
    /// More headers; their values are secret.
    pub headers: BTreeMap<String, SecretString>,
    /// More members of the request body, such as `temperature`.
    pub model_settings: Map<String, Value>,
    /// Time for one generation, repair included.
    pub timeout: Duration,
    /// Most requests of one generation, at least 1.
    pub requests_max: u32,
}

impl ClientSettings {
    /// Settings with the documented defaults: 30 s, 2 requests, no key.
    pub fn new(model: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            base_url: base_url.into(),
            allow_insecure_http: false,
            api_key: None,
            headers: BTreeMap::new(),
            model_settings: Map::new(),
            timeout: Duration::from_secs(30),
            requests_max: 2,
        }
    }
}

/// Why settings make no client. Never carries a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// No model is named.
    #[error("the model's name is empty")]
    Model,
    /// Not an address that a request can go to.
    #[error("the base URL must be http or https, without user, query or fragment")]
    BaseUrl,
    /// Prompts and keys would cross a network in plain text.
    #[error("the base URL must be https, because it is no loopback address")]
    Insecure,
    /// A key or header that HTTP cannot carry, or that the client sets itself.
    #[error("a key or header holds characters that HTTP cannot carry, or is one that the client sets itself")]
    Header,
    /// A setting that would replace what the client must set itself.
    #[error("model settings must not set what the client sets: model, messages, stream, extra_headers")]
    ModelSettings,
    /// The TLS or connection layer did not start.
    #[error("the HTTP client cannot be built")]
    Build,
}

/// Who says a turn of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
}

impl Speaker {
    /// The role's name, which all providers share.
    pub(super) const fn role(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One turn of a conversation.
pub(super) struct Turn {
    pub(super) speaker: Speaker,
    pub(super) text: String,
}

impl Turn {
    fn user(text: impl Into<String>) -> Self {
        Self {
            speaker: Speaker::User,
            text: text.into(),
        }
    }
}

/// What is asked in one request.
pub(super) struct Ask<'a> {
    /// Instructions and schema; `None` for a probe.
    pub(super) system: Option<&'a str>,
    /// What was said so far, ending with the user.
    pub(super) turns: &'a [Turn],
    /// Most tokens of the answer; `None` for what the settings say.
    pub(super) tokens_max: Option<u32>,
}

/// One reply.
#[derive(Default)]
pub(super) struct Reply {
    /// Its text; `None` when it had not the form of a reply.
    pub(super) text: Option<String>,
    /// Tokens read, if it said so.
    pub(super) input_tokens: Option<u64>,
    /// Tokens written, if it said so.
    pub(super) output_tokens: Option<u64>,
}

/// A provider's form of requests and replies.
pub(super) trait Wire: Sized + Send + Sync {
    /// Path under the base URL.
    fn path(base: &Url) -> &'static str;

    /// Members of the body that model settings must not set.
    const OWN_SETTINGS: &'static [&'static str];

    /// Headers of the provider, the key among them.
    fn headers(key: Option<&SecretString>, into: &mut HeaderMap) -> Result<(), ClientFault>;

    /// Takes what every body holds: the model settings with model and stream.
    fn new(body: Map<String, Value>) -> Self;

    /// A request's body.
    fn body(&self, ask: &Ask<'_>) -> Map<String, Value>;

    /// Reads a reply.
    fn read(bytes: &[u8]) -> Reply;
}

/// A provider behind the guard.
pub(super) struct Guarded<W> {
    client: Client,
    url: Url,
    timeout: Duration,
    requests_max: u32,
    pub(super) wire: W,
}

/// Why a request has no reply: its class, and whether the provider blamed the request's form (400).
pub(super) struct Refusal {
    pub(super) class: InferenceError,
    pub(super) is_bad_request: bool,
}

impl From<InferenceError> for Refusal {
    fn from(class: InferenceError) -> Self {
        Self {
            class,
            is_bad_request: false,
        }
    }
}

impl<W: Wire> Guarded<W> {
    /// Builds a client; sends nothing.
    ///
    /// # Errors
    /// [`ClientFault`] with the first setting that is wrong.
    pub(super) fn new(settings: ClientSettings) -> Result<Self, ClientFault> {
        if settings.model.is_empty() {
            return Err(ClientFault::Model);
        }
        let base = base_url(&settings.base_url, settings.allow_insecure_http)?;
        let path = format!("{}/{}", base.as_str().trim_end_matches('/'), W::path(&base));
        let url = Url::parse(&path).map_err(|_| ClientFault::BaseUrl)?;
        let mut body = settings.model_settings;
        let own = ["model", "messages", "stream", "extra_headers"];
        if own.iter().chain(W::OWN_SETTINGS).any(|name| body.contains_key(*name)) {
            return Err(ClientFault::ModelSettings);
        }
        body.insert("model".to_owned(), Value::from(settings.model));
        body.insert("stream".to_owned(), Value::from(false));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        W::headers(settings.api_key.as_ref(), &mut headers)?;
        more_headers(&settings.headers, &mut headers)?;
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.timeout)
            .default_headers(headers);
        if is_loopback(&url) {
            builder = builder.no_proxy();
            if url.scheme() == "http" {
                // Nothing is encrypted, nothing is redirected: the machine's authorities need not be read, a tenth of a child's start.
                builder = builder.tls_certs_only([]);
            }
        }
        Ok(Self {
            client: builder.build().map_err(|_| ClientFault::Build)?,
            url,
            timeout: settings.timeout,
            requests_max: settings.requests_max.max(1),
            wire: W::new(body),
        })
    }

    /// Asks for one answer, and for its repair while requests and time are left.
    pub(super) async fn generate(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
        let answer = rt::within(self.timeout, self.converse(request)).await;
        answer.unwrap_or(Err(InferenceError::Timeout))
    }

    /// Sends the smallest request with the given body members; the form of a reply is what counts, for one token is often
    /// no text at all.
    pub(super) async fn probe(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Result<(), Refusal> {
        let ask = Ask {
            system: None,
            turns: &[Turn::user("ping")],
            tokens_max: Some(1),
        };
        let mut body = self.wire.body(&ask);
        change(&mut body);
        let reply = rt::within(self.timeout, self.send(&body)).await;
        let reply = reply.unwrap_or_else(|_| Err(InferenceError::Timeout.into()))?;
        reply.text.map(drop).ok_or(InferenceError::InvalidOutput.into())
    }

    async fn converse(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
        let system = system_message(&request);
        let mut turns = vec![Turn::user(request.input.to_string())];
        let mut usage = Usage::default();
        for _ in 0..self.requests_max {
            let body = self.wire.body(&Ask {
                system: Some(&system),
                turns: &turns,
                tokens_max: None,
            });
            let reply = self.send(&body).await.map_err(|refusal| refusal.class)?;
            usage.add(reply.input_tokens, reply.output_tokens);
            match judge(reply.text.as_deref(), request.check) {
                Ok(value) => return Ok(Generation { value, usage }),
                Err(why) => turns.extend(again(reply.text, why)),
            }
        }
        Err(InferenceError::InvalidOutput)
    }

    async fn send(&self, body: &Map<String, Value>) -> Result<Reply, Refusal> {
        let response = self.client.post(self.url.clone()).json(body).send().await;
        let mut response = response.map_err(|e| transport(&e))?;
        if let Some(class) = refusal(response.status()) {
            return Err(Refusal {
                class,
                is_bad_request: response.status() == StatusCode::BAD_REQUEST,
            });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| transport(&e))? {
            if bytes.len() + chunk.len() > RESPONSE_BYTES_MAX {
                return Err(InferenceError::InvalidOutput.into());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(W::read(&bytes))
    }
}

/// The refused answer, unless it is empty or too long to repeat, and what is wrong with it.
fn again(answer: Option<String>, why: &str) -> impl Iterator<Item = Turn> {
    let shown = answer.filter(|text| !text.trim().is_empty() && text.len() <= REPEATED_ANSWER_BYTES_MAX);
    let shown = shown.map(|text| Turn {
        speaker: Speaker::Assistant,
        text,
    });
    let told = format!("The answer was refused: {why}. Answer again with the corrected JSON value alone.");
    shown.into_iter().chain([Turn::user(told)])
}

/// An address that prompts and keys may be sent to.
fn base_url(text: &str, allow_insecure_http: bool) -> Result<Url, ClientFault> {
    let url = Url::parse(text).map_err(|_| ClientFault::BaseUrl)?;
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.has_host();
    match url.scheme() {
        "https" if plain => Ok(url),
        "http" if plain && (allow_insecure_http || is_loopback(&url)) => Ok(url),
        "http" if plain => Err(ClientFault::Insecure),
        _ => Err(ClientFault::BaseUrl),
    }
}

/// Whether requests stay on this machine.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A header value that is not shown in debug output.
pub(super) fn secret_value(text: &str) -> Result<HeaderValue, ClientFault> {
    let mut value = HeaderValue::from_str(text).map_err(|_| ClientFault::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

fn more_headers(more: &BTreeMap<String, SecretString>, into: &mut HeaderMap) -> Result<(), ClientFault> {
    for (name, value) in more {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| ClientFault::Header)?;
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(ClientFault::Header);
        }
        into.insert(name, secret_value(value.expose_secret())?);
    }
    Ok(())
}

fn system_message(request: &GenerationRequest<'_>) -> String {
    format!(
        "Instruction set {}\n\n{}\nAnswer with one JSON value that matches this JSON Schema, and with nothing else:\n{}",
        request.instructions.version, request.instructions.text, request.schema
    )
}

/// The class of a failed exchange. The error itself may name the address, so it goes no further.
fn transport(error: &reqwest::Error) -> InferenceError {
    if error.is_timeout() {
        InferenceError::Timeout
    } else if error.is_builder() {
        InferenceError::Rejected
    } else {
        InferenceError::Unavailable
    }
}

/// What a status means when it is not a success. `Retry-After` is not read: the retry policy decides how long an item
/// waits, and a gate how long a provider does.
fn refusal(status: StatusCode) -> Option<InferenceError> {
    match status.as_u16() {
        200..=299 => None,
        408 | 504 => Some(InferenceError::Timeout),
        409 | 425 | 429 | 500..=599 => Some(InferenceError::Unavailable),
        _ => Some(InferenceError::Rejected),
    }
}

/// The JSON of an answer that passes its check, or why it does not.
fn judge(text: Option<&str>, check: Check<'_>) -> Result<Value, &'static str> {
    let text = text.ok_or("it had not the form of a reply")?;
    let value: Value = serde_json::from_str(unfenced(text)).map_err(|_| "it is not JSON")?;
    check(&value).map(|()| value)
}

/// Takes one code fence away, which many models put around JSON whatever they are told.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    match inner {
        Some(inner) => inner.strip_prefix("json").unwrap_or(inner).trim(),
        None => text,
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
