//! An explicit request: it joins the item that would do its work anyway, or makes one (design, "Joining"; I1, I7, I8).
//!
//! One request or hundreds are the same three round trips on OceanBase: what is pending; lanes and intents under lock; the
//! writes with COMMIT (ADR 0017). Locks lane -> item -> intent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::ids::{ScopeId, WorkId, WorkKind};
use powercontext_core::limits::PAYLOAD_BYTES_MAX;
use powercontext_core::refs::Position;
use powercontext_core::work::lane::{Admission, LaneSeq};

use crate::ledger::Ledger;
use crate::ledger::kinds::KindSpec;
use crate::rt;
use crate::store::batch::{self, Admitted, Asked, Locked};
use crate::store::error::corrupt;
use crate::store::notes::Note;
use crate::store::works::NewWork;
use crate::store::{Body, Busy, Tx, TxError, TxName, works};
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

/// One request on its way.
struct Request {
    scope: ScopeId,
    lane: LaneKey,
    key: LogicalKey,
    payload: Vec<u8>,
    id: WorkId,
}

struct Input {
    spec: KindSpec,
    /// Sorted by lane, none twice.
    requests: Vec<Request>,
    /// Whether an earlier run may have committed without hearing of it.
    is_again: AtomicBool,
    /// Whether locks are waited for. At first they are not: what waits in a packet waits badly.
    waits: AtomicBool,
}

/// Most requests of one transaction.
const TOGETHER_MAX: usize = 256;
/// Most bytes of payloads in one transaction; one request always fits.
const TOGETHER_BYTES_MAX: usize = 1024 * 1024;

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
        let spec = self.kinds().get(&request.kind).ok_or(FlushError::UnknownKind)?;
        let span = self.enqueue_span(spec, parent);
        let flushed = self.request(spec, request).await;
        match &flushed {
            Ok(flushed) => span.end_as(flushed.label()),
            Err(_) => span.end_failed("failed"),
        }
        flushed
    }

    async fn request(&self, spec: &KindSpec, request: FlushRequest) -> Result<Flushed, FlushError> {
        let request = checked(spec, request)?;
        let flushed = self.flush_together(spec, vec![request]).await?;
        let one = flushed.into_iter().next();
        one.map(|(_, flushed)| flushed).ok_or_else(|| corrupt("flush").into())
    }

    /// Accepts many requests of one kind, hundreds in a transaction; answers each in the order of the requests, as
    /// [`Ledger::flush`] would.
    ///
    /// # Errors
    /// [`FlushError::UnknownKind`]; anything else is the answer of its request.
    pub async fn flush_many(
        &self,
        kind: &WorkKind,
        requests: Vec<(ScopeId, serde_json::Value)>,
    ) -> Result<Vec<Result<Flushed, FlushError>>, FlushError> {
        let spec = self.kinds().get(kind).ok_or(FlushError::UnknownKind)?.clone();
        let mut answers = Vec::with_capacity(requests.len());
        let mut pages = Pages::default();
        for (at, (scope, payload)) in requests.into_iter().enumerate() {
            let kind = spec.kind.clone();
            let checked = checked(&spec, FlushRequest { kind, scope, payload });
            answers.push(checked.map_or_else(Err, |request| {
                pages.put(at, request);
                // Every request that was put on a page is answered below.
                Err(FlushError::Tx(TxError::Unknown))
            }));
        }
        for page in pages.0 {
            let places: BTreeMap<WorkId, usize> = page.requests.iter().map(|(at, request)| (request.id, *at)).collect();
            let requests: Vec<Request> = page.requests.into_iter().map(|(_, request)| request).collect();
            for (id, answer) in self.flush_page(&spec, requests).await {
                if let Some(at) = places.get(&id) {
                    answers[*at] = answer;
                }
            }
        }
        Ok(answers)
    }

    /// Accepts a page. What fails together is tried one by one, so that one request cannot fail its neighbours.
    async fn flush_page(&self, spec: &KindSpec, requests: Vec<Request>) -> Vec<(WorkId, Result<Flushed, FlushError>)> {
        let alone: Vec<Request> = requests.iter().map(Request::again).collect();
        if let Ok(flushed) = self.flush_together(spec, requests).await {
            return flushed.into_iter().map(|(id, flushed)| (id, Ok(flushed))).collect();
        }
        let mut answers = Vec::with_capacity(alone.len());
        for request in alone {
            let id = request.id;
            let flushed = self.flush_together(spec, vec![request]).await;
            let one = |flushed: Vec<(WorkId, Flushed)>| flushed.first().map(|(_, flushed)| *flushed);
            let answer = flushed.map(one).map(|one| one.ok_or_else(|| corrupt("flush").into()));
            answers.push((id, answer.unwrap_or_else(Err)));
        }
        answers
    }

    async fn flush_together(
        &self,
        spec: &KindSpec,
        mut requests: Vec<Request>,
    ) -> Result<Vec<(WorkId, Flushed)>, FlushError> {
        requests.sort_by(|a, b| a.lane.cmp(&b.lane));
        let input = Arc::new(Input {
            spec: spec.clone(),
            requests,
            is_again: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        });
        let mut runs = 1;
        loop {
            let run: Body<Input, _> = |tx, input| Box::pin(flush(tx, input));
            let flushed = if input.waits.load(Ordering::Relaxed) {
                self.db().tx_with(TxName::Flush, &input, run).await
            } else {
                self.db().tx_once_with(TxName::Flush, &input, run).await
            };
            match flushed {
                Err(TxError::Busy(Busy::Lock | Busy::Limit))
                    if input.requests.len() == 1 && !input.waits.swap(true, Ordering::Relaxed) => {}
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

/// Requests in pages of one transaction each.
#[derive(Default)]
struct Pages(Vec<OnePage>);

#[derive(Default)]
struct OnePage {
    requests: Vec<(usize, Request)>,
    lanes: BTreeSet<LaneKey>,
    bytes: usize,
}

impl Pages {
    /// Puts a request on the last page, or behind it where it has no room or names a lane again.
    fn put(&mut self, at: usize, request: Request) {
        let fits = self.0.last().is_some_and(|page| {
            page.requests.len() < TOGETHER_MAX
                && page.bytes + request.payload.len() <= TOGETHER_BYTES_MAX
                && !page.lanes.contains(&request.lane)
        });
        if !fits {
            self.0.push(OnePage::default());
        }
        if let Some(page) = self.0.last_mut() {
            page.bytes += request.payload.len();
            page.lanes.insert(request.lane.clone());
            page.requests.push((at, request));
        }
    }
}

impl Request {
    /// The same request: running it twice joins the first.
    fn again(&self) -> Self {
        Self {
            scope: self.scope.clone(),
            lane: self.lane.clone(),
            key: self.key.clone(),
            payload: self.payload.clone(),
            id: self.id,
        }
    }
}

fn checked(spec: &KindSpec, request: FlushRequest) -> Result<Request, FlushError> {
    let payload = request.payload.to_string().into_bytes();
    if !request.payload.is_object() || payload.len() > PAYLOAD_BYTES_MAX {
        return Err(FlushError::Payload);
    }
    Ok(Request {
        lane: spec.lane(&request.scope),
        key: spec.logical_key(&request.scope),
        scope: request.scope,
        payload,
        id: rt::work_id(),
    })
}

async fn flush(tx: &mut Tx, input: &Input) -> Result<Vec<(WorkId, Flushed)>, TxError> {
    let (binding, mut answers) = (&input.spec.binding, Vec::with_capacity(input.requests.len()));
    let asked: Vec<Asked<'_>> = input.requests.iter().map(Request::asked).collect();
    // Without the lane, so that asking for scopes that hold nothing leaves no rows. The head is read first: a cursor that
    // stands there now has covered everything captured by then.
    let pending = batch::pending(tx, binding, &asked).await?;
    let (mut requests, mut wanted) = (Vec::new(), Vec::new());
    for (request, pending) in input.requests.iter().zip(pending) {
        if pending.head <= pending.cursor {
            answers.push((request.id, idle(pending.cursor, pending.head)));
        } else {
            requests.push((request, pending.head));
            wanted.push((request.asked(), pending));
        }
    }
    if wanted.is_empty() {
        return Ok(answers);
    }
    let waits = input.waits.load(Ordering::Relaxed);
    if waits {
        batch::wait_for(tx, binding, &wanted).await?;
    }
    let locked = batch::lock(tx, binding, &wanted, waits).await?;
    let mut admitted = Admitted::default();
    for ((request, head), locked) in requests.into_iter().zip(locked) {
        let flushed = decide(tx, input, request, head, &locked, &mut admitted).await?;
        answers.push((request.id, flushed));
    }
    batch::admit(tx, binding, &admitted).await?;
    Ok(answers)
}

/// Decides one request under its lane's lock.
async fn decide<'a>(
    tx: &mut Tx,
    input: &'a Input,
    request: &'a Request,
    head: Position,
    locked: &Locked,
    admitted: &mut Admitted<'a>,
) -> Result<Flushed, TxError> {
    // Whatever became of the item since then, it was made for this request, and no other has its id.
    if input.is_again.load(Ordering::Relaxed) && works::get(tx, request.id).await?.is_some() {
        return Ok(Flushed::Accepted {
            id: request.id,
            created: true,
        });
    }
    if head <= locked.cursor {
        return Ok(idle(locked.cursor, head));
    }
    let (id, created) = match locked.view.admit(locked.intent.dirty(), false) {
        Admission::Blocked { head } => return Ok(Flushed::Blocked { head }),
        Admission::Join { id, raise } => {
            admitted.raised.extend(raise.then_some(&request.scope));
            (id, false)
        }
        Admission::Create { seq, is_head } => {
            let new = request.new_work(&input.spec, seq, is_head);
            admitted.created.push((new, locked.view.with_created()));
            admitted.raised.push(&request.scope);
            (request.id, true)
        }
    };
    tx.note(Note::Enqueued {
        kind: input.spec.kind.clone(),
        outcome: if created { Enqueue::Created } else { Enqueue::Joined },
    });
    Ok(Flushed::Accepted { id, created })
}

/// The cursor may have moved on since the head was read, but never beyond the head.
fn idle(cursor: Position, head: Position) -> Flushed {
    Flushed::Idle {
        cursor,
        head: head.max(cursor),
    }
}

impl Request {
    fn asked(&self) -> Asked<'_> {
        Asked {
            scope: &self.scope,
            lane: &self.lane,
        }
    }

    fn new_work<'a>(&'a self, spec: &'a KindSpec, seq: LaneSeq, is_head: bool) -> NewWork<'a> {
        NewWork {
            id: self.id,
            logical_key: &self.key,
            lane_key: &self.lane,
            seq,
            is_head,
            kind: &spec.kind,
            payload_version: spec.payload_version,
            scope: &self.scope,
            payload: &self.payload,
            attempts_max: spec.retry.attempts_max(),
        }
    }
}
