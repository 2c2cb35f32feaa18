//! Client for models behind the chat-completions interface of `OpenAI` (`openai-chat:NAME`).
//!
//! The output schema is part of the system message (prompted output, no tool calls), so any compatible server will do.
//! How requests travel is the guard's part.

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::guard::{Ask, ClientFault, ClientSettings, Guarded, Reply, Wire, secret_value};
use super::{Generation, GenerationRequest, Generator, InferenceError};

/// Where requests go when no base URL is set.
pub const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
/// Tokens that a probe asks for in the newer form; the smallest number that all of its models accept.
const PROBE_TOKENS: u32 = 16;

/// A model behind the chat-completions interface.
pub struct OpenAiChat(Guarded<Chat>);

impl OpenAiChat {
    /// Builds a client; sends nothing. The base URL goes up to and including the version.
    ///
    /// # Errors
    /// [`ClientFault`] with the first setting that is wrong.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientFault> {
        Guarded::new(settings).map(Self)
    }
}

#[async_trait]
impl Generator for OpenAiChat {
    async fn generate(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError> {
        self.0.generate(request).await
    }

    async fn probe(&self) -> Result<(), InferenceError> {
        match self.0.probe(|_| {}).await {
            Err(refusal) if refusal.is_bad_request => {}
            answer => return answer.map_err(|refusal| refusal.class),
        }
        // The models that reason refuse `max_tokens` and know only its newer name.
        let newer = |body: &mut Map<String, Value>| {
            body.remove("max_tokens");
            body.insert("max_completion_tokens".to_owned(), Value::from(PROBE_TOKENS));
        };
        self.0.probe(newer).await.map_err(|refusal| refusal.class)
    }
}

struct Chat(Map<String, Value>);

impl Wire for Chat {
    const OWN_SETTINGS: &'static [&'static str] = &[];

    fn path(_: &Url) -> &'static str {
        "chat/completions"
    }

    fn headers(key: Option<&SecretString>, into: &mut HeaderMap) -> Result<(), ClientFault> {
        if let Some(key) = key {
            into.insert(AUTHORIZATION, secret_value(&format!("Bearer {}", key.expose_secret()))?);
        }
        Ok(())
    }

    fn new(body: Map<String, Value>) -> Self {
        Self(body)
    }

    fn body(&self, ask: &Ask<'_>) -> Map<String, Value> {
        let system = ask.system.map(|text| json!({"role": "system", "content": text}));
        let said = ask
            .turns
            .iter()
            .map(|turn| json!({"role": turn.speaker.role(), "content": turn.text}));
        let mut body = self.0.clone();
        body.insert("messages".to_owned(), system.into_iter().chain(said).collect());
        if let Some(tokens) = ask.tokens_max {
            body.remove("max_completion_tokens");
            body.insert("max_tokens".to_owned(), Value::from(tokens));
        }
        body
    }

    fn read(bytes: &[u8]) -> Reply {
        let read: Option<Completion> = serde_json::from_slice(bytes).ok();
        let (choice, usage) = read.map_or((None, Value::Null), |r| (r.choices.into_iter().next(), r.usage));
        Reply {
            text: choice.map(|c| c.message.content.unwrap_or_default()),
            input_tokens: usage["prompt_tokens"].as_u64(),
            output_tokens: usage["completion_tokens"].as_u64(),
        }
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    // Read member by member: a usage of another form is no reason to refuse an answer.
    #[serde(default)]
    usage: Value,
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

#[cfg(test)]
#[path = "openai_tests.rs"]
mod tests;
