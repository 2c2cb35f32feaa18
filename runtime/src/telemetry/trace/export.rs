//! Sending spans to a collector: OTLP over HTTP, in batches, on a task of its own.
//!
//! Work never waits for it. The queue is bounded and a span that finds it full is counted and lost; a collector that is slow
//! or away costs its batch; the log says so once until it answers again. Nothing is sent, and no timer runs, while there is
//! no span. At the end of the process what is queued is sent within a bound.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Tracer;
use crate::rt;

/// Most spans that wait to be sent.
const QUEUE_SPANS_MAX: usize = 4096;
/// Most spans of one request.
const BATCH_SPANS_MAX: usize = 512;
/// How long a batch waits for more.
const LINGER: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the last batches.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// Most bytes of a collector's answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where spans go.
#[derive(Clone)]
pub struct ExportSettings {
    /// URL that spans are sent to, as it is.
    pub endpoint: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, SecretString>,
    /// Longest time for one batch, tries again included.
    pub timeout: Duration,
    /// Name of the service.
    pub service: String,
    /// This process.
    pub instance: String,
}

impl fmt::Debug for ExportSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportSettings")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// The exporter cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("spans cannot be exported with the OTEL_EXPORTER_OTLP_ settings given")]
pub struct ExporterFault;

/// The task that sends; end it by [`Exporting::finish`].
#[derive(Debug)]
pub struct Exporting {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Starts sending. The tracer may be cloned and outlive the task; what it records then is lost.
///
/// # Errors
/// [`ExporterFault`]; a collector that does not answer is none.
pub fn start(settings: &ExportSettings) -> Result<(Tracer, Exporting), ExporterFault> {
    let exporter = exporter(settings)?;
    let (queue, spans) = mpsc::channel(QUEUE_SPANS_MAX);
    let tracer = Tracer::new(queue);
    let stop = CancellationToken::new();
    let sender = Sender {
        exporter,
        spans,
        tracer: tracer.clone(),
        is_failing: false,
        dropped_told: 0,
        timeout: settings.timeout,
    };
    let task = rt::spawn(sender.run(stop.clone()));
    Ok((tracer, Exporting { stop, task }))
}

impl Exporting {
    /// Sends what is queued and ends, within 3 s.
    pub async fn finish(self) {
        self.stop.cancel();
        let mut task = self.task;
        if rt::within(FLUSH_MAX, &mut task).await.is_err() {
            task.abort();
            tracing::warn!("the last spans were not sent in time");
        }
    }
}

fn exporter(settings: &ExportSettings) -> Result<SpanExporter, ExporterFault> {
    let headers: HashMap<_, _> = settings
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
        .collect();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&settings.endpoint)
        .with_timeout(settings.timeout)
        .with_headers(headers)
        .with_http_client(Client::new(settings)?)
        .with_retry_policy(RetryPolicy::default())
        .build()
        .map_err(|_| ExporterFault)?;
    let resource = Resource::builder_empty()
        .with_service_name(settings.service.clone())
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", settings.instance.clone()),
        ])
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

struct Sender {
    exporter: SpanExporter,
    spans: mpsc::Receiver<SpanData>,
    tracer: Tracer,
    is_failing: bool,
    dropped_told: u64,
    timeout: Duration,
}

impl Sender {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                biased;
                span = self.spans.recv() => span,
                () = stop.cancelled() => None,
            };
            let Some(first) = first else { break };
            let batch = self.gather(first, &stop).await;
            self.send(batch).await;
        }
        self.spans.close();
        loop {
            let mut batch = Vec::new();
            if self.spans.recv_many(&mut batch, BATCH_SPANS_MAX).await == 0 {
                return;
            }
            self.send(batch).await;
        }
    }

    /// A batch: full, or as old as it may get, or the last.
    async fn gather(&mut self, first: SpanData, stop: &CancellationToken) -> Vec<SpanData> {
        let until = rt::now() + LINGER;
        let mut batch = vec![first];
        while batch.len() < BATCH_SPANS_MAX {
            tokio::select! {
                biased;
                span = self.spans.recv() => match span {
                    Some(span) => batch.push(span),
                    None => break,
                },
                () = stop.cancelled() => break,
                () = rt::sleep_until(until) => break,
            }
        }
        batch
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        // The exporter's own time ends between its tries; the client's ends each of them.
        let sent = rt::within(self.timeout * 2, self.exporter.export(batch)).await;
        let has_failed = !matches!(sent, Ok(Ok(())));
        if has_failed && !self.is_failing {
            tracing::warn!("the collector of spans does not take them; those of a batch are lost each time");
        } else if self.is_failing && !has_failed {
            tracing::info!("the collector of spans takes them again");
        }
        self.is_failing = has_failed;
        let dropped = self.tracer.dropped();
        if dropped > self.dropped_told {
            tracing::warn!(
                lost = dropped - self.dropped_told,
                "spans were lost: the collector is slower than the work"
            );
            self.dropped_told = dropped;
        }
    }
}

/// Our HTTP client as the exporter wants one: no redirects, bounded in time and in what it reads.
#[derive(Debug)]
struct Client(reqwest::Client);

impl Client {
    fn new(settings: &ExportSettings) -> Result<Self, ExporterFault> {
        let url = reqwest::Url::parse(&settings.endpoint).map_err(|_| ExporterFault)?;
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(settings.timeout);
        if url.host_str().is_some_and(is_loopback) {
            builder = builder.no_proxy();
        }
        builder.build().map(Self).map_err(|_| ExporterFault)
    }
}

/// A proxy would look for the collector on its own machine.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut answer = self.0.execute(request.try_into()?).await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.extend(answer.headers().clone());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err("the answer is too long".into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(response.body(body.freeze())?)
    }
}
