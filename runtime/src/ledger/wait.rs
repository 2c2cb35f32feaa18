//! Waiting for operations: one poller per process serves everybody who waits, so a hundred flushes cost one query.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use powercontext_core::ids::WorkId;
use powercontext_core::work::WorkState;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::rt;
use crate::store::works::{self, BY_IDS_MAX, WorkRow};
use crate::store::{TxError, TxName};

type Seen = Option<Arc<WorkRow>>;

/// Everybody who waits in this process.
#[derive(Clone)]
pub struct Waiters(Arc<Inner>);

struct Inner {
    ledger: Ledger,
    poll: Duration,
    arrived: Notify,
    waiting: Mutex<BTreeMap<WorkId, watch::Sender<Seen>>>,
}

impl Waiters {
    /// Waiters of a ledger; `poll` is the longest time between two looks while somebody waits.
    pub fn new(ledger: Ledger, poll: Duration) -> Self {
        let (arrived, waiting) = (Notify::new(), Mutex::default());
        Self(Arc::new(Inner {
            ledger,
            poll,
            arrived,
            waiting,
        }))
    }

    /// Looks for those who wait until `stop`. Reads nothing while nobody does.
    pub async fn run(&self, stop: CancellationToken) {
        let Inner {
            ledger, poll, arrived, ..
        } = &*self.0;
        while !stop.is_cancelled() {
            // Registered before the look, so that a change during it is not missed.
            let changed = ledger.signals().changed.notified();
            let ids: Vec<WorkId> = self.waiting().keys().copied().collect();
            if ids.is_empty() {
                tokio::select! { biased; () = stop.cancelled() => break, () = arrived.notified() => continue }
            }
            self.look(&ids).await;
            tokio::select! { biased; () = stop.cancelled() => break, () = changed => {}, () = arrived.notified() => {}, () = rt::sleep(*poll) => {} }
        }
    }

    async fn look(&self, ids: &[WorkId]) {
        for chunk in ids.chunks(BY_IDS_MAX) {
            match read(&self.0.ledger, chunk.to_vec()).await {
                Ok(rows) => {
                    for row in rows {
                        if let Some(sender) = self.waiting().get(&row.item.id) {
                            sender.send_replace(Some(Arc::new(row)));
                        }
                    }
                }
                Err(error) => tracing::warn!(error = %error, "looking for awaited operations failed; trying again"),
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<WorkId, watch::Sender<Seen>>> {
        // A panic while the lock was held leaves the map whole: every change of it is one call.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `budget` for an operation to end (succeeded, cancelled or failed), or for the one before it in its lane
    /// to fail, which it cannot pass. Looks at least once, whatever the budget.
    ///
    /// # Errors
    /// [`TxError`] when a look of this waiter fails; `Ok(None)` when there is no such item.
    pub async fn wait(&self, id: WorkId, budget: Duration) -> Result<Option<Waited>, TxError> {
        let mut receiver = {
            let mut waiting = self.waiting();
            waiting.entry(id).or_insert_with(|| watch::channel(None).0).subscribe()
        };
        // Dropped before the receiver, which is still counted then: one receiver left means that nobody else waits.
        let _leave = Leave { waiters: self, id };
        let Some(first) = read(&self.0.ledger, vec![id]).await?.into_iter().next() else {
            return Ok(None);
        };
        let mut last = Arc::new(first);
        let until = rt::now() + budget;
        // Once: a look wakes every waiter, and a waiter that asked for the next look each time would never let it rest.
        self.0.arrived.notify_one();
        while !is_over(&last.item.state) {
            if let Some(head) = self.failed_head(&last).await? {
                return Ok(Some(Waited::HeadFailed { head }));
            }
            tokio::select! {
                biased;
                changed = receiver.changed() => if changed.is_err() { break },
                () = rt::sleep_until(until) => break,
            }
            if let Some(seen) = receiver.borrow_and_update().clone() {
                last = seen;
            }
        }
        Ok(Some(Waited::Seen(last)))
    }

    /// The failed item before this one in its lane, if that is why it waits.
    async fn failed_head(&self, row: &WorkRow) -> Result<Option<WorkId>, TxError> {
        if row.is_waiting_head || row.item.state.due().is_none() {
            return Ok(None);
        }
        let lane = Arc::new(row.lane_key.clone());
        let live = self
            .0
            .ledger
            .db()
            .read_with(TxName::Operations, &lane, |tx, lane| Box::pin(works::live(tx, lane)))
            .await?;
        let head = live
            .first()
            .filter(|head| matches!(head.item.state, WorkState::Failed { .. }));
        Ok(head.map(|head| head.item.id))
    }
}

/// What a wait saw last.
#[derive(Debug, Clone)]
pub enum Waited {
    /// The item, ended or not.
    Seen(Arc<WorkRow>),
    /// The item waits behind one that has failed, and runs once an operator has acted.
    HeadFailed {
        /// The failed item.
        head: WorkId,
    },
}

/// Forgets an id when its last waiter leaves, also when the request is dropped.
struct Leave<'a> {
    waiters: &'a Waiters,
    id: WorkId,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting();
        if waiting.get(&self.id).is_some_and(|sender| sender.receiver_count() <= 1) {
            waiting.remove(&self.id);
        }
    }
}

fn is_over(state: &WorkState) -> bool {
    !state.is_live() || matches!(state, WorkState::Failed { .. })
}

async fn read(ledger: &Ledger, ids: Vec<WorkId>) -> Result<Vec<WorkRow>, TxError> {
    ledger
        .db()
        .read_with(TxName::Operations, &Arc::new(ids), |tx, ids| {
            Box::pin(works::by_ids(tx, ids))
        })
        .await
}
