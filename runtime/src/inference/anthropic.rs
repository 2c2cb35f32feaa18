//! Client for models behind the messages interface of Anthropic (`anthropic:NAME`).
//!
//! The output schema is part of the system text, as for every provider. The interface wants a limit of tokens in every
//! request; the model settings may set another one. How requests travel is the guard's part.

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::guard::{Ask, ClientFault, ClientSettings, Guarded, Reply, Wire, secret_value};
use super::{Generation, GenerationRequest, Generator, InferenceError};

/// Where requests go when no base URL is set.
pub const DEFAULT_BASE_URL: &str = "https://api.anthropic.com/v1";
/// The version of the interface that this client speaks.
pub const VERSION: &str = "2023-06-01";
/// Most tokens of an answer unless the model settings say otherwise.
pub const TOKENS_MAX: u32 = 8192;

/// A model behind the messages interface.
pub struct Anthropic(Guarded<Messages>);

impl Anthropic {
    /// Builds a client; sends nothing. The base URL may end with the version, `/v1`, or before it.
    ///
    /// # Errors
    /// [`ClientFault`] with the first setting that is wrong.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientFault> {
        Guarded::new(settings).map(Self)
    }
}

#[async_trait]
impl Generator for Anthropic {
    async fn generate(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
        self.0.generate(request).await
    }

    async fn probe(&self) -> Result<(), InferenceError> {
        // A budget for thinking must be smaller than the limit of tokens, which is 1 here.
        let small = |body: &mut Map<String, Value>| drop(body.remove("thinking"));
        self.0.probe(small).await.map_err(|refusal| refusal.class)
    }
}

struct Messages(Map<String, Value>);

impl Wire for Messages {
    const OWN_SETTINGS: &'static [&'static str] = &["system"];

    fn path(base: &Url) -> &'static str {
        if base.path().trim_end_matches('/').ends_with("/v1") {
            "messages"
        } else {
            "v1/messages"
        }
    }

    fn headers(key: Option<&SecretString>, into: &mut HeaderMap) -> Result<(), ClientFault> {
        let version = HeaderName::from_static("anthropic-version");
        into.insert(version, HeaderValue::from_static(VERSION));
        if let Some(key) = key {
            into.insert(HeaderName::from_static("x-api-key"), secret_value(key.expose_secret())?);
        }
        Ok(())
    }

    fn new(mut body: Map<String, Value>) -> Self {
        body.entry("max_tokens").or_insert_with(|| Value::from(TOKENS_MAX));
        Self(body)
    }

    fn body(&self, ask: &Ask<'_>) -> Map<String, Value> {
        let mut body = self.0.clone();
        if let Some(text) = ask.system {
            body.insert("system".to_owned(), Value::from(text));
        }
        let said = ask
            .turns
            .iter()
            .map(|turn| json!({"role": turn.speaker.role(), "content": turn.text}));
        body.insert("messages".to_owned(), said.collect());
        if let Some(tokens) = ask.tokens_max {
            body.insert("max_tokens".to_owned(), Value::from(tokens));
        }
        body
    }

    fn read(bytes: &[u8]) -> Reply {
        let Ok(message) = serde_json::from_slice::<Message>(bytes) else {
            return Reply::default();
        };
        // What a model thinks, and other kinds of blocks, are no part of the answer.
        let texts = message.content.into_iter().filter(|block| block.kind == "text");
        let tokens = |name: &str| message.usage[name].as_u64();
        let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"].map(|name| tokens(name).unwrap_or(0));
        Reply {
            text: Some(texts.filter_map(|block| block.text).collect()),
            input_tokens: tokens("input_tokens").map(|fresh| cached.into_iter().fold(fresh, u64::saturating_add)),
            output_tokens: tokens("output_tokens"),
        }
    }
}

#[derive(Deserialize)]
struct Message {
    content: Vec<Block>,
    // Read member by member: a usage of another form is no reason to refuse an answer.
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
