//! A provider that puts words wherever a provider can put any: in answers, broken answers, refusals and headers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use powercontext::dev::model::serve_router;
use powercontext::rt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::canary::{Canaries, Place};

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// With one entry.
    Answer,
    /// With a text that is no JSON.
    NoJson,
    /// With JSON of another form.
    OtherForm,
    /// With an entry that cites what it was not shown.
    OtherCitation,
    /// With a page, and status 200.
    Page,
    /// With another status and a body that explains.
    Refuse(u16),
    /// With bytes that are no text.
    NoText,
}

struct Model {
    canaries: Canaries,
    manner: Mutex<Manner>,
    /// Headers and bodies of the requests so far.
    heard: Mutex<String>,
}

/// The provider. It ends when it is dropped.
pub(crate) struct Talkative {
    address: SocketAddr,
    model: Arc<Model>,
    stop: CancellationToken,
}

impl Drop for Talkative {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Talkative {
    pub(crate) async fn start(canaries: &Canaries) -> anyhow::Result<Self> {
        let model = Arc::new(Model {
            canaries: canaries.clone(),
            manner: Mutex::new(Manner::Answer),
            heard: Mutex::default(),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .with_state(Arc::clone(&model));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        rt::spawn(serve_router(listener, router, stop.clone()));
        Ok(Self { address, model, stop })
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.model.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    pub(crate) fn heard(&self) -> String {
        self.model.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn chat(State(model): State<Arc<Model>>, headers: HeaderMap, body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap_or_default();
    let is_probe = request["max_tokens"] == 1;
    {
        let mut heard = model.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let values = headers.values().map(|value| String::from_utf8_lossy(value.as_bytes()));
        heard.extend(values.map(|value| format!("{value}\n")));
        *heard += &body;
    }
    let manner = *model.manner.lock().unwrap_or_else(PoisonError::into_inner);
    let manner = if is_probe { Manner::Answer } else { manner };
    answer(&model.canaries, manner)
}

fn answer(canaries: &Canaries, manner: Manner) -> Response {
    let (envelope, bad, refusal) = (
        canaries.of(Place::Envelope),
        canaries.of(Place::BadReply),
        canaries.of(Place::Refusal),
    );
    let completion = |text: &str| {
        json!({
            "id": envelope, "model": envelope, "system_fingerprint": envelope,
            "choices": [{"index": 0, "finish_reason": envelope, "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 7},
        })
        .to_string()
    };
    let entry = |word: &str, evidence: &str| {
        let text = format!("The house is called {word}.");
        let entry = json!({"intent": "add", "kind": "fact", "text": text, "evidence_ids": [evidence], "reason": word});
        json!({"candidates": [entry]}).to_string()
    };
    let headers = [("x-request-id", envelope), ("server", envelope)];
    let ok = |body: String| (StatusCode::OK, headers, body).into_response();
    match manner {
        Manner::Answer => ok(completion(&entry(canaries.of(Place::Reply), "source:0"))),
        Manner::NoJson => ok(completion(&format!("I would rather talk about {bad}"))),
        Manner::OtherForm => ok(completion(&json!({bad: [bad]}).to_string())),
        Manner::OtherCitation => ok(completion(&entry(bad, bad))),
        Manner::Page => ok(format!("<html><title>{bad}</title></html>")),
        Manner::NoText => (StatusCode::OK, headers, [bad.as_bytes(), b"\xff\xfe"].concat()).into_response(),
        Manner::Refuse(status) => {
            let body = json!({"error": {"message": format!("no {refusal}"), "type": refusal, "code": refusal}});
            let location = format!("http://127.0.0.1:9/{refusal}?{refusal}");
            let headers = [
                (header::LOCATION, location.as_str()),
                (header::WWW_AUTHENTICATE, refusal),
                (header::RETRY_AFTER, refusal),
            ];
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
            (status, headers, body.to_string()).into_response()
        }
    }
}
