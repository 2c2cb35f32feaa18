//! The deterministic model behind a door that a test opens and shuts: a run can be held in mid-call, refused with any
//! answer, or handed to a model that fails in one of its own ways.
//!
//! Everything goes over HTTP, as with any provider. Probes of readiness are never held, so that a held model counts as
//! there.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use powercontext::dev::model::{self, Fail, ModelOptions};
use powercontext::rt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::wait::until;

const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Clone)]
enum Manner {
    Forward(SocketAddr),
    Hold,
    /// Holds all calls but those that hold this text.
    HoldBut(String),
    Refuse(StatusCode, Bytes),
}

#[derive(Debug)]
struct Door {
    manner: watch::Sender<Manner>,
    asked: AtomicU64,
    in_flight: AtomicU64,
    http: reqwest::Client,
    /// The model that answers.
    model: SocketAddr,
}

/// A model that does what the test says. It ends when it is dropped.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    door: Arc<Door>,
    stop: CancellationToken,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Provider {
    /// A model that answers.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST).await
    }

    /// A model that answers whoever reaches this address of the machine.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start_on(host: Ipv4Addr) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let model = model(ModelOptions::default(), stop.clone()).await?;
        let door = Arc::new(Door {
            manner: watch::channel(Manner::Forward(model)).0,
            asked: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            // The model closes what rests, and a call on such a connection would fail.
            http: reqwest::Client::builder()
                .no_proxy()
                .pool_max_idle_per_host(0)
                .build()?,
            model,
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&door));
        let listener = TcpListener::bind((host, 0)).await?;
        let address = listener.local_addr()?;
        rt::spawn(model::serve_router(listener, router, stop.clone()));
        Ok(Self { address, door, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a server is told as the base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// From now on calls wait until the model does something else.
    pub fn hold(&self) {
        self.door.manner.send_replace(Manner::Hold);
    }

    /// From now on, and for calls that wait, the model answers.
    pub fn answer(&self) {
        self.door.manner.send_replace(Manner::Forward(self.door.model));
    }

    /// From now on, and for calls that wait, the model answers those that hold this text and keeps the others waiting.
    pub fn answer_only(&self, text: &str) {
        self.door.manner.send_replace(Manner::HoldBut(text.to_owned()));
    }

    /// From now on the model fails in this way.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn fail(&self, fail: Fail) -> anyhow::Result<()> {
        let options = ModelOptions {
            fail: Some(fail),
            ..ModelOptions::default()
        };
        let model = model(options, self.stop.clone()).await?;
        self.door.manner.send_replace(Manner::Forward(model));
        Ok(())
    }

    /// From now on the model answers this.
    ///
    /// # Errors
    /// When the status is none.
    pub fn refuse(&self, status: u16, body: impl Into<Bytes>) -> anyhow::Result<()> {
        let manner = Manner::Refuse(StatusCode::from_u16(status)?, body.into());
        self.door.manner.send_replace(manner);
        Ok(())
    }

    /// Calls so far, probes aside.
    pub fn asked(&self) -> u64 {
        self.door.asked.load(Ordering::SeqCst)
    }

    /// Waits until so many calls are being answered.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn in_flight(&self, calls: u64, within: Duration) -> anyhow::Result<()> {
        until(&format!("{calls} calls of the model in flight"), within, async || {
            let now = self.door.in_flight.load(Ordering::SeqCst);
            ensure!(now == calls, "there are {now}");
            Ok(Some(()))
        })
        .await
    }
}

async fn model(options: ModelOptions, stop: CancellationToken) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    rt::spawn(model::serve(listener, options, stop));
    Ok(address)
}

/// Counts a call while it is being answered; also one whose client goes away.
struct InFlight(Arc<Door>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn chat(State(door): State<Arc<Door>>, body: Bytes) -> Response {
    let request: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_probe = request["max_tokens"] == 1;
    let _in_flight = (!is_probe).then(|| {
        door.asked.fetch_add(1, Ordering::SeqCst);
        door.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(Arc::clone(&door))
    });
    let mut manners = door.manner.subscribe();
    loop {
        let manner = manners.borrow_and_update().clone();
        match manner {
            Manner::Forward(model) => return forward(&door.http, model, body).await,
            Manner::Refuse(status, body) => return (status, body).into_response(),
            Manner::Hold | Manner::HoldBut(_) if is_probe => return forward(&door.http, door.model, body).await,
            Manner::HoldBut(text) if String::from_utf8_lossy(&body).contains(&text) => {
                return forward(&door.http, door.model, body).await;
            }
            Manner::Hold | Manner::HoldBut(_) => {}
        }
        if manners.changed().await.is_err() {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    }
}

async fn forward(http: &reqwest::Client, model: SocketAddr, body: Bytes) -> Response {
    let request = http.post(format!("http://{model}/v1/chat/completions"));
    let request = request.header("content-type", "application/json").body(body);
    let Ok(answer) = request.send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let Ok(body) = answer.bytes().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
