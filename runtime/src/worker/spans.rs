//! Spans of a worker: what a claim took, what became of each run, and its transactions.
//!
//! A run waits a second at most for the ids of its span to be stored, and begins without them when that takes longer: the
//! next attempt then has no link, and nothing else is different. Without a collector none of this does anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{WorkId, WorkKind};
use powercontext_core::refs::Position;

use crate::families;
use crate::ledger::{Claimed, DomainWrite, Ended, Ledger};
use crate::rt;
use crate::store::spans::AttemptSpan;
use crate::store::{Tx, TxError};
use crate::telemetry::trace::{Attribute, Below, Name, Span};

/// How long runs wait for their spans to be stored.
const STORED_MAX: Duration = Duration::from_secs(1);

/// Begins the span of a claim; to be dropped when it takes nothing.
pub(super) fn claim(ledger: &Ledger, wanted: &[(WorkKind, u32)]) -> Span {
    let capacity = wanted.iter().map(|(_, limit)| *limit).sum();
    ledger
        .tracer()
        .background(Name::WorkClaim)
        .with(Attribute::ClaimCapacity(capacity))
}

/// Ends the span of a claim that took this many items.
pub(super) fn claimed(span: Span, taken: usize) {
    if taken > 0 {
        let count = u32::try_from(taken).unwrap_or(u32::MAX);
        span.with(Attribute::ClaimCount(count)).end();
    }
}

/// Stores which spans the attempts of these items will be. Empty where nothing is recorded, or it could not be stored in time.
pub(super) async fn stored(ledger: &Ledger, claimed: &[Claimed]) -> BTreeMap<WorkId, AttemptSpan> {
    if claimed.is_empty() || !ledger.tracer().is_on() {
        return BTreeMap::new();
    }
    let (owned, items) = (ledger.clone(), claimed.to_vec());
    // On a task of its own: giving up the wait must not drop a database future.
    let task = rt::spawn(async move { owned.record_spans(&items).await });
    match rt::within(STORED_MAX, task).await {
        Ok(Ok(Ok(stored))) => stored,
        _ => BTreeMap::new(),
    }
}

/// Begins the span of a run, as the one that was stored for its attempt.
pub(super) fn execute(ledger: &Ledger, claimed: &Claimed, stored: Option<&AttemptSpan>) -> Span {
    let tracer = ledger.tracer();
    let span = match stored {
        Some(stored) => tracer
            .background_as(Name::WorkExecute, stored.ids)
            .linked(stored.previous)
            .with(Attribute::RecoveryGeneration(stored.recovery)),
        None => tracer.background(Name::WorkExecute),
    };
    of(span, ledger, claimed).with(Attribute::Attempt(claimed.attempt.get()))
}

/// Ends the span of a run.
pub(super) fn executed(span: Span, ended: &Ended) {
    let outcome = outcome(ended);
    match outcome {
        "succeeded" | "cancelled" | "released" | "conflict" => span.end_as(outcome),
        _ => span.end_failed(outcome),
    }
}

fn outcome(ended: &Ended) -> &'static str {
    match ended {
        // Somebody else decides about the item: what this run did counts for nothing.
        Ended::Lost => "stale",
        ended => ended.label(),
    }
}

fn of(span: Span, ledger: &Ledger, claimed: &Claimed) -> Span {
    let span = span.with(Attribute::Kind(claimed.kind.as_str()));
    match ledger.kinds().get(&claimed.kind) {
        Some(spec) => span.with(Attribute::PayloadVersion(spec.payload_version)),
        None => span,
    }
}

/// Begins the span of a transaction with a domain write.
pub(super) fn commit(below: &Below, ledger: &Ledger, claimed: &Claimed) -> Span {
    of(below.child(Name::WorkCommit), ledger, claimed)
}

/// Ends it.
pub(super) fn committed<T>(span: Span, result: &Result<T, TxError>) {
    match result {
        Ok(_) => span.end(),
        Err(_) => span.end_failed("failed"),
    }
}

/// Begins the span of the transaction that decides what follows a failure.
pub(super) fn retry(below: &Below, claimed: &Claimed, code: FailCode) -> Span {
    below
        .child(Name::WorkRetry)
        .with(Attribute::Kind(claimed.kind.as_str()))
        .with(Attribute::ErrorCategory(code.category()))
        .with(Attribute::Retryable(code.is_retryable()))
}

/// Ends it with the state that the item has now.
pub(super) fn retried(span: Span, result: &Result<Ended, TxError>) {
    match result {
        Ok(Ended::Waits { .. }) => span.end_as("retry_wait"),
        Ok(ended) => span.end_as(outcome(ended)),
        Err(_) => span.end_failed("failed"),
    }
}

/// A domain write with a span around it.
pub(super) struct Traced {
    below: Below,
    write: Arc<dyn DomainWrite>,
    changed: bool,
    entries: u32,
}

impl Traced {
    /// The ledger's form of a family's write.
    pub(super) fn new(write: &families::DomainWrite, below: Below) -> Self {
        match write {
            families::DomainWrite::Memory(memory) => {
                let entries = memory.plan.as_ref().map_or(0, |plan| plan.new_versions.len());
                Self {
                    below,
                    changed: memory.plan.is_some(),
                    entries: u32::try_from(entries).unwrap_or(u32::MAX),
                    write: Arc::new(memory.clone()),
                }
            }
            #[cfg(feature = "test-families")]
            families::DomainWrite::TestOnly(step) => Self {
                below,
                changed: false,
                entries: 0,
                write: Arc::new(step.clone()),
            },
        }
    }
}

#[async_trait]
impl DomainWrite for Traced {
    async fn apply(&self, tx: &mut Tx) -> Result<Position, TxError> {
        let span = self
            .below
            .child(Name::MemoryCommit)
            .with(Attribute::MemoryChanged(self.changed))
            .with(Attribute::EntryVersionCount(self.entries));
        let applied = self.write.apply(tx).await;
        match &applied {
            Ok(_) => span.end(),
            Err(_) => span.end_failed("failed"),
        }
        applied
    }
}
