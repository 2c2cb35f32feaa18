//! Client for models behind the chat-completions interface of `OpenAI` (`openai-chat:NAME`).
//!
//! The output schema is part of the system message (prompted output, no tool calls), so any compatible server will do. All
//! requests of one generation share one deadline. Redirects are not followed: a key must not travel to an address that
//! nobody configured. A reply is read up to [`RESPONSE_BYTES_MAX`] and never kept.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Check, Generation, GenerationRequest, Generator, InferenceError, Usage};
use crate::rt;

/// Prefix of the model names that this client serves.
pub const PROVIDER: &str = "openai-chat";
/// Where requests go when no base URL is set.
pub const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
/// Largest reply that is read, in bytes.
pub const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest wait for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest refused answer that the model is shown again, in bytes.
const REPEATED_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a deployment sets for the model.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// Name of the model, without the provider's prefix.
    pub model: String,
    /// Address up to and including the version, such as `http://127.0.0.1:8080/v1`.
    pub base_url: String,
    /// Sent as a bearer token.
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

impl OpenAiSettings {
    /// Settings with the documented defaults: 30 s, 2 requests, no key.
    pub fn new(model: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            base_url: base_url.into(),
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
    /// A key or header that HTTP cannot carry.
    #[error("a key or header holds characters that HTTP cannot carry")]
    Header,
    /// A setting that would replace what the client must set itself.
    #[error("model settings must not set model, messages, stream or extra_headers")]
    ModelSettings,
    /// The TLS or connection layer did not start.
    #[error("the HTTP client cannot be built")]
    Build,
}

/// A model behind the chat-completions interface.
pub struct OpenAiChat {
    client: Client,
    url: Url,
    body: Map<String, Value>,
    timeout: Duration,
    requests_max: u32,
}

/// One reply: its text, if it had the form of a reply.
struct Reply {
    text: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
}

impl OpenAiChat {
    /// Builds a client; sends nothing.
    ///
    /// # Errors
    /// [`ClientFault`] with the first setting that is wrong.
    pub fn new(settings: OpenAiSettings) -> Result<Self, ClientFault> {
        if settings.model.is_empty() {
            return Err(ClientFault::Model);
        }
        let url = completions_url(&settings.base_url)?;
        let mut body = settings.model_settings;
        if ["model", "messages", "stream", "extra_headers"]
            .iter()
            .any(|name| body.contains_key(*name))
        {
            return Err(ClientFault::ModelSettings);
        }
        body.insert("model".to_owned(), Value::from(settings.model));
        body.insert("stream".to_owned(), Value::from(false));
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.timeout)
            .default_headers(headers(settings.api_key.as_ref(), &settings.headers)?);
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            client: builder.build().map_err(|_| ClientFault::Build)?,
            url,
            body,
            timeout: settings.timeout,
            requests_max: settings.requests_max.max(1),
        })
    }

    async fn ask(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
        let mut messages = vec![
            json!({"role": "system", "content": system_message(&request)}),
            json!({"role": "user", "content": request.input.to_string()}),
        ];
        let mut usage = Usage::default();
        for _ in 0..self.requests_max {
            let reply = self.send(&messages, None).await?;
            usage.requests += 1;
            usage.input_tokens = usage.input_tokens.saturating_add(reply.input_tokens);
            usage.output_tokens = usage.output_tokens.saturating_add(reply.output_tokens);
            match judge(reply.text.as_deref(), request.check) {
                Ok(value) => return Ok(Generation { value, usage }),
                Err(why) => {
                    let text = reply
                        .text
                        .filter(|t| !t.is_empty() && t.len() <= REPEATED_ANSWER_BYTES_MAX);
                    if let Some(text) = text {
                        messages.push(json!({"role": "assistant", "content": text}));
                    }
                    let again =
                        format!("The answer was refused: {why}. Answer again with the corrected JSON value alone.");
                    messages.push(json!({"role": "user", "content": again}));
                }
            }
        }
        Err(InferenceError::InvalidOutput)
    }

    async fn send(&self, messages: &[Value], tokens_max: Option<u32>) -> Result<Reply, InferenceError> {
        let mut body = self.body.clone();
        body.insert("messages".to_owned(), Value::from(messages));
        if let Some(tokens) = tokens_max {
            body.insert("max_tokens".to_owned(), Value::from(tokens));
        }
        let response = self.client.post(self.url.clone()).json(&body).send().await;
        let mut response = response.map_err(|e| transport(&e))?;
        if let Some(refused) = refusal(response.status()) {
            return Err(refused);
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| transport(&e))? {
            if bytes.len() + chunk.len() > RESPONSE_BYTES_MAX {
                return Err(InferenceError::InvalidOutput);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(read_reply(&bytes))
    }
}

#[async_trait]
impl Generator for OpenAiChat {
    async fn generate(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
        let answer = rt::within(self.timeout, self.ask(request)).await;
        answer.unwrap_or(Err(InferenceError::Timeout))
    }

    async fn probe(&self) -> Result<(), InferenceError> {
        let messages = [json!({"role": "user", "content": "ping"})];
        let reply = rt::within(self.timeout, self.send(&messages, Some(1))).await;
        let reply = reply.unwrap_or(Err(InferenceError::Timeout))?;
        // One token is often no text at all; the form of a reply is what counts.
        reply.text.map(drop).ok_or(InferenceError::InvalidOutput)
    }
}

fn completions_url(base: &str) -> Result<Url, ClientFault> {
    let url = Url::parse(base).map_err(|_| ClientFault::BaseUrl)?;
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.has_host();
    if !plain || !matches!(url.scheme(), "http" | "https") {
        return Err(ClientFault::BaseUrl);
    }
    let path = format!("{}/chat/completions", url.as_str().trim_end_matches('/'));
    Url::parse(&path).map_err(|_| ClientFault::BaseUrl)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn headers(key: Option<&SecretString>, more: &BTreeMap<String, SecretString>) -> Result<HeaderMap, ClientFault> {
    let secret = |text: &str| -> Result<HeaderValue, ClientFault> {
        let mut value = HeaderValue::from_str(text).map_err(|_| ClientFault::Header)?;
        value.set_sensitive(true);
        Ok(value)
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = key {
        headers.insert(AUTHORIZATION, secret(&format!("Bearer {}", key.expose_secret()))?);
    }
    for (name, value) in more {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| ClientFault::Header)?;
        headers.insert(name, secret(value.expose_secret())?);
    }
    Ok(headers)
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

/// What a status means when it is not a success.
fn refusal(status: StatusCode) -> Option<InferenceError> {
    match status.as_u16() {
        200..=299 => None,
        408 | 504 => Some(InferenceError::Timeout),
        409 | 425 | 429 | 500..=599 => Some(InferenceError::Unavailable),
        _ => Some(InferenceError::Rejected),
    }
}

fn read_reply(bytes: &[u8]) -> Reply {
    #[derive(Deserialize)]
    struct Completion {
        choices: Vec<Choice>,
        #[serde(default)]
        usage: Option<Tokens>,
    }
    #[derive(Deserialize)]
    struct Choice {
        message: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        content: Option<String>,
    }
    #[derive(Deserialize, Default)]
    struct Tokens {
        #[serde(default)]
        prompt_tokens: u64,
        #[serde(default)]
        completion_tokens: u64,
    }
    let read: Option<Completion> = serde_json::from_slice(bytes).ok();
    let (choice, usage) = read.map_or((None, None), |r| (r.choices.into_iter().next(), r.usage));
    let usage = usage.unwrap_or_default();
    Reply {
        text: choice.map(|c| c.message.content.unwrap_or_default()),
        input_tokens: usage.prompt_tokens,
        output_tokens: usage.completion_tokens,
    }
}

/// The JSON of an answer that passes its check, or why it does not.
fn judge(text: Option<&str>, check: Check<'_>) -> Result<Value, &'static str> {
    let text = text.ok_or("it was not a chat completion")?;
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
#[path = "openai_tests.rs"]
mod tests;
