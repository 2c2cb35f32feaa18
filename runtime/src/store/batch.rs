//! Whole stages of the ledger in few statements: what a claim or a finish of many items, or of one, reads and writes.
//!
//! On OceanBase a stage is a packet, one round trip whatever it holds (ADR 0017); on SQLite a loop over prepared statements.
//! Every write is guarded by what the caller read or decided, and a guard that does not hold is
//! [`TxError::Rows`]: the caller rolls back and takes the general path.

mod admit;

use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::fence::Fence;
use powercontext_core::ids::{BindingName, FamilyName, MemberId, ScopeId, WorkId, WorkKind};
use powercontext_core::lease::Expiry;
use powercontext_core::supervise::intent::{Dirty, HeadReached, Requested};
use powercontext_core::time::DbTime;
use powercontext_core::work::lane::{LaneEmptied, LaneSeq};
use powercontext_core::work::ready::ReadyFrom;
use powercontext_core::work::{Item, SlotNo, UsualFinish};

pub(crate) use admit::{Admitted, Asked, Locked, admit, lock, pending, wait_for};

use crate::store::conn::{Dialect, Row};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::oceanbase::batch as oceanbase;
use crate::store::packet::Answer;
use crate::store::sqlite::batch as sqlite;
use crate::store::tx::Tx;
use crate::store::works::{self, Candidate, WorkRow};
use crate::store::{admitted, slots};

/// Writes of a usual finish that touch a row for each item: lane, item, attempt, key.
const FINISH_WRITES: usize = 4;

/// A usual finish with what the statements need beside it.
#[derive(Debug)]
pub(crate) struct FinishRow<'a> {
    /// The decision.
    pub(crate) usual: &'a UsualFinish,
    /// The item's lane.
    pub(crate) lane: &'a LaneKey,
    /// What it stands for.
    pub(crate) key: &'a LogicalKey,
    /// Names its intent.
    pub(crate) binding: &'a BindingName,
    /// Where it worked.
    pub(crate) scope: &'a ScopeId,
    /// Name of the result.
    pub(crate) code: &'a str,
    /// The result.
    pub(crate) result: &'a [u8],
    /// The slot that it holds, and whose.
    pub(crate) slot: Option<(&'a FamilyName, SlotNo)>,
}

impl FinishRow<'_> {
    pub(crate) fn id(&self) -> WorkId {
        self.usual.claimed().id
    }

    fn held(&self) -> Option<SlotRow<'_>> {
        self.slot.map(|(family, slot)| SlotRow {
            family,
            slot,
            id: self.id(),
            fence: self.usual.holder().fence,
        })
    }
}

/// An intent whose lane a finish has left empty.
#[derive(Debug)]
pub(crate) struct SettleRow<'a> {
    pub(crate) binding: &'a BindingName,
    pub(crate) scope: &'a ScopeId,
    settled: Option<(Dirty, HeadReached)>,
}

impl<'a> SettleRow<'a> {
    /// Takes the proof that the lane is empty, and what the run consumed, with its proof; `None` when it proved nothing.
    pub(crate) fn new(
        binding: &'a BindingName,
        scope: &'a ScopeId,
        _emptied: LaneEmptied,
        settled: Option<(Dirty, HeadReached)>,
    ) -> Self {
        Self {
            binding,
            scope,
            settled,
        }
    }

    /// `clean` becomes at least this, as far as `dirty` allows; 0 changes nothing.
    pub(crate) fn clean(&self) -> u64 {
        self.settled.map_or(0, |(dirty, _)| dirty.get())
    }
}

/// Counts the rows of a guarded write.
fn guard(statement: &'static str, touched: u64, wanted: usize) -> Result<(), TxError> {
    let expected = u64::try_from(wanted).unwrap_or(u64::MAX);
    if touched == expected {
        Ok(())
    } else {
        Err(TxError::Rows {
            statement,
            expected,
            touched,
        })
    }
}

/// Locks lanes unless somebody else has them, and answers which are locked. SQLite has one writer, and so all of them.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn lock_lanes(tx: &mut Tx, lanes: &[&LaneKey]) -> Result<Vec<LaneKey>, TxError> {
    for lane in lanes {
        tx.locks_if_free(LockKind::Lane, lane.as_str());
    }
    if tx.dialect() == Dialect::Sqlite {
        return Ok(lanes.iter().map(|lane| (*lane).clone()).collect());
    }
    let answers = tx.packet(&oceanbase::lock_lanes(lanes)).await?;
    locked(&answers[0])
}

fn locked(answer: &Answer) -> Result<Vec<LaneKey>, TxError> {
    let lane = |row: &Row| row.parsed("lane_key", LaneKey::parse);
    answer.rows.iter().map(lane).collect()
}

/// Writes usual ends: lanes left empty, items succeeded, attempts closed, keys and slots given back. Answers the database's time.
/// Sorted by lane; `are_held`: [`lock_lanes`] has locked them already.
///
/// # Errors
/// [`TxError::Rows`] when any of them is not usual after all.
pub(crate) async fn finish(tx: &mut Tx, rows: &[FinishRow<'_>], are_held: bool) -> Result<DbTime, TxError> {
    for row in rows.iter().filter(|_| !are_held) {
        tx.locks(LockKind::Lane, row.lane.as_str());
    }
    tx.locks(LockKind::Item, "");
    let mut slots: Vec<SlotRow<'_>> = rows.iter().filter_map(FinishRow::held).collect();
    slots.sort_by_key(|row| (row.family, row.slot));
    for row in &slots {
        tx.locks(LockKind::Slot, row.family.as_str());
    }
    let count = rows.len();
    match tx.dialect() {
        Dialect::OceanBase => {
            let packet = oceanbase::finish(rows, &slots);
            let answers = tx.packet(&packet).await?;
            let (facts, writes) = answers.split_last().ok_or_else(|| corrupt("answers of a packet"))?;
            // Slots come last: the rows of the others are those of the items.
            for (at, answer) in writes.iter().enumerate() {
                let wanted = if at < FINISH_WRITES { count } else { slots.len() };
                guard(packet.short_name(at), answer.touched, wanted)?;
            }
            let facts = facts.rows.first().ok_or_else(|| corrupt("now"))?;
            // An intent that is there stays there, so that its write can go with COMMIT.
            guard("intents.there_many", facts.count("intents")?, count)?;
            Ok(tx.read_now(facts.time("now")?))
        }
        Dialect::Sqlite => {
            let now = tx.now().await?;
            sqlite::finish(tx, rows, &slots, now).await?;
            Ok(now)
        }
    }
}

/// Acknowledges and settles the intents of ends written by [`finish`]; the last write of the transaction.
///
/// # Errors
/// [`TxError::Rows`] when one is not there.
pub(crate) async fn settle(tx: &mut Tx, rows: &[SettleRow<'_>]) -> Result<(), TxError> {
    let mut sorted: Vec<&SettleRow<'_>> = rows.iter().collect();
    sorted.sort_by_key(|row| (row.binding, row.scope));
    for row in &sorted {
        tx.locks(LockKind::Intent, row.binding.as_str());
    }
    match tx.dialect() {
        Dialect::OceanBase => {
            let wanted = u64::try_from(rows.len()).unwrap_or(u64::MAX);
            tx.with_commit(oceanbase::settle(&sorted), vec![wanted..=wanted]);
            Ok(())
        }
        Dialect::Sqlite => sqlite::settle(tx, &sorted).await,
    }
}

/// Work that could be claimed.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Its kind.
    pub(crate) kind: WorkKind,
    /// The payload versions that can be read.
    pub(crate) versions: RangeInclusive<u32>,
    /// Most candidates of each version.
    pub(crate) limit: u32,
    /// From which moment on, where it is known that none waits before it. Not heeded on SQLite.
    pub(crate) from: Option<DbTime>,
    /// Its family and the last slot that may be taken, where it has a cap.
    pub(crate) slots: Option<(FamilyName, NonZeroU16)>,
    /// Its binding, where its ordinary items are to be read as well.
    pub(crate) ordinary: Option<BindingName>,
}

/// What there is of a kind.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Waiting lane heads whose time has come, of each version those first that are due longest.
    pub(crate) page: Vec<Candidate>,
    /// Free slots; `None` where the kind needs none.
    pub(crate) slots: Option<Vec<SlotNo>>,
    /// Its ordinary items that can be claimed, where they were asked for.
    pub(crate) ordinary: Vec<Candidate>,
    /// Where the next look may begin; not told on SQLite.
    pub(crate) next: Option<ReadyFrom>,
}

/// What there is of each kind. Takes no lock, and on OceanBase comes before the transaction.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn ready(tx: &mut Tx, wanted: &[Wanted]) -> Result<Vec<Ready>, TxError> {
    let mut found = Vec::with_capacity(wanted.len());
    match tx.dialect() {
        Dialect::OceanBase => {
            let mut answers = tx.peek(&oceanbase::ready(wanted)).await?.into_iter();
            let mut answer = || answers.next().ok_or_else(|| corrupt("answers of a packet"));
            let mut pages: Vec<Vec<Candidate>> = vec![Vec::new(); wanted.len() * 2];
            let mut firsts: Vec<Option<DbTime>> = vec![None; wanted.len()];
            let mut now = None;
            for row in answer()?.rows {
                let number = usize::try_from(row.count("number")?).unwrap_or(usize::MAX);
                let moment = row.time("moment")?;
                let Some(page) = pages.get_mut(number) else {
                    now = Some(moment);
                    continue;
                };
                page.push(works::candidate(&row)?);
                if let Some(first) = firsts.get_mut(number) {
                    *first = Some(first.map_or(moment, |first| first.min(moment)));
                }
            }
            let now = now.ok_or_else(|| corrupt("now"))?;
            let ordinary = pages.split_off(wanted.len());
            for (((wanted, page), ordinary), first) in wanted.iter().zip(pages).zip(ordinary).zip(firsts) {
                let slots = match wanted.slots {
                    Some(_) => Some(slots::decode(&answer()?.rows)?),
                    None => None,
                };
                let next = Some(ReadyFrom::after(first, now));
                found.push(Ready {
                    page,
                    slots,
                    ordinary,
                    next,
                });
            }
        }
        Dialect::Sqlite => {
            for wanted in wanted {
                let mut page = Vec::new();
                for version in wanted.versions.clone() {
                    page.extend(works::ready(tx, &wanted.kind, version, wanted.limit).await?);
                }
                let slots = match &wanted.slots {
                    Some((family, cap)) => Some(slots::free(tx, family, *cap).await?),
                    None => None,
                };
                let ordinary = match &wanted.ordinary {
                    // A page without any item has no ordinary one either.
                    Some(binding) if !page.is_empty() => admitted::ready(tx, binding, &wanted.versions).await?,
                    Some(_) | None => Vec::new(),
                };
                found.push(Ready {
                    page,
                    slots,
                    ordinary,
                    next: None,
                });
            }
        }
    }
    Ok(found)
}

/// A candidate whose lane is locked, as its row is now.
#[derive(Debug)]
pub(crate) struct Found {
    /// The item.
    pub(crate) row: WorkRow,
    /// Head of its lane.
    pub(crate) head: Option<LaneSeq>,
    /// `requested` of its intent.
    pub(crate) requested: Requested,
    /// `dirty` of its intent.
    pub(crate) dirty: Dirty,
}

/// Locks the lanes of candidates, those that are free, and reads the items and the counters of their intents. A row that
/// cannot be read is passed over like a locked one: it must not stop the others. Answers the database's time as well.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn lock_candidates(
    tx: &mut Tx,
    pages: &[(&BindingName, Vec<Candidate>)],
) -> Result<(Vec<Vec<Found>>, DbTime), TxError> {
    let lanes: Vec<&LaneKey> = pages.iter().flat_map(|(_, page)| page).map(|one| &one.lane).collect();
    for lane in &lanes {
        tx.locks_if_free(LockKind::Lane, lane.as_str());
    }
    let mut found = Vec::with_capacity(pages.len());
    match tx.dialect() {
        Dialect::OceanBase => {
            let answers = tx.packet(&oceanbase::lock_candidates(&lanes, pages)).await?;
            let (locks, answers) = answers.split_first().ok_or_else(|| corrupt("answers of a packet"))?;
            let (clock, answers) = answers.split_last().ok_or_else(|| corrupt("answers of a packet"))?;
            let locked = locked(locks)?;
            for answer in answers {
                let mut rows = decode(&answer.rows);
                rows.retain(|found| locked.contains(&found.row.lane_key));
                found.push(rows);
            }
            Ok((found, tx.read_now(self::clock(clock)?)))
        }
        Dialect::Sqlite => {
            for (binding, page) in pages {
                let ids = page.iter().map(|one| one.id);
                found.push(decode(&sqlite::claimable(tx, binding, ids).await?));
            }
            Ok((found, tx.now().await?))
        }
    }
}

/// The time that a statement of the clock answered.
fn clock(answer: &Answer) -> Result<DbTime, TxError> {
    answer.rows.first().ok_or_else(|| corrupt("now"))?.time("now")
}

fn decode(rows: &[Row]) -> Vec<Found> {
    let decode = |row: &Row| {
        Ok(Found {
            row: works::decode(row)?,
            head: row.opt_count("head_sequence")?.and_then(LaneSeq::from_row),
            requested: Requested::from_row(row.opt_count("requested_generation")?.unwrap_or(0)),
            dirty: Dirty::from_row(row.opt_count("dirty_generation")?.unwrap_or(0)),
        })
    };
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        match decode(row) {
            Ok(one) => found.push(one),
            Err(error @ TxError::Corrupt(_)) => {
                tracing::warn!(error = %error, "an item that cannot be read is passed over");
            }
            Err::<_, TxError>(error) => tracing::warn!(error = %error, "an item was not read"),
        }
    }
    found
}

/// A decided claim.
#[derive(Debug)]
pub(crate) struct ClaimRow {
    /// Version of the item before it.
    pub(crate) version: u64,
    /// The item after it, running.
    pub(crate) after: Item,
    /// `requested` when it was claimed.
    pub(crate) requested: Requested,
    /// `dirty` when it was claimed.
    pub(crate) dirty: Dirty,
}

/// A slot that an item is to hold.
#[derive(Debug)]
pub(crate) struct SlotRow<'a> {
    /// Whose slot.
    pub(crate) family: &'a FamilyName,
    /// Which.
    pub(crate) slot: SlotNo,
    /// The item.
    pub(crate) id: WorkId,
    /// Its fence.
    pub(crate) fence: Fence,
}

/// Locks items whose lanes are locked, and of each family those of these slots that are still free and that nobody else
/// has. Answers the locked slots of each.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn lock_slots(
    tx: &mut Tx,
    items: &[WorkId],
    wanted: &[(FamilyName, Vec<SlotNo>)],
) -> Result<Vec<Vec<SlotNo>>, TxError> {
    tx.locks(LockKind::Item, "");
    for (family, _) in wanted {
        tx.locks_if_free(LockKind::Slot, family.as_str());
    }
    if tx.dialect() == Dialect::Sqlite {
        // Its one writer has them all.
        return Ok(wanted.iter().map(|(_, slots)| slots.clone()).collect());
    }
    let answers = tx.packet(&oceanbase::lock_slots(items, wanted)).await?;
    answers
        .iter()
        .skip(1)
        .map(|answer| slots::decode(&answer.rows))
        .collect()
}

/// Writes claims by one process under one lease: items running, attempts open, slots taken. The last write of the
/// transaction. The slots are locked, and free.
///
/// # Errors
/// [`TxError::Rows`] when an item is not at its version any more.
pub(crate) async fn claim(
    tx: &mut Tx,
    rows: &[ClaimRow],
    slots: &[SlotRow<'_>],
    owner: &MemberId,
    expiry: Expiry,
) -> Result<(), TxError> {
    if slots.is_empty() {
        tx.locks(LockKind::Item, "");
    }
    let expires = match expiry {
        Expiry::At(at) => Some(at),
        Expiry::Term => None,
    };
    match tx.dialect() {
        Dialect::OceanBase => {
            let count = |len: usize| {
                let count = u64::try_from(len).unwrap_or(u64::MAX);
                count..=count
            };
            // The attempts are made from the items that this very transaction claimed: neither can be there alone.
            let mut touches = vec![count(rows.len()), count(rows.len())];
            touches.extend((!slots.is_empty()).then(|| count(slots.len())));
            tx.with_commit(oceanbase::claim(rows, slots, owner, expires), touches);
            Ok(())
        }
        Dialect::Sqlite => sqlite::claim(tx, rows, slots, owner, expires).await,
    }
}
