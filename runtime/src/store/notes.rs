//! What a transaction tells the metrics once it has committed, and only then: a rolled-back claim was no claim.

use std::sync::Arc;

use powercontext_core::fail::FailCode;
use powercontext_core::ids::WorkKind;
use powercontext_core::time::Span;
use powercontext_core::work::Outcome;

use crate::telemetry::metrics::{Enqueue, Metrics};

/// Something worth counting.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    /// A request was accepted.
    Enqueued { kind: WorkKind, outcome: Enqueue },
    /// An item was claimed so long after it was enqueued.
    Claimed { kind: WorkKind, latency: Span },
    /// An attempt was closed after so long.
    AttemptEnded {
        kind: WorkKind,
        outcome: Outcome,
        error: Option<FailCode>,
        lasted: Span,
    },
}

/// Counts the notes of a committed transaction.
pub(crate) fn count(metrics: &Arc<Metrics>, notes: Vec<Note>) {
    for note in notes {
        match note {
            Note::Enqueued { kind, outcome } => metrics.enqueued(kind.as_str(), outcome),
            Note::Claimed { kind, latency } => metrics.claimed(kind.as_str(), latency),
            Note::AttemptEnded {
                kind,
                outcome,
                error,
                lasted,
            } => {
                metrics.attempt_ended(kind.as_str(), outcome, error, lasted.as_std());
            }
        }
    }
}
