//! Recovery: items whose lease is over are waiting again, or failed when that was their last attempt. Any process may
//! recover any kind. On SQLite whatever is leased at start belongs to a dead process and is recovered at once.

use std::sync::Arc;

use powercontext_core::time::Span;
use powercontext_core::work::{Event, step};

use crate::ledger::Ledger;
use crate::ledger::slots::ended_run;
use crate::ledger::write::{Guard, LockedLane, write_intent, write_step};
use crate::store::{Tx, TxError, TxName, slots, works};

/// Most items that one transaction recovers.
const RECOVER_MAX: u32 = 64;

impl Ledger {
    /// Ends every lease that is over, in batches. Answers how many there were.
    ///
    /// # Errors
    /// [`TxError`]; what was recovered before it stays so.
    pub async fn recover(&self) -> Result<usize, TxError> {
        let ledger = Arc::new(self.clone());
        let mut total = 0;
        loop {
            let recovered = self
                .db()
                .tx_with(TxName::Recover, &ledger, |tx, ledger| Box::pin(recover_in(tx, ledger)))
                .await?;
            if recovered == 0 {
                break;
            }
            total += recovered;
        }
        if total > 0 {
            self.signals().work.notify_one();
            self.signals().changed.notify_waiters();
        }
        Ok(total)
    }

    /// Ends every lease that is over, if there is one. Answers how long the next one lasts: zero where one could not be ended,
    /// `None` where nothing is leased. One statement, and no transaction, where nothing is over.
    ///
    /// # Errors
    /// [`TxError`]; what was recovered before it stays so.
    pub async fn recover_lapsed(&self) -> Result<Option<Span>, TxError> {
        let next = self.next_lapse().await?;
        if next != Some(Span::ZERO) {
            return Ok(next);
        }
        self.recover().await?;
        self.next_lapse().await
    }

    async fn next_lapse(&self) -> Result<Option<Span>, TxError> {
        self.db()
            .read(TxName::Recover, |tx| Box::pin(works::next_lapse(tx)))
            .await
    }
}

async fn recover_in(tx: &mut Tx, ledger: &Ledger) -> Result<usize, TxError> {
    let me = ledger.me();
    let mut lapsed = works::expired(tx, me, RECOVER_MAX).await?;
    lapsed.sort_by(|a, b| a.lane.cmp(&b.lane));
    let (mut recovered, mut runs, mut owed) = (0, Vec::new(), None);
    for candidate in lapsed {
        let Some(lane) = LockedLane::try_lock(tx, &candidate.lane).await? else {
            continue;
        };
        let Some(row) = lane.row(candidate.id) else { continue };
        let now = tx.now().await?;
        let Ok(step) = step(&row.item, &Event::Expire, now, me) else {
            continue;
        };
        let emptied = write_step(tx, &lane, row, &step, Guard::default()).await?;
        recovered += 1;
        runs.extend(ended_run(row, &step));
        if emptied.is_some() {
            // The intent is the last lock of the order; the next batch takes the rest.
            owed = ledger.kinds().get(&row.kind).map(|spec| (spec, row.clone(), emptied));
            break;
        }
    }
    slots::give_back(tx, &runs).await?;
    if let Some((spec, row, emptied)) = owed {
        write_intent(tx, spec, &row, emptied, None).await?;
    }
    Ok(recovered)
}
