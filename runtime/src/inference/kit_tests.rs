//! What the tests of the provider clients share: providers on loopback, and one question for any client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::anthropic::Anthropic;
use super::openai::OpenAiChat;
use super::{ClientSettings, Generation, GenerationRequest, Generator, InferenceError, Instructions};
use crate::dev::model::{Fail, ModelOptions, serve, serve_router};
use crate::rt;

/// A provider on loopback that ends with the test.
pub(super) struct Provider {
    pub(super) address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) async fn bind() -> (TcpListener, Provider) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let provider = Provider {
        address: listener.local_addr().expect("bound"),
        stop: CancellationToken::new(),
    };
    (listener, provider)
}

/// The deterministic model.
pub(super) async fn model(options: ModelOptions) -> Provider {
    let (listener, provider) = bind().await;
    rt::spawn(serve(listener, options, provider.stop.clone()));
    provider
}

pub(super) async fn failing(fail: Fail, fail_first: Option<u64>) -> Provider {
    model(ModelOptions {
        fail: Some(fail),
        fail_first,
        ..ModelOptions::default()
    })
    .await
}

/// A provider with manners of its own.
pub(super) async fn custom(router: Router) -> Provider {
    let (listener, provider) = bind().await;
    rt::spawn(serve_router(listener, router, provider.stop.clone()));
    provider
}

/// Every client of these settings, with its name.
pub(super) fn clients(settings: &ClientSettings) -> [(&'static str, Arc<dyn Generator>); 2] {
    [
        (
            "openai-chat",
            Arc::new(OpenAiChat::new(settings.clone()).expect("valid settings")),
        ),
        (
            "anthropic",
            Arc::new(Anthropic::new(settings.clone()).expect("valid settings")),
        ),
    ]
}

impl Provider {
    pub(super) fn settings(&self) -> ClientSettings {
        ClientSettings {
            timeout: Duration::from_secs(10),
            ..ClientSettings::new("dev", format!("http://{}/v1", self.address))
        }
    }

    pub(super) fn clients(&self) -> [(&'static str, Arc<dyn Generator>); 2] {
        clients(&self.settings())
    }

    pub(super) fn impatient(&self) -> [(&'static str, Arc<dyn Generator>); 2] {
        clients(&ClientSettings {
            timeout: Duration::from_millis(200),
            ..self.settings()
        })
    }

    /// How often the deterministic model was asked.
    pub(super) async fn count(&self, what: &str) -> u64 {
        let url = format!("http://{}/requests", self.address);
        let client = reqwest::Client::builder().no_proxy().build().expect("plain client");
        let counts: Value = client.get(url).send().await.expect("up").json().await.expect("JSON");
        counts[what].as_u64().expect("a count")
    }
}

fn is_answer(value: &Value) -> Result<(), &'static str> {
    value["candidates"].as_array().map(drop).ok_or("it has no candidates")
}

/// Asks for an extraction.
pub(super) async fn ask(client: &dyn Generator) -> Result<Generation, InferenceError> {
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

/// A reply that every client reads: it has the form of both interfaces.
pub(super) fn reply(text: &str) -> Value {
    json!({
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "content": [{"type": "text", "text": text}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "input_tokens": 3, "output_tokens": 2},
    })
}

/// Paths of both interfaces under `/v1`.
pub(super) const PATHS: [&str; 2] = ["/chat/completions", "/messages"];
