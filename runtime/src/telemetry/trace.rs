//! Spans of the work that a process does, for a collector that the deployment names; without one nothing is recorded.
//!
//! Names and attributes are closed lists, as log fields are, so that no content can get into a span (`docs/security.md`).
//! They are made by the code that does the work and not out of log lines: a span needs its ids before the attempt that
//! stores them, an outcome that only the ledger knows, and must not come and go with the level of the log (ADR 0015).
//! An idle process records nothing: what found nothing to do is dropped, not ended.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::rt;

mod export;
mod parent;

pub use export::{ExportSettings, ExporterFault, Exporting, start};
pub use parent::Parent;

/// What a span is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// One look of a scheduler at what is due.
    SchedulerTick,
    /// A request for work, joined or made.
    WorkEnqueue,
    /// One claim that took something.
    WorkClaim,
    /// One attempt, from hand-over to its recorded end.
    WorkExecute,
    /// The final transaction of an attempt that ended well.
    WorkCommit,
    /// The transaction that decides what follows a failed attempt.
    WorkRetry,
    /// The domain's part of a final transaction of Memory.
    MemoryCommit,
}

impl Name {
    /// Every name.
    pub const ALL: [Self; 7] = [
        Self::SchedulerTick,
        Self::WorkEnqueue,
        Self::WorkClaim,
        Self::WorkExecute,
        Self::WorkCommit,
        Self::WorkRetry,
        Self::MemoryCommit,
    ];

    /// Its text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SchedulerTick => "scheduler.tick",
            Self::WorkEnqueue => "work.enqueue",
            Self::WorkClaim => "work.claim",
            Self::WorkExecute => "work.execute",
            Self::WorkCommit => "work.commit",
            Self::WorkRetry => "work.retry",
            Self::MemoryCommit => "memory.commit",
        }
    }
}

/// Everything that a span may say beside its name, its times and its outcome. None of it can hold a text that somebody
/// captured, sent, or got from a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// Kind of work; one that this build knows.
    Kind(&'a str),
    /// Version of the payload's form.
    PayloadVersion(u32),
    /// Lifetime number of the attempt.
    Attempt(u32),
    /// How often an operator has revived the item.
    RecoveryGeneration(u32),
    /// How many items could be taken.
    ClaimCapacity(u32),
    /// How many were.
    ClaimCount(u32),
    /// Class of a failure.
    ErrorCategory(&'static str),
    /// Whether a failure may be tried again.
    Retryable(bool),
    /// How many kinds of work a scheduler looks for.
    DiscovererCount(u32),
    /// Whether a Memory is another one now.
    MemoryChanged(bool),
    /// How many versions of entries were written.
    EntryVersionCount(u32),
}

impl Attribute<'_> {
    /// Names of every attribute, the outcome included.
    pub const NAMES: [&'static str; 12] = [
        "powercontext.work.kind",
        "powercontext.work.payload_version",
        "powercontext.work.attempt",
        "powercontext.work.recovery_generation",
        "powercontext.work.claim.capacity",
        "powercontext.work.claim.count",
        "powercontext.work.error_category",
        "powercontext.work.retryable",
        "powercontext.scheduler.discoverer_count",
        "powercontext.memory.commit.memory_changed",
        "powercontext.memory.commit.entry_version_count",
        OUTCOME,
    ];

    fn pair(self) -> KeyValue {
        let [
            kind,
            version,
            attempt,
            recovery,
            capacity,
            count,
            category,
            retryable,
            discoverers,
            changed,
            entries,
            _,
        ] = Self::NAMES;
        match self {
            Self::Kind(text) => KeyValue::new(kind, text.to_owned()),
            Self::PayloadVersion(n) => KeyValue::new(version, i64::from(n)),
            Self::Attempt(n) => KeyValue::new(attempt, i64::from(n)),
            Self::RecoveryGeneration(n) => KeyValue::new(recovery, i64::from(n)),
            Self::ClaimCapacity(n) => KeyValue::new(capacity, i64::from(n)),
            Self::ClaimCount(n) => KeyValue::new(count, i64::from(n)),
            Self::ErrorCategory(text) => KeyValue::new(category, text),
            Self::Retryable(flag) => KeyValue::new(retryable, flag),
            Self::DiscovererCount(n) => KeyValue::new(discoverers, i64::from(n)),
            Self::MemoryChanged(flag) => KeyValue::new(changed, flag),
            Self::EntryVersionCount(n) => KeyValue::new(entries, i64::from(n)),
        }
    }
}

const OUTCOME: &str = "powercontext.outcome";

/// Which span: its trace, and itself in it. Neither is all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanIds {
    trace: TraceId,
    span: SpanId,
}

impl SpanIds {
    fn new(trace: TraceId, span: SpanId) -> Option<Self> {
        (trace != TraceId::INVALID && span != SpanId::INVALID).then_some(Self { trace, span })
    }

    fn random_in(trace: TraceId) -> Self {
        Self {
            trace,
            span: SpanId::from(first_half(rt::random_bits())),
        }
    }

    /// A span of a trace of its own.
    pub fn random() -> Self {
        Self::random_in(TraceId::from(rt::random_bits()))
    }

    /// Reads 32 and 16 hexadecimal digits; `None` when they are not that.
    pub fn from_hex(trace: &str, span: &str) -> Option<Self> {
        if trace.len() != 32 || span.len() != 16 {
            return None;
        }
        Self::new(TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?)
    }

    /// The trace as 32 small hexadecimal digits.
    pub fn trace_hex(self) -> String {
        self.trace.to_string()
    }

    /// The span as 16 small hexadecimal digits.
    pub fn span_hex(self) -> String {
        self.span.to_string()
    }

    fn context(self, is_remote: bool) -> SpanContext {
        SpanContext::new(self.trace, self.span, TraceFlags::SAMPLED, is_remote, TraceState::NONE)
    }
}

fn first_half(bits: u128) -> u64 {
    u64::try_from(bits >> 64).unwrap_or(u64::MAX)
}

struct Shared {
    queue: mpsc::Sender<SpanData>,
    scope: InstrumentationScope,
    dropped: AtomicU64,
}

/// Where spans are begun; cheap to clone. The default one records nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Shared>>);

impl Tracer {
    fn new(queue: mpsc::Sender<SpanData>) -> Self {
        let scope = InstrumentationScope::builder("powercontext")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Self(Some(Arc::new(Shared {
            queue,
            scope,
            dropped: AtomicU64::new(0),
        })))
    }

    /// One that records nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span of a trace of its own.
    pub fn background(&self, name: Name) -> Span {
        self.begin(name, SpanIds::random, None)
    }

    /// The same under ids that were drawn before.
    pub fn background_as(&self, name: Name, ids: SpanIds) -> Span {
        self.begin(name, || ids, None)
    }

    /// Begins a span below one of another process; without one, of a trace of its own. Nothing is recorded below one that
    /// is not.
    pub fn stage(&self, name: Name, parent: Option<Parent>) -> Span {
        match parent {
            None => self.background(name),
            Some(parent) if parent.is_sampled => {
                let above = Above {
                    span: parent.ids.span,
                    is_remote: true,
                };
                self.begin(name, || SpanIds::random_in(parent.ids.trace), Some(above))
            }
            Some(_) => Span(None),
        }
    }

    /// Begins the span of a scheduler's look, which ends as `leader` or `standby`. One that found nothing to do and changed
    /// nothing is to be dropped: an idle process is silent.
    pub fn tick(&self, discoverers: u32) -> Span {
        self.background(Name::SchedulerTick)
            .with(Attribute::DiscovererCount(discoverers))
    }

    fn begin(&self, name: Name, ids: impl FnOnce() -> SpanIds, above: Option<Above>) -> Span {
        Span(self.0.as_ref().map(|shared| {
            Box::new(Open {
                shared: Arc::clone(shared),
                name,
                ids: ids(),
                above,
                began: (rt::wall_clock(), rt::now()),
                attributes: Vec::new(),
                link: None,
            })
        }))
    }

    /// How many spans were lost because the collector is slower than the work.
    pub fn dropped(&self) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |shared| shared.dropped.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy)]
struct Above {
    span: SpanId,
    is_remote: bool,
}

struct Open {
    shared: Arc<Shared>,
    name: Name,
    ids: SpanIds,
    above: Option<Above>,
    began: (SystemTime, Instant),
    attributes: Vec<KeyValue>,
    link: Option<SpanIds>,
}

/// A span that goes on. One that is dropped without an end is not recorded.
#[must_use = "a span that nobody ends is not recorded"]
pub struct Span(Option<Box<Open>>);

impl Span {
    /// Its ids, if it is recorded.
    pub fn ids(&self) -> Option<SpanIds> {
        self.0.as_ref().map(|open| open.ids)
    }

    /// Adds an attribute.
    pub fn with(mut self, attribute: Attribute<'_>) -> Self {
        self.set(attribute);
        self
    }

    /// Adds an attribute.
    pub fn set(&mut self, attribute: Attribute<'_>) {
        if let Some(open) = &mut self.0 {
            open.attributes.push(attribute.pair());
        }
    }

    /// Points at the span that this one goes on from, in another trace.
    pub fn linked(mut self, to: Option<SpanIds>) -> Self {
        if let Some(open) = &mut self.0 {
            open.link = to;
        }
        self
    }

    /// Where spans below this one are begun; may be handed to another task.
    pub fn below(&self) -> Below {
        let of = |open: &Open| (Tracer(Some(Arc::clone(&open.shared))), open.ids);
        Below(self.0.as_deref().map(of))
    }

    /// Begins a span below this one.
    pub fn child(&self, name: Name) -> Self {
        self.below().child(name)
    }

    /// Ends it well.
    pub fn end(self) {
        self.close(None, Status::Unset);
    }

    /// Ends it with a bounded outcome.
    pub fn end_as(self, outcome: &'static str) {
        self.close(Some(outcome), Status::Unset);
    }

    /// Ends it with an outcome that is an error.
    pub fn end_failed(self, outcome: &'static str) {
        self.close(Some(outcome), Status::error(""));
    }

    fn close(self, outcome: Option<&'static str>, status: Status) {
        let Some(open) = self.0 else { return };
        let (start_time, began) = open.began;
        let mut attributes = open.attributes;
        attributes.extend(outcome.map(|outcome| KeyValue::new(OUTCOME, outcome)));
        let mut links = SpanLinks::default();
        links
            .links
            .extend(open.link.map(|to| Link::new(to.context(true), Vec::new(), 0)));
        let above = open.above;
        let span = SpanData {
            span_context: open.ids.context(false),
            parent_span_id: above.map_or(SpanId::INVALID, |above| above.span),
            parent_span_is_remote: above.is_some_and(|above| above.is_remote),
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed(open.name.as_str()),
            start_time,
            // A wall clock that is set back must not make a span end before it began.
            end_time: start_time + (rt::now() - began),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status,
            instrumentation_scope: open.shared.scope.clone(),
        };
        if open.shared.queue.try_send(span).is_err() {
            open.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The place below a span; it outlives the span's end.
#[derive(Clone)]
pub struct Below(Option<(Tracer, SpanIds)>);

impl Below {
    /// Begins a span there.
    pub fn child(&self, name: Name) -> Span {
        let Some((tracer, ids)) = &self.0 else {
            return Span(None);
        };
        let above = Above {
            span: ids.span,
            is_remote: false,
        };
        tracer.begin(name, || SpanIds::random_in(ids.trace), Some(above))
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
