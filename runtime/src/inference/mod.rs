//! Model providers: the only door to a language model.
//!
//! A caller names an instruction set, gives a typed input as JSON and a schema of the output; it gets JSON that passed its
//! own check, or one of four errors. What a provider answers otherwise (error bodies, refusals, half replies) is read only as
//! far as its class and then dropped: it is never kept, logged or shown, because it may repeat the input.

pub mod anthropic;
mod guard;
pub mod openai;
pub mod readiness;
#[cfg(test)]
#[path = "kit_tests.rs"]
mod testing;

pub use guard::{ClientFault, ClientSettings, RESPONSE_BYTES_MAX};

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A versioned instruction text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instructions {
    /// Its version, such as `powercontext.memory.extract.v1`; the first line of the system message.
    pub version: &'static str,
    /// What the model is to do.
    pub text: &'static str,
}

/// Judges a model's answer. The reason is told to the model, so it must be a constant without content.
pub type Check<'a> = &'a (dyn Fn(&Value) -> Result<(), &'static str> + Send + Sync);

/// One structured generation.
#[derive(Clone, Copy)]
pub struct GenerationRequest<'a> {
    /// What to do.
    pub instructions: Instructions,
    /// JSON Schema of the answer.
    pub schema: &'a Value,
    /// The typed input.
    pub input: &'a Value,
    /// What the answer must satisfy beyond being JSON.
    pub check: Check<'a>,
}

/// What model calls cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Requests that were sent.
    pub requests: u32,
    /// Tokens read, as far as the provider said.
    pub input_tokens: u64,
    /// Tokens written, as far as the provider said.
    pub output_tokens: u64,
    /// Whether every reply said how many tokens were read.
    pub input_complete: bool,
    /// Whether every reply said how many tokens were written.
    pub output_complete: bool,
}

/// Most tokens that one reply can count for: what a provider claims beyond that is no number of tokens.
const REPLY_TOKENS_MAX: u64 = 1_000_000_000;

impl Default for Usage {
    fn default() -> Self {
        Self {
            requests: 0,
            input_tokens: 0,
            output_tokens: 0,
            input_complete: true,
            output_complete: true,
        }
    }
}

impl Usage {
    /// Counts one reply.
    fn add(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        let tokens = |said: Option<u64>| said.unwrap_or(0).min(REPLY_TOKENS_MAX);
        self.requests = self.requests.saturating_add(1);
        self.input_tokens = self.input_tokens.saturating_add(tokens(input_tokens));
        self.output_tokens = self.output_tokens.saturating_add(tokens(output_tokens));
        self.input_complete &= input_tokens.is_some();
        self.output_complete &= output_tokens.is_some();
    }
}

/// An answer that passed its check.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The answer.
    pub value: Value,
    /// What it cost.
    pub usage: Usage,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InferenceError {
    /// The provider did not answer in time.
    #[error("the model provider did not answer in time")]
    Timeout,
    /// The provider cannot be reached, or says that it is busy or broken.
    #[error("the model provider is unavailable")]
    Unavailable,
    /// The provider refuses: wrong key, model, address or settings.
    #[error("the model provider refused the request")]
    Rejected,
    /// The answer breaks its contract, and still did when asked again.
    #[error("the model's answer breaks its contract")]
    InvalidOutput,
}

impl InferenceError {
    /// How a run that needed the answer ends.
    pub const fn fail_code(self) -> FailCode {
        match self {
            Self::Timeout => FailCode::ProviderTimeout,
            Self::Unavailable => FailCode::ProviderUnavailable,
            Self::Rejected => FailCode::ProviderRejected,
            Self::InvalidOutput => FailCode::ProviderInvalidOutput,
        }
    }

    /// Whether waiting can help without anybody changing a setting.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Timeout | Self::Unavailable)
    }
}

/// A language model.
#[async_trait]
pub trait Generator: Send + Sync {
    /// Asks for one answer, at most twice, within the time of the settings.
    async fn generate(&self, request: GenerationRequest<'_>) -> Result<Generation, InferenceError>;

    /// Asks for the smallest possible answer, to learn whether the provider works at all.
    async fn probe(&self) -> Result<(), InferenceError>;
}
