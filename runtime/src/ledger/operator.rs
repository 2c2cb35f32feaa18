//! What an operator does to an item: cancel it, or revive a failed one. Both name the version they decided on, so nobody
//! acts on a state that is gone (I4).
//!
//! Who acted, and on which version, is a row beside the item. Locks lane -> item (-> slot, when the lease of the run that it ends is over) (-> intent when a cancel empties the lane).

use std::sync::Arc;

use powercontext_core::ids::WorkId;
use powercontext_core::operation::OperationKind;
use powercontext_core::work::{Event, WorkState, step};

use crate::ledger::Ledger;
use crate::ledger::slots::give_back;
use crate::ledger::write::{Guard, LockedLane, write_intent, write_step};
use crate::store::acts::{self, Actor};
use crate::store::works::WorkRow;
use crate::store::{Tx, TxError, TxName, works};

/// How often an act whose commit is of unknown outcome is looked up and, if it did not happen, run again.
const RUNS_MAX: u32 = 3;

/// An act that did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// No such operation, or an internal one.
    #[error("no such operation")]
    NotFound,
    /// The item has another version, or its state does not take the act.
    #[error("the operation is {status} in version {version} now")]
    Conflict {
        /// The item.
        id: WorkId,
        /// Its state.
        status: &'static str,
        /// Its version.
        version: u64,
    },
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Cancel,
    Retry,
}

impl Act {
    const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        }
    }
}

/// Which work somebody sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Operations, as the API shows them.
    Public,
    /// All of it.
    All,
}

enum Acted {
    Done(Box<WorkRow>),
    Refused(OperatorError),
}

impl Ledger {
    /// Cancels an item, as somebody on the host: a waiting or failed one at once, a running one through `cancelling`.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn cancel(&self, id: WorkId, expected_version: u64) -> Result<WorkRow, OperatorError> {
        self.cancel_by(Actor::HOST, id, expected_version).await
    }

    /// The same, as a principal; the act is recorded with it.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn cancel_by(&self, by: Actor, id: WorkId, expected_version: u64) -> Result<WorkRow, OperatorError> {
        let row = self.act(Act::Cancel, by, id, expected_version).await?;
        if matches!(row.item.state, WorkState::Cancelling(_)) {
            // Nobody listening means that no item runs in this process; its own worker learns of it by heartbeat.
            let _ = self.signals().cancels.send(id);
        }
        Ok(row)
    }

    /// Revives a failed item with a fresh budget, as somebody on the host.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn retry(&self, id: WorkId, expected_version: u64) -> Result<WorkRow, OperatorError> {
        self.retry_by(Actor::HOST, id, expected_version).await
    }

    /// The same, as a principal; the act is recorded with it.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn retry_by(&self, by: Actor, id: WorkId, expected_version: u64) -> Result<WorkRow, OperatorError> {
        self.act(Act::Retry, by, id, expected_version).await
    }

    /// [`Ledger::cancel_by`] for somebody on the host, who sees internal work as well.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn cancel_on_host(&self, id: WorkId, expected_version: u64) -> Result<WorkRow, OperatorError> {
        self.act_within(Reach::All, Act::Cancel, Actor::HOST, id, expected_version)
            .await
    }

    /// [`Ledger::retry_by`] for somebody on the host, who sees internal work as well.
    ///
    /// # Errors
    /// [`OperatorError`].
    pub async fn retry_on_host(&self, id: WorkId, expected_version: u64) -> Result<WorkRow, OperatorError> {
        self.act_within(Reach::All, Act::Retry, Actor::HOST, id, expected_version)
            .await
    }

    async fn act(&self, act: Act, by: Actor, id: WorkId, expected: u64) -> Result<WorkRow, OperatorError> {
        self.act_within(Reach::Public, act, by, id, expected).await
    }

    async fn act_within(
        &self,
        reach: Reach,
        act: Act,
        by: Actor,
        id: WorkId,
        expected: u64,
    ) -> Result<WorkRow, OperatorError> {
        let name = match act {
            Act::Cancel => TxName::Cancel,
            Act::Retry => TxName::Retry,
        };
        let input = Arc::new(Input {
            ledger: self.clone(),
            reach,
            act,
            by,
            id,
            expected,
        });
        let mut runs = 1;
        let acted = loop {
            match self
                .db()
                .tx_with(name, &input, |tx, input| Box::pin(act_in(tx, input)))
                .await
            {
                Err(TxError::Unknown) => match self.acted(act, id, expected).await? {
                    Some(row) => break Acted::Done(Box::new(row)),
                    None if runs < RUNS_MAX => runs += 1,
                    None => return Err(TxError::Unknown.into()),
                },
                Err(error) => return Err(error.into()),
                // A commit of unknown outcome that arrived late looks like a conflict to the run after it.
                Ok(Acted::Refused(error)) if runs > 1 => match self.acted(act, id, expected).await? {
                    Some(row) => break Acted::Done(Box::new(row)),
                    None => break Acted::Refused(error),
                },
                Ok(acted) => break acted,
            }
        };
        self.signals().work.notify_one();
        self.signals().changed.notify_waiters();
        match acted {
            Acted::Done(row) => Ok(*row),
            Acted::Refused(error) => Err(error),
        }
    }

    /// Whether an act of unknown outcome happened: the item moved on from the expected version into the act's state.
    async fn acted(&self, act: Act, id: WorkId, expected: u64) -> Result<Option<WorkRow>, TxError> {
        let row = self.work(id).await?;
        Ok(row.filter(|row| {
            let state = &row.item.state;
            let reached = match act {
                Act::Cancel => matches!(state, WorkState::Cancelling(_) | WorkState::Cancelled { .. }),
                Act::Retry => !matches!(state, WorkState::Failed { .. }),
            };
            row.item.version > expected && reached
        }))
    }

    /// Reads an item, internal ones included.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn work(&self, id: WorkId) -> Result<Option<WorkRow>, TxError> {
        self.db()
            .read_with(TxName::Operations, &Arc::new(id), |tx, id| {
                Box::pin(works::get(tx, *id))
            })
            .await
    }
}

struct Input {
    ledger: Ledger,
    reach: Reach,
    act: Act,
    by: Actor,
    id: WorkId,
    expected: u64,
}

async fn act_in(tx: &mut Tx, input: &Input) -> Result<Acted, TxError> {
    let Input {
        ledger,
        reach,
        act,
        by,
        id,
        expected,
    } = input;
    let id = *id;
    // Read first without locks, only to learn the lane; decided again on the locked row.
    let Some(seen) = works::get(tx, id).await? else {
        return Ok(Acted::Refused(OperatorError::NotFound));
    };
    if *reach == Reach::Public && OperationKind::of(&seen.kind).is_none() {
        return Ok(Acted::Refused(OperatorError::NotFound));
    }
    let lane = LockedLane::lock(tx, &seen.lane_key).await?;
    let Some(row) = lane.row(id) else {
        // It ended between the two reads; what it is now is the answer.
        let now = works::get(tx, id).await?;
        return Ok(Acted::Refused(
            now.map_or(OperatorError::NotFound, |row| conflict(&row)),
        ));
    };
    if row.item.version != *expected {
        return Ok(Acted::Refused(conflict(row)));
    }
    let event = if *act == Act::Cancel {
        Event::Cancel
    } else {
        Event::Retry
    };
    let now = tx.now().await?;
    let Ok(step) = step(&row.item, &event, now, ledger.me()) else {
        return Ok(Acted::Refused(conflict(row)));
    };
    let emptied = write_step(tx, &lane, row, &step, Guard::default()).await?;
    give_back(tx, row, &step).await?;
    acts::record(tx, id, *expected, act.name(), *by).await?;
    if let (Some(_), Some(spec)) = (emptied, ledger.kinds().get(&row.kind)) {
        write_intent(tx, spec, row, emptied, None).await?;
    }
    let after = works::get(tx, id).await?;
    Ok(after.map_or(Acted::Refused(OperatorError::NotFound), |row| {
        Acted::Done(Box::new(row))
    }))
}

fn conflict(row: &WorkRow) -> OperatorError {
    OperatorError::Conflict {
        id: row.item.id,
        status: row.item.state.name(),
        version: row.item.version,
    }
}
