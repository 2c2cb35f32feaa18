//! Usual finishes that are ready at the same time share one transaction.
//!
//! Nobody waits for company: while as many transactions as may are under way, finishes queue, and the next one takes what
//! has come together by then. One that comes alone runs as if this did not exist. An end that is not usual after all
//! never fails its neighbours: its lane is passed over where somebody holds it, and whatever else is wrong rolls the
//! transaction back and sends each of them its own way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::supervise::intent::HeadReached;
use tokio::sync::oneshot;

use crate::ledger::Ledger;
use crate::ledger::end::{End, Input, usual_note};
use crate::rt;
use crate::store::batch::{self, FinishRow, SettleRow};
use crate::store::{Dialect, Tx, TxError, TxName};

/// Most finishes of one transaction.
const TOGETHER_MAX: usize = 64;
/// Transactions at once over a network, where one waits while the other computes.
const UNDER_WAY_MAX: usize = 2;

/// What became of a finish that was handed in.
pub(super) enum Handed {
    /// Committed together with others.
    Succeeded,
    /// To be done alone; others wait while the token lives.
    Alone(Option<oneshot::Sender<()>>),
    /// Its transaction's outcome is not known.
    Unknown,
}

struct Waiting {
    input: Arc<Input>,
    reply: oneshot::Sender<Handed>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    under_way: usize,
}

/// The finishes of one process that are not under way yet.
#[derive(Default)]
pub(super) struct Together(Mutex<Queue>);

impl Together {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code panics between two changes under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next finishes; none ends the caller's turn.
    fn next(&self) -> Vec<Waiting> {
        let mut queue = self.queue();
        let count = queue.waiting.len().min(TOGETHER_MAX);
        let next: Vec<_> = queue.waiting.drain(..count).collect();
        if next.is_empty() {
            queue.under_way -= 1;
        }
        next
    }
}

impl Ledger {
    /// Hands in a usual finish without a domain write.
    pub(super) async fn together(&self, input: &Arc<Input>) -> Handed {
        let (reply, handed) = oneshot::channel();
        let is_turn_free = {
            let mut queue = self.0.together.queue();
            queue.waiting.push_back(Waiting {
                input: Arc::clone(input),
                reply,
            });
            let most = match self.db().dialect() {
                Dialect::OceanBase => UNDER_WAY_MAX,
                Dialect::Sqlite => 1,
            };
            let is_free = queue.under_way < most;
            queue.under_way += usize::from(is_free);
            is_free
        };
        if is_turn_free {
            let ledger = self.clone();
            rt::spawn(async move { ledger.take_turns().await });
        }
        // A turn that panicked answers nobody; each of its finishes still has its own way.
        handed.await.unwrap_or_else(|_| Handed::Alone(None))
    }

    async fn take_turns(&self) {
        // Runs that end in this very moment come along; it costs no time where there is none.
        tokio::task::yield_now().await;
        loop {
            let mut next = self.0.together.next();
            match next.len() {
                0 => return,
                1 => {
                    let (token, done) = oneshot::channel();
                    let alone = next.remove(0).reply.send(Handed::Alone(Some(token)));
                    if alone.is_ok() {
                        // It is dropped, never sent.
                        let _ = done.await;
                    }
                }
                _ => {
                    let ledger = self.clone();
                    // A panic there drops what waits for an answer, and must not end this turn.
                    let _ = rt::spawn(async move { ledger.finish_together(next).await }).await;
                }
            }
        }
    }

    async fn finish_together(&self, mut together: Vec<Waiting>) {
        together.sort_by(|a, b| a.input.lane.cmp(&b.input.lane));
        let inputs: Arc<Vec<_>> = Arc::new(together.iter().map(|one| Arc::clone(&one.input)).collect());
        let written = self
            .db()
            .tx_once_with(TxName::Finish, &inputs, |tx, inputs| Box::pin(finish_in(tx, inputs)))
            .await;
        for one in together {
            let handed = match &written {
                Ok(done) if done.contains(&one.input.lane) => Handed::Succeeded,
                Err(TxError::Unknown) => Handed::Unknown,
                Ok(_) | Err(_) => Handed::Alone(None),
            };
            // Nobody hears it where the run was dropped meanwhile.
            let _ = one.reply.send(handed);
        }
    }
}

/// Finishes those whose lanes nobody else has, and answers their lanes.
async fn finish_in(tx: &mut Tx, inputs: &[Arc<Input>]) -> Result<Vec<LaneKey>, TxError> {
    let keys: Vec<LogicalKey> = inputs
        .iter()
        .map(|input| input.spec.logical_key(&input.scope))
        .collect();
    let ends: Vec<_> = inputs
        .iter()
        .zip(&keys)
        .filter_map(|(input, key)| input.row(key))
        .collect();
    let lanes: Vec<&LaneKey> = ends.iter().map(|row| row.lane).collect();
    let locked = batch::lock_lanes(tx, &lanes).await?;
    let rows: Vec<FinishRow<'_>> = ends.into_iter().filter(|row| locked.contains(row.lane)).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let now = batch::finish(tx, &rows, true).await?;
    let mut intents = Vec::with_capacity(rows.len());
    for input in inputs.iter().filter(|input| locked.contains(&input.lane)) {
        let (Some(usual), End::Finish(done, _)) = (&input.usual, &input.end) else {
            continue;
        };
        let settled = usual.dirty().zip(HeadReached::check(done.cursor, done.head_read));
        intents.push(SettleRow::new(
            &input.spec.binding,
            &input.scope,
            usual.emptied(),
            settled,
        ));
        tx.note(usual_note(input, now));
    }
    batch::settle(tx, &intents).await?;
    Ok(locked)
}
