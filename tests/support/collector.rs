//! A collector of spans: it takes OTLP over HTTP as any does, or refuses, or never answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{Span as Sent, status::StatusCode as SpanStatus};
use powercontext::dev::model;
use powercontext::rt;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::wait::until;

/// A span as it arrived. Ids are small hexadecimal digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its trace.
    pub trace: String,
    /// Itself.
    pub span: String,
    /// The span above it; empty at the top.
    pub parent: String,
    /// Trace and span of each link.
    pub links: Vec<(String, String)>,
    /// Its attributes, values as text.
    pub attributes: BTreeMap<String, String>,
    /// Whether it failed.
    pub is_error: bool,
    /// How many nanoseconds it took.
    pub nanoseconds: u64,
}

impl Span {
    /// An attribute by what follows `powercontext.`; empty when it has none.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes
            .get(&format!("powercontext.{name}"))
            .map_or("", String::as_str)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Take,
    Refuse,
    Hang,
}

#[derive(Debug)]
struct Taken {
    manner: Manner,
    requests: u64,
    spans: Vec<Span>,
    /// Everything that was said, bodies and headers, for a search.
    heard: Vec<u8>,
    resource: BTreeMap<String, String>,
}

/// A collector. It ends when it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Taken>>,
    stop: CancellationToken,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Collector {
    /// One that takes what it gets.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::with(Manner::Take).await
    }

    /// One that refuses everything.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn refusing() -> anyhow::Result<Self> {
        Self::with(Manner::Refuse).await
    }

    /// One that takes requests and never answers.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn hanging() -> anyhow::Result<Self> {
        Self::with(Manner::Hang).await
    }

    async fn with(manner: Manner) -> anyhow::Result<Self> {
        let taken = Arc::new(Mutex::new(Taken {
            manner,
            requests: 0,
            spans: Vec::new(),
            heard: Vec::new(),
            resource: BTreeMap::new(),
        }));
        let stop = CancellationToken::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&taken));
        rt::spawn(model::serve_router(listener, router, stop.clone()));
        Ok(Self { address, taken, stop })
    }

    /// What a server is told as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans that arrived.
    pub fn spans(&self) -> Vec<Span> {
        self.look(|taken| taken.spans.clone())
    }

    /// Those of a name.
    pub fn named(&self, name: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    /// What the last request said of the process.
    pub fn resource(&self) -> BTreeMap<String, String> {
        self.look(|taken| taken.resource.clone())
    }

    /// How many requests arrived.
    pub fn requests(&self) -> u64 {
        self.look(|taken| taken.requests)
    }

    /// Everything that arrived, as far as it is text.
    pub fn heard(&self) -> String {
        self.look(|taken| String::from_utf8_lossy(&taken.heard).into_owned())
    }

    /// Waits until so many spans of a name are there.
    ///
    /// # Errors
    /// When they are not in time.
    pub async fn has(&self, name: &str, count: usize, within: Duration) -> anyhow::Result<Vec<Span>> {
        until(&format!("{count} spans {name}"), within, async || {
            let named = self.named(name);
            anyhow::ensure!(named.len() >= count, "there are {:?}", self.spans());
            Ok(Some(named))
        })
        .await
    }

    fn look<T>(&self, look: impl FnOnce(&Taken) -> T) -> T {
        look(&self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn take(State(taken): State<Arc<Mutex<Taken>>>, headers: HeaderMap, body: Bytes) -> Response {
    let manner = {
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.requests += 1;
        taken.heard.extend(format!("{headers:?}").as_bytes());
        taken.heard.extend(&body);
        if taken.manner == Manner::Take && !note(&mut taken, body) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        taken.manner
    };
    match manner {
        Manner::Take => ([(header::CONTENT_TYPE, "application/x-protobuf")], Bytes::new()).into_response(),
        Manner::Refuse => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Manner::Hang => std::future::pending().await,
    }
}

fn note(taken: &mut Taken, body: Bytes) -> bool {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return false;
    };
    for resource in request.resource_spans {
        taken.resource = attributes(resource.resource.map(|r| r.attributes).unwrap_or_default());
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        taken.spans.extend(spans.map(span));
    }
    true
}

fn span(sent: Sent) -> Span {
    let links = sent.links.iter();
    Span {
        trace: hex(&sent.trace_id),
        span: hex(&sent.span_id),
        parent: hex(&sent.parent_span_id),
        links: links.map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        is_error: sent
            .status
            .is_some_and(|status| status.code == SpanStatus::Error as i32),
        nanoseconds: sent.end_time_unix_nano.saturating_sub(sent.start_time_unix_nano),
        attributes: attributes(sent.attributes),
        name: sent.name,
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(n)) => n.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    };
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a String takes everything");
        digits
    })
}
