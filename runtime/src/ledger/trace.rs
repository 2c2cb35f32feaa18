//! Spans of the ledger's work: where they are begun, and which span each attempt is.

use std::collections::BTreeMap;
use std::sync::Arc;

use powercontext_core::ids::WorkId;

use crate::ledger::kinds::KindSpec;
use crate::ledger::{Claimed, Ledger};
use crate::store::spans::{self, AttemptSpan};
use crate::store::{Tx, TxError, TxName};
use crate::telemetry::trace::{Attribute, Name, Parent, Span, SpanIds, Tracer};

static OFF: Tracer = Tracer::off();

impl Ledger {
    /// Records spans from now on. The first tracer stays.
    pub fn trace_in(&self, tracer: Tracer) {
        // A second tracer would split the spans of one process over two.
        let _ = self.0.tracer.set(tracer);
    }

    /// Where spans are begun.
    pub fn tracer(&self) -> &Tracer {
        self.0.tracer.get().unwrap_or(&OFF)
    }

    /// Gives claimed attempts their spans, in one transaction, and finds those of the attempts before them. An item that is
    /// missing in the answer has no stored span.
    ///
    /// # Errors
    /// [`TxError`]; nothing but the spans is missing then.
    pub async fn record_spans(&self, claimed: &[Claimed]) -> Result<BTreeMap<WorkId, AttemptSpan>, TxError> {
        let claimed = claimed.iter().map(|claimed| (claimed.clone(), SpanIds::random()));
        let claimed: Arc<Vec<_>> = Arc::new(claimed.collect());
        self.db()
            .tx_with(TxName::Trace, &claimed, |tx, claimed| Box::pin(record_in(tx, claimed)))
            .await
    }

    /// Begins the span of a request for work, below that of the client if it has one.
    pub(super) fn enqueue_span(&self, spec: &KindSpec, parent: Option<Parent>) -> Span {
        self.tracer()
            .stage(Name::WorkEnqueue, parent)
            .with(Attribute::Kind(spec.kind.as_str()))
            .with(Attribute::PayloadVersion(spec.payload_version))
    }
}

async fn record_in(tx: &mut Tx, claimed: &[(Claimed, SpanIds)]) -> Result<BTreeMap<WorkId, AttemptSpan>, TxError> {
    let mut recorded = BTreeMap::new();
    for (claimed, ids) in claimed {
        let (id, holder) = (*claimed.held.key(), claimed.held.holder());
        if let Some(span) = spans::record(tx, id, claimed.attempt, holder, *ids).await? {
            recorded.insert(id, span);
        }
    }
    Ok(recorded)
}
