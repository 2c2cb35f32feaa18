//! The transactions of a scan: begin, place, end; and what its pages and the other searches read.
//!
//! Every write locks the binding's state and then proves the term. A scan that begins stores its checkpoint, generation and
//! upper end together, so a successor knows that discovery is not complete although the checkpoint has moved.

use std::sync::Arc;

use powercontext_core::ids::ScopeId;
use powercontext_core::lease::Held;
use powercontext_core::schedule::Due;
use powercontext_core::supervise::scan::{PendingSeq, ScanState};

use crate::store::intents::Pending;
use crate::store::leases::{self, LeaseName};
use crate::store::sources::{self, JournalPage};
use crate::store::{Db, Tx, TxError, TxName, admitted, bindings, intents, keys};
use crate::supervisor::registry::Registration;

/// A binding's rows as one leader works on them.
pub(super) struct Rows {
    pub(super) db: Db,
    pub(super) term: Held<LeaseName>,
    pub(super) registration: Arc<Registration>,
}

struct Write {
    term: Held<LeaseName>,
    registration: Arc<Registration>,
    act: Act,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    /// `regardless`: the work is due although its schedule does not say so.
    Begin {
        regardless: bool,
    },
    Place(PendingSeq),
    End,
    Rest,
}

impl Rows {
    /// State and place as stored.
    pub(super) async fn load(&self) -> Result<(ScanState, PendingSeq), TxError> {
        let read = self.db.read_with(TxName::Scan, &self.registration, |tx, registration| {
            Box::pin(bindings::get(tx, &registration.work.binding))
        });
        read.await
    }

    /// Begins a scan if its time has come by the database's clock. Answers the state as it stands then.
    pub(super) async fn begin(&self, regardless: bool) -> Result<ScanState, TxError> {
        self.write(Act::Begin { regardless }).await
    }

    /// Stores how far the scan has come.
    pub(super) async fn place(&self, place: PendingSeq) -> Result<ScanState, TxError> {
        self.write(Act::Place(place)).await
    }

    /// Ends the scan.
    pub(super) async fn end(&self) -> Result<ScanState, TxError> {
        self.write(Act::End).await
    }

    /// Counts the checks of the system's work from now on, if nobody has before.
    pub(super) async fn rest(&self) -> Result<ScanState, TxError> {
        self.write(Act::Rest).await
    }

    async fn write(&self, act: Act) -> Result<ScanState, TxError> {
        let input = Arc::new(Write {
            term: self.term.clone(),
            registration: Arc::clone(&self.registration),
            act,
        });
        let written = self
            .db
            .tx_with(TxName::Scan, &input, |tx, input| Box::pin(write_in(tx, input)));
        match written.await {
            // Whatever became of it, the rows say it, and nothing of it is lost by reading them.
            Err(TxError::Unknown) => Ok(self.load().await?.0),
            written => written,
        }
    }

    /// How many more ordinary items may wait.
    pub(super) async fn room(&self) -> Result<u32, TxError> {
        let registration = Arc::clone(&self.registration);
        let cleared = self.db.tx_with(TxName::Scan, &registration, |tx, registration| {
            Box::pin(async move {
                let binding = &registration.work.binding;
                admitted::clear(tx, binding).await?;
                admitted::waiting(tx, binding).await
            })
        });
        Ok(admitted::WAITING_MAX.saturating_sub(cleared.await?))
    }

    /// A page of dirty scopes.
    pub(super) async fn dirty(
        &self,
        after: PendingSeq,
        upper: PendingSeq,
        limit: u32,
    ) -> Result<Vec<Pending>, TxError> {
        let input = Arc::new((Arc::clone(&self.registration), after, upper, limit));
        let read = self
            .db
            .read_with(TxName::Scan, &input, |tx, (registration, after, upper, limit)| {
                Box::pin(intents::page_dirty(
                    tx,
                    &registration.work.binding,
                    *after,
                    *upper,
                    *limit,
                ))
            });
        read.await
    }

    /// A page of scopes with an invocation that is not over: those that no item serves, and where the next page begins.
    pub(super) async fn owed(
        &self,
        after: PendingSeq,
        limit: u32,
    ) -> Result<(Vec<ScopeId>, Option<PendingSeq>), TxError> {
        let input = Arc::new((Arc::clone(&self.registration), after, limit));
        let read = self
            .db
            .read_with(TxName::Scan, &input, |tx, (registration, after, limit)| {
                Box::pin(owed_in(tx, registration, *after, *limit))
            });
        read.await
    }

    /// A page of journals compared with the binding's cursor.
    pub(super) async fn unread(&self, after: Option<ScopeId>, limit: u32) -> Result<JournalPage, TxError> {
        let input = Arc::new((Arc::clone(&self.registration), after, limit));
        let read = self
            .db
            .read_with(TxName::Reconcile, &input, |tx, (registration, after, limit)| {
                Box::pin(sources::unread(tx, &registration.work.binding, after.as_ref(), *limit))
            });
        read.await
    }

    /// Marks scopes dirty whose mark was lost.
    pub(super) async fn mark(&self, scopes: Vec<ScopeId>) -> Result<(), TxError> {
        let input = Arc::new((Arc::clone(&self.registration), self.term.clone(), scopes));
        let marked = self
            .db
            .tx_with(TxName::Reconcile, &input, |tx, (registration, term, scopes)| {
                Box::pin(async move {
                    for scope in scopes {
                        intents::mark_if_clean(tx, &registration.work.binding, scope).await?;
                    }
                    leases::assert(tx, term).await
                })
            });
        marked.await
    }

    /// Whether the one scope of a system's binding is dirty, and whether an invocation of it is not over.
    pub(super) async fn system(&self, scope: &ScopeId) -> Result<(bool, bool), TxError> {
        let input = Arc::new((Arc::clone(&self.registration), scope.clone()));
        let read = self.db.read_with(TxName::Scan, &input, |tx, (registration, scope)| {
            Box::pin(async move {
                let intent = intents::get(tx, &registration.work.binding, scope).await?;
                Ok((intent.is_dirty(), intent.is_owed()))
            })
        });
        read.await
    }
}

async fn write_in(tx: &mut Tx, input: &Write) -> Result<ScanState, TxError> {
    let binding = &input.registration.work.binding;
    if let (Act::Begin { .. }, Some(scope)) = (input.act, input.registration.system_scope()) {
        intents::mark_if_clean(tx, binding, scope).await?;
    }
    let state = bindings::lock(tx, binding).await?;
    let after = match input.act {
        Act::Begin { regardless } => {
            let now = tx.now().await?;
            let checkpoint = match input.registration.schedule.due(state.checkpoint, now) {
                Due::Now { checkpoint } => Some(checkpoint),
                Due::At(_) | Due::Never => regardless.then_some(now),
            };
            let upper = intents::upper(tx, binding).await?;
            // One that is not due after all, or is in progress, stays as it is.
            checkpoint.and_then(|checkpoint| state.begin(checkpoint, upper).ok())
        }
        Act::Place(place) => {
            if state.upper.is_some() {
                bindings::save_place(tx, binding, state.generation, place).await?;
            }
            None
        }
        Act::End => state.end().ok(),
        Act::Rest => Some(state.rested(tx.now().await?)),
    };
    if let Some(after) = after {
        bindings::save(tx, binding, &after).await?;
    }
    leases::assert(tx, &input.term).await?;
    Ok(after.unwrap_or(state))
}

async fn owed_in(
    tx: &mut Tx,
    registration: &Registration,
    after: PendingSeq,
    limit: u32,
) -> Result<(Vec<ScopeId>, Option<PendingSeq>), TxError> {
    let page = intents::page_owed(tx, &registration.work.binding, after, limit).await?;
    let next = page
        .last()
        .filter(|_| page.len() == limit as usize)
        .map(|pending| pending.seq);
    let mut lost = Vec::new();
    for chunk in page.chunks(keys::PRESENT_MAX) {
        let named: Vec<_> = chunk
            .iter()
            .map(|pending| registration.work.logical_key(&pending.scope))
            .collect();
        let present = keys::present(tx, &named).await?;
        let missing = chunk.iter().zip(&named).filter(|(_, key)| !present.contains(key));
        lost.extend(missing.map(|(pending, _)| pending.scope.clone()));
    }
    Ok((lost, next))
}
