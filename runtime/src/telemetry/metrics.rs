//! Metrics with closed labels.
//!
//! Every label but the kind of work is an enum with an `ALL`, and every series is created at start, so that a scrape
//! before the first event shows zeros and the number of series never grows (I21). A kind of work that this build does not
//! know counts as `other`. No scope, principal, work or request id is ever a label.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use powercontext_core::fail::FailCode;
use powercontext_core::fence::Fence;
use powercontext_core::supervise::member::Role;
use powercontext_core::time::Span;
use powercontext_core::work::step::Outcome;
use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use tokio::time::Instant;

use crate::rt;

mod labels;
mod supervision;

use labels::{CATEGORY_NONE, KIND_OTHER, categories};
pub use labels::{Enqueue, HttpOperation, LiveState, RequestOutcome, Transport};
use supervision::Supervision;
pub use supervision::{FamilyDepth, InvocationEnd, LeadershipChange};

/// Most kinds of work with series of their own.
pub const KINDS_MAX: usize = 32;

const VALID: &str = "the names and labels of metrics are constants that follow the format";
/// From a claim that was waited for to a backlog of an hour, in seconds.
const CLAIM_BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0,
];
/// From a run without a model to the longest one, in seconds.
const ATTEMPT_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0];
/// From a read to the longest wait of a flush, in seconds.
const REQUEST_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0, 30.0];

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    kinds: BTreeMap<String, KindMetrics>,
    requests: BTreeMap<(Transport, HttpOperation), RequestMetrics>,
    ready: IntGauge,
    supervision: Supervision,
}

#[derive(Debug)]
struct KindMetrics {
    enqueues: BTreeMap<Enqueue, IntCounter>,
    claim_latency: Histogram,
    attempts: BTreeMap<(Outcome, &'static str), IntCounter>,
    durations: BTreeMap<Outcome, Histogram>,
    expired_retry: IntCounter,
    expired_failed: IntCounter,
    depth: BTreeMap<LiveState, IntGauge>,
    oldest: BTreeMap<LiveState, Gauge>,
}

#[derive(Debug)]
struct RequestMetrics {
    total: BTreeMap<RequestOutcome, IntCounter>,
    duration: BTreeMap<RequestOutcome, Histogram>,
    in_progress: IntGauge,
}

/// Live items of one kind in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth<'a> {
    /// The kind.
    pub kind: &'a str,
    /// The state's stored name.
    pub status: &'a str,
    /// How many items.
    pub items: u64,
    /// Age of the oldest of them, on the database's clock.
    pub oldest_age: Span,
}

impl Metrics {
    /// Metrics for these kinds of work, at most [`KINDS_MAX`]; all others count as `other`.
    pub fn new<'k>(kinds: impl IntoIterator<Item = &'k str>) -> Arc<Self> {
        let registry = Registry::new();
        let work = WorkFamilies::new(&registry);
        let kinds = kinds.into_iter().take(KINDS_MAX).chain([KIND_OTHER]);
        let http = RequestFamilies::new(&registry);
        let ready = IntGauge::new(
            "powercontext_server_runtime_ready",
            "1 while the runtime is ready or degraded.",
        );
        let ready = register(&registry, ready);
        let supervision = Supervision::new(&registry);
        Arc::new(Self {
            kinds: kinds.map(|kind| (kind.to_owned(), work.of(kind))).collect(),
            requests: http.all(),
            ready,
            supervision,
            registry,
        })
    }

    /// The registry that is scraped.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics as Prometheus text.
    pub fn render(&self) -> String {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        // The encoder fails only on a family without a name or without series.
        text.unwrap_or_default()
    }

    fn kind(&self, kind: &str) -> &KindMetrics {
        let known = self.kinds.get(kind).or_else(|| self.kinds.get(KIND_OTHER));
        known.expect("`other` is always there")
    }

    /// A request for work was committed.
    pub fn enqueued(&self, kind: &str, outcome: Enqueue) {
        self.kind(kind).enqueues[&outcome].inc();
    }

    /// An item was claimed so long after it was created.
    pub fn claimed(&self, kind: &str, latency: Span) {
        self.kind(kind).claim_latency.observe(latency.as_std().as_secs_f64());
    }

    /// An attempt was closed. A lease that ran out counts among the lease expirations as well.
    pub fn attempt_ended(&self, kind: &str, outcome: Outcome, error: Option<FailCode>, duration: Duration) {
        let kind = self.kind(kind);
        let category = error.map_or(CATEGORY_NONE, FailCode::category);
        kind.attempts[&(outcome, category)].inc();
        kind.durations[&outcome].observe(duration.as_secs_f64());
        match outcome {
            Outcome::LeaseExpiredRetry => kind.expired_retry.inc(),
            Outcome::LeaseExpiredFailed => kind.expired_failed.inc(),
            _ => {}
        }
    }

    /// What waits, runs or is blocked now. A pair of kind and state that is not named is empty.
    pub fn set_depths<'d>(&self, depths: impl IntoIterator<Item = QueueDepth<'d>>) {
        let mut found: BTreeMap<(&str, LiveState), (u64, Span)> = BTreeMap::new();
        for depth in depths {
            let Some(state) = LiveState::from_name(depth.status) else {
                continue;
            };
            let known = self.kinds.get_key_value(depth.kind);
            let kind = known.map_or(KIND_OTHER, |(kind, _)| kind.as_str());
            let sum = found.entry((kind, state)).or_insert((0, Span::ZERO));
            *sum = (sum.0.saturating_add(depth.items), sum.1.max(depth.oldest_age));
        }
        // Each gauge is set once, so that a scrape in between sees no passing zero.
        for (name, kind) in &self.kinds {
            for state in LiveState::ALL {
                let (items, age) = found.get(&(name.as_str(), state)).copied().unwrap_or((0, Span::ZERO));
                kind.depth[&state].set(i64::try_from(items).unwrap_or(i64::MAX));
                kind.oldest[&state].set(age.as_std().as_secs_f64());
            }
        }
    }

    /// Whether the runtime is ready or degraded.
    pub fn set_ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }

    /// A term of this process began or ended.
    pub fn leadership_changed(&self, change: LeadershipChange) {
        self.supervision.leadership_changed(change);
    }

    /// The fence under which this process leads; `None` while it does not.
    pub fn set_fence(&self, lease: &str, fence: Option<Fence>) {
        self.supervision.set_fence(lease, fence);
    }

    /// The members that live now, each with its role and build.
    pub fn set_members<'m>(&self, live: impl IntoIterator<Item = (Role, &'m str)>) {
        self.supervision.set_members(live);
    }

    /// Runs of this process.
    pub fn set_inflight(&self, runs: usize) {
        self.supervision.set_inflight(runs);
    }

    /// Newest complete revision of the schema.
    pub fn set_schema(&self, revision: u32) {
        self.supervision.set_schema(revision);
    }

    /// Live items by payload version.
    pub fn set_payload_depths(&self, depths: impl IntoIterator<Item = (u32, u64)>) {
        self.supervision.set_payload_depths(depths);
    }

    /// Makes the series of a family with this cap; `None` for no cap.
    pub fn add_family(&self, family: &str, workers_max: Option<u32>) {
        self.supervision.add_family(family, workers_max);
    }

    /// How the work of a family stands.
    pub fn set_family(&self, family: &str, depth: FamilyDepth) {
        self.supervision.set_family(family, depth);
    }

    /// The scopes of a family were looked for.
    pub fn discovered(&self, family: &str, took: Duration) {
        self.supervision.discovered(family, took);
    }

    /// A run of a family ended.
    pub fn invoked(&self, family: &str, took: Duration, end: InvocationEnd) {
        self.supervision.invoked(family, took, end);
    }

    /// A request arrived. It counts as cancelled unless [`InProgress::ended`] says otherwise.
    pub fn request_started(self: &Arc<Self>, transport: Transport, operation: HttpOperation) -> InProgress {
        self.requests[&(transport, operation)].in_progress.inc();
        InProgress {
            metrics: Arc::clone(self),
            series: (transport, operation),
            started: rt::now(),
            outcome: RequestOutcome::Cancelled,
        }
    }
}

/// A request that is being answered; counted when it is dropped.
#[derive(Debug)]
pub struct InProgress {
    metrics: Arc<Metrics>,
    series: (Transport, HttpOperation),
    started: Instant,
    outcome: RequestOutcome,
}

impl InProgress {
    /// The answer is known.
    pub fn ended(mut self, outcome: RequestOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let series = &self.metrics.requests[&self.series];
        let took = rt::now().saturating_duration_since(self.started);
        series.in_progress.dec();
        series.total[&self.outcome].inc();
        series.duration[&self.outcome].observe(took.as_secs_f64());
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let metric = made.expect(VALID);
    registry.register(Box::new(metric.clone())).expect(VALID);
    metric
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn histograms(registry: &Registry, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    register(registry, HistogramVec::new(opts, labels))
}

/// The families of `powercontext_work_*`.
struct WorkFamilies {
    enqueues: IntCounterVec,
    claim_latency: HistogramVec,
    attempts: IntCounterVec,
    durations: HistogramVec,
    expirations: IntCounterVec,
    depth: IntGaugeVec,
    oldest: GaugeVec,
}

impl WorkFamilies {
    fn new(r: &Registry) -> Self {
        let depth = Opts::new("powercontext_work_queue_depth", "Live work items.");
        let oldest = "Age of the oldest live work item, in seconds.";
        let oldest = Opts::new("powercontext_work_queue_oldest_age_seconds", oldest);
        Self {
            enqueues: counters(
                r,
                "powercontext_work_enqueues_total",
                "Requests for work.",
                &["kind", "outcome"],
            ),
            claim_latency: histograms(
                r,
                "powercontext_work_claim_latency_seconds",
                "Time from the creation of a work item to its claim.",
                &["kind"],
                &CLAIM_BUCKETS,
            ),
            attempts: counters(
                r,
                "powercontext_work_attempts_total",
                "Closed attempts.",
                &["kind", "outcome", "error_category"],
            ),
            durations: histograms(
                r,
                "powercontext_work_attempt_duration_seconds",
                "Time from a claim to the end of its attempt.",
                &["kind", "outcome"],
                &ATTEMPT_BUCKETS,
            ),
            expirations: counters(
                r,
                "powercontext_work_lease_expirations_total",
                "Attempts whose lease ran out.",
                &["kind", "outcome"],
            ),
            depth: register(r, IntGaugeVec::new(depth, &["kind", "status"])),
            oldest: register(r, GaugeVec::new(oldest, &["kind", "status"])),
        }
    }

    fn of(&self, kind: &str) -> KindMetrics {
        let pairs = Outcome::ALL
            .into_iter()
            .flat_map(|o| categories().into_iter().map(move |c| (o, c)));
        KindMetrics {
            enqueues: Enqueue::ALL
                .map(|o| (o, self.enqueues.with_label_values(&[kind, o.as_str()])))
                .into(),
            claim_latency: self.claim_latency.with_label_values(&[kind]),
            attempts: pairs
                .map(|(o, c)| ((o, c), self.attempts.with_label_values(&[kind, o.name(), c])))
                .collect(),
            durations: Outcome::ALL
                .map(|o| (o, self.durations.with_label_values(&[kind, o.name()])))
                .into(),
            expired_retry: self.expirations.with_label_values(&[kind, "retry_wait"]),
            expired_failed: self.expirations.with_label_values(&[kind, "failed"]),
            depth: LiveState::ALL
                .map(|s| (s, self.depth.with_label_values(&[kind, s.as_str()])))
                .into(),
            oldest: LiveState::ALL
                .map(|s| (s, self.oldest.with_label_values(&[kind, s.as_str()])))
                .into(),
        }
    }
}

/// The families of `powercontext_server_transport_*`.
struct RequestFamilies {
    total: IntCounterVec,
    duration: HistogramVec,
    in_progress: IntGaugeVec,
}

impl RequestFamilies {
    fn new(r: &Registry) -> Self {
        let labels = ["transport", "operation", "outcome"];
        let name = "powercontext_server_transport_request_duration_seconds";
        let in_progress = "powercontext_server_transport_requests_in_progress";
        let in_progress = Opts::new(in_progress, "Requests that are being answered.");
        Self {
            total: counters(
                r,
                "powercontext_server_transport_requests_total",
                "Answered or abandoned requests.",
                &labels,
            ),
            duration: histograms(r, name, "Time to answer.", &labels, &REQUEST_BUCKETS),
            in_progress: register(r, IntGaugeVec::new(in_progress, &labels[..2])),
        }
    }

    fn all(&self) -> BTreeMap<(Transport, HttpOperation), RequestMetrics> {
        let mut all = BTreeMap::new();
        for transport in Transport::ALL {
            for operation in HttpOperation::ALL {
                let labels = |outcome: RequestOutcome| [transport.as_str(), operation.as_str(), outcome.as_str()];
                let series = RequestMetrics {
                    total: RequestOutcome::ALL
                        .map(|o| (o, self.total.with_label_values(&labels(o))))
                        .into(),
                    duration: RequestOutcome::ALL
                        .map(|o| (o, self.duration.with_label_values(&labels(o))))
                        .into(),
                    in_progress: self
                        .in_progress
                        .with_label_values(&labels(RequestOutcome::Success)[..2]),
                };
                all.insert((transport, *operation), series);
            }
        }
        all
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
