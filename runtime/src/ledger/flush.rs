//! An explicit request: it joins the item that would do its work anyway, or makes one (design, "Joining"; I1, I7, I8).
//!
//! Locks lane -> item -> intent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use powercontext_core::ids::{ScopeId, WorkId, WorkKind};
use powercontext_core::limits::PAYLOAD_BYTES_MAX;
use powercontext_core::refs::Position;
use powercontext_core::supervise::intent::Intent;
use powercontext_core::work::lane::{Admission, LaneSeq};

use crate::ledger::Ledger;
use crate::ledger::kinds::KindSpec;
use crate::ledger::write::LockedLane;
use crate::rt;
use crate::store::notes::Note;
use crate::store::works::NewWork;
use crate::store::{Tx, TxError, TxName, cursors, intents, keys, lanes, sources, works};
use crate::telemetry::metrics::Enqueue;
use crate::telemetry::trace::Parent;

/// How often a request whose commit is of unknown outcome is run again; running it twice joins the first.
const RUNS_MAX: u32 = 3;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct FlushRequest {
    /// Kind of work.
    pub kind: WorkKind,
    /// Where.
    pub scope: ScopeId,
    /// The item's payload: a JSON object of references and numbers, at most 16 KiB encoded.
    pub payload: serde_json::Value,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing lies behind the cursor.
    Idle {
        /// Where the cursor stands.
        cursor: Position,
        /// Where the journal ends.
        head: Position,
    },
    /// The lane's head is failed; an operator must act first.
    Blocked {
        /// The failed item.
        head: WorkId,
    },
    /// This item does the work.
    Accepted {
        /// The item.
        id: WorkId,
        /// Whether it was made for this request.
        created: bool,
    },
}

impl Flushed {
    /// Bounded name for spans.
    const fn label(&self) -> &'static str {
        match self {
            Self::Idle { .. } => "idle",
            Self::Blocked { .. } => "blocked",
            Self::Accepted { created: true, .. } => "created",
            Self::Accepted { created: false, .. } => "joined",
        }
    }
}

/// A request that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// This build does not know the kind.
    #[error("unknown kind of work")]
    UnknownKind,
    /// The payload is no JSON object or too large.
    #[error("the payload must be a JSON object of at most {PAYLOAD_BYTES_MAX} bytes")]
    Payload,
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

struct Input {
    spec: KindSpec,
    scope: ScopeId,
    payload: Vec<u8>,
    id: WorkId,
    /// Whether an earlier run may have committed without hearing of it.
    is_again: AtomicBool,
}

impl Ledger {
    /// Accepts an explicit request. Once this returns `Accepted`, the item is findable from every process (I7).
    ///
    /// # Errors
    /// [`FlushError`]; nothing was accepted, or (`Unknown` after several tries) at most one item exists (I8).
    pub async fn flush(&self, request: FlushRequest) -> Result<Flushed, FlushError> {
        self.flush_below(request, None).await
    }

    /// The same, as a part of what a client does: the span of the request is below the client's.
    ///
    /// # Errors
    /// As for [`Ledger::flush`].
    pub async fn flush_below(&self, request: FlushRequest, parent: Option<Parent>) -> Result<Flushed, FlushError> {
        let spec = self.kinds().get(&request.kind).ok_or(FlushError::UnknownKind)?.clone();
        let span = self.enqueue_span(&spec, parent);
        let flushed = self.request(spec, request).await;
        match &flushed {
            Ok(flushed) => span.end_as(flushed.label()),
            Err(_) => span.end_failed("failed"),
        }
        flushed
    }

    async fn request(&self, spec: KindSpec, request: FlushRequest) -> Result<Flushed, FlushError> {
        let payload = request.payload.to_string().into_bytes();
        if !request.payload.is_object() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(FlushError::Payload);
        }
        let input = Arc::new(Input {
            spec,
            scope: request.scope,
            payload,
            id: rt::work_id(),
            is_again: AtomicBool::new(false),
        });
        let mut runs = 1;
        loop {
            match self
                .db()
                .tx_with(TxName::Flush, &input, |tx, input| Box::pin(flush(tx, input)))
                .await
            {
                Err(TxError::Unknown | TxError::Constraint) if runs < RUNS_MAX => {
                    input.is_again.store(true, Ordering::Relaxed);
                    runs += 1;
                }
                Err(error) => return Err(error.into()),
                Ok(flushed) => {
                    self.signals().work.notify_one();
                    return Ok(flushed);
                }
            }
        }
    }
}

async fn flush(tx: &mut Tx, input: &Input) -> Result<Flushed, TxError> {
    let Input { spec, scope, .. } = input;
    // Without the lane, so that asking for scopes that hold nothing leaves no rows. The head is read first: a cursor that
    // stands there now has covered everything captured by then.
    let head = sources::head(tx, scope).await?;
    let cursor = cursors::get(tx, scope, &spec.binding).await?.sequence;
    if head <= cursor {
        return Ok(idle(cursor, head));
    }
    let lane = LockedLane::lock(tx, &spec.lane(scope)).await?;
    // Whatever became of the item since then, it was made for this request, and no other has its id.
    if input.is_again.load(Ordering::Relaxed) && works::get(tx, input.id).await?.is_some() {
        return Ok(Flushed::Accepted {
            id: input.id,
            created: true,
        });
    }
    let cursor = cursors::get(tx, scope, &spec.binding).await?.sequence;
    if head <= cursor {
        return Ok(idle(cursor, head));
    }
    let intent = intents::lock(tx, &spec.binding, scope).await?;
    match lane.view.admit(intent.dirty(), false) {
        Admission::Blocked { head } => Ok(Flushed::Blocked { head }),
        Admission::Join { id, raise } => {
            if raise {
                intents::save(tx, &spec.binding, scope, &intent.raise()).await?;
            }
            tx.note(Note::Enqueued {
                kind: spec.kind.clone(),
                outcome: Enqueue::Joined,
            });
            Ok(Flushed::Accepted { id, created: false })
        }
        Admission::Create { seq, is_head } => {
            create(tx, input, &lane, intent, seq, is_head).await?;
            tx.note(Note::Enqueued {
                kind: spec.kind.clone(),
                outcome: Enqueue::Created,
            });
            Ok(Flushed::Accepted {
                id: input.id,
                created: true,
            })
        }
    }
}

/// The cursor may have moved on since the head was read, but never beyond the head.
fn idle(cursor: Position, head: Position) -> Flushed {
    Flushed::Idle {
        cursor,
        head: head.max(cursor),
    }
}

async fn create(
    tx: &mut Tx,
    input: &Input,
    lane: &LockedLane,
    intent: Intent,
    seq: LaneSeq,
    is_head: bool,
) -> Result<(), TxError> {
    let Input {
        spec,
        scope,
        payload,
        id,
        ..
    } = input;
    let (logical_key, lane_key) = (spec.logical_key(scope), spec.lane(scope));
    let new = NewWork {
        id: *id,
        logical_key: &logical_key,
        lane_key: &lane_key,
        seq,
        is_head,
        kind: &spec.kind,
        payload_version: spec.payload_version,
        scope,
        payload,
        attempts_max: spec.retry.attempts_max(),
    };
    works::insert(tx, &new).await?;
    lanes::save(tx, &lane.view.with_created()).await?;
    keys::put(tx, &logical_key, &lane_key, *id).await?;
    intents::save(tx, &spec.binding, scope, &intent.raise()).await
}
