//! Automatic admission: a scope that a scan found dirty, or an invocation that is owed, becomes a work item in an empty lane.
//!
//! One transaction a scope, and the leader's lease is proved in it, last: a leader that was replaced while it slept changes no
//! row (I2). Running it again after a commit of unknown outcome is harmless, because the scan's mark says that it was here.
//!
//! Locks lane -> item -> policy -> intent -> lease.

use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::ids::{ScopeId, WorkId, WorkKind};
use powercontext_core::lease::Held;
use powercontext_core::supervise::admission::{Decision, Situation, by_debt, by_scan};
use powercontext_core::supervise::scan::ScanGeneration;

use crate::ledger::Ledger;
use crate::ledger::kinds::KindSpec;
use crate::ledger::write::LockedLane;
use crate::rt;
use crate::store::error::corrupt;
use crate::store::leases::{self, LeaseName};
use crate::store::notes::Note;
use crate::store::works::NewWork;
use crate::store::{Tx, TxError, TxName, admitted, intents, keys, lanes, works};
use crate::telemetry::metrics::Enqueue;

/// How often an admission whose commit is of unknown outcome is run again.
const RUNS_MAX: u32 = 3;

/// A family's own condition for admitting a scope by itself.
#[async_trait]
pub trait Wanted: Send + Sync {
    /// Whether the scope is wanted now. May lock the scope's policy and candidate head, and nothing else.
    ///
    /// # Errors
    /// [`TxError`].
    async fn is_wanted(&self, tx: &mut Tx, scope: &ScopeId) -> Result<bool, TxError>;
}

/// Why a scope is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A scan found it dirty.
    Scan(ScanGeneration),
    /// An accepted invocation of it is owed and no item does it.
    Debt,
}

/// A scope to admit.
#[derive(Clone)]
pub struct AdmitRequest {
    /// Kind of work.
    pub kind: WorkKind,
    /// Where.
    pub scope: ScopeId,
    /// Why.
    pub cause: Cause,
    /// The family's condition; `None` when it wants every dirty scope.
    pub wanted: Option<Arc<dyn Wanted>>,
}

struct Input {
    term: Held<LeaseName>,
    spec: KindSpec,
    request: AdmitRequest,
    id: WorkId,
}

impl Ledger {
    /// Admits one scope under a leader's term. Answers the item that was made; `None` when the scope is busy, was seen by
    /// this scan already, or has nothing pending.
    ///
    /// # Errors
    /// [`TxError::Fenced`] when the term is over: nothing was written. Other [`TxError`]s; the same request again is harmless.
    pub async fn admit(&self, term: &Held<LeaseName>, request: AdmitRequest) -> Result<Option<WorkId>, TxError> {
        let spec = self.kinds().get(&request.kind).ok_or_else(|| corrupt("kind"))?.clone();
        let input = Arc::new(Input {
            term: term.clone(),
            spec,
            request,
            id: rt::work_id(),
        });
        let mut runs = 1;
        let admitted = loop {
            let run = self
                .db()
                .tx_with(TxName::Admit, &input, |tx, input| Box::pin(admit_in(tx, input)));
            match run.await {
                Err(TxError::Unknown | TxError::Constraint) if runs < RUNS_MAX => runs += 1,
                Err(error) => return Err(error),
                Ok(admitted) => break admitted,
            }
        };
        if admitted.is_some() {
            self.signals().work.notify_one();
        }
        Ok(admitted)
    }
}

async fn admit_in(tx: &mut Tx, input: &Input) -> Result<Option<WorkId>, TxError> {
    let Input { spec, request, .. } = input;
    let lane = LockedLane::lock(tx, &spec.lane(&request.scope)).await?;
    // An earlier run of this request may have committed without hearing of it.
    if lane.row(input.id).is_some() {
        return Ok(Some(input.id));
    }
    let is_lane_empty = lane.view.live().is_empty();
    let is_wanted = match (&request.wanted, request.cause) {
        (Some(wanted), Cause::Scan(_)) => wanted.is_wanted(tx, &request.scope).await?,
        _ => true,
    };
    let Some((intent, last_scan)) = intents::lock_scan(tx, &spec.binding, &request.scope).await? else {
        return Ok(None);
    };
    let (decision, scan) = match request.cause {
        Cause::Debt => (by_debt(&intent, is_lane_empty), last_scan),
        Cause::Scan(scan) => {
            let situation = Situation {
                intent,
                last_scan,
                is_lane_empty,
                is_wanted,
            };
            (by_scan(&situation, scan), scan)
        }
    };
    let after = match decision {
        Decision::Pass => return Ok(None),
        Decision::Mark | Decision::Admit { raise: false } => intent,
        Decision::Admit { raise: true } => intent.raise(),
    };
    let is_made = matches!(decision, Decision::Admit { .. });
    if is_made {
        create(tx, input, &lane).await?;
    }
    intents::save_scan(tx, &spec.binding, &request.scope, after.requested(), scan).await?;
    leases::assert(tx, &input.term).await?;
    Ok(is_made.then_some(input.id))
}

async fn create(tx: &mut Tx, input: &Input, lane: &LockedLane) -> Result<(), TxError> {
    let Input { spec, request, id, .. } = input;
    let (logical_key, lane_key) = (spec.logical_key(&request.scope), spec.lane(&request.scope));
    let new = NewWork {
        id: *id,
        logical_key: &logical_key,
        lane_key: &lane_key,
        seq: lane.view.lane().next,
        is_head: true,
        kind: &spec.kind,
        payload_version: spec.payload_version,
        scope: &request.scope,
        payload: b"{}",
        attempts_max: spec.retry.attempts_max(),
    };
    works::insert(tx, &new).await?;
    lanes::save(tx, &lane.view.with_created()).await?;
    keys::put(tx, &logical_key, &lane_key, *id).await?;
    if matches!(request.cause, Cause::Scan(_)) {
        admitted::put(tx, &spec.binding, *id).await?;
    }
    tx.note(Note::Enqueued {
        kind: spec.kind.clone(),
        outcome: Enqueue::Created,
    });
    Ok(())
}
