//! Accepting requests, one or hundreds of one kind: what is pending, the locked lanes and intents, and the writes.

use std::collections::BTreeMap;

use powercontext_core::digest::LaneKey;
use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::refs::Position;
use powercontext_core::supervise::intent::Intent;
use powercontext_core::work::lane::{Lane, LaneSeq, LaneView, LiveItem};

use crate::store::conn::{Dialect, Row};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::oceanbase::batch as oceanbase;
use crate::store::packet::Answer;
use crate::store::sqlite::batch as sqlite;
use crate::store::tx::Tx;
use crate::store::works::{self, NewWork};
use crate::store::{intents, lanes};

/// Where a request wants work. A list of them is sorted by lane and names no lane twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The scope.
    pub(crate) scope: &'a ScopeId,
    /// The lane of its work.
    pub(crate) lane: &'a LaneKey,
}

/// What lies before a binding in a scope. On OceanBase this is read ahead of the transaction, without locks.
#[derive(Debug)]
pub(crate) struct Pending {
    /// End of the journal.
    pub(crate) head: Position,
    /// How far it is consumed.
    pub(crate) cursor: Position,
    lane: Option<Lane>,
    intent: Option<Intent>,
}

/// A request under the locks of its lane and its intent.
#[derive(Debug)]
pub(crate) struct Locked {
    /// The lane and its live items.
    pub(crate) view: LaneView,
    /// How far the journal is consumed.
    pub(crate) cursor: Position,
    /// The intent.
    pub(crate) intent: Intent,
}

/// Reads what is pending where requests want work. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn pending(tx: &mut Tx, binding: &BindingName, asked: &[Asked<'_>]) -> Result<Vec<Pending>, TxError> {
    if tx.dialect() == Dialect::Sqlite {
        let rows = sqlite::pending(tx, binding, asked).await?;
        return rows.iter().map(decode_pending).collect();
    }
    let answers = tx.peek(&oceanbase::pending(binding, asked)).await?;
    let [clock, heads, cursors, lanes, intents] = &answers[..] else {
        return Err(corrupt("answers of a packet"));
    };
    // The server's threads differ by a moment: a time read before the locks is surely past for whoever comes after them.
    tx.read_now(super::clock(clock)?);
    let heads = by(heads, "scope_id", |row| row.count("position"))?;
    let cursors = by(cursors, "scope_id", |row| row.count("sequence"))?;
    let mut lanes = by(lanes, "lane_key", lanes::decode)?;
    let mut intents = by(intents, "scope_id", intents::decode)?;
    let one = |asked: &Asked<'_>| Pending {
        head: Position::new(heads.get(asked.scope.as_str()).copied().unwrap_or(0)),
        cursor: Position::new(cursors.get(asked.scope.as_str()).copied().unwrap_or(0)),
        lane: lanes.remove(asked.lane.as_str()),
        intent: intents.remove(asked.scope.as_str()),
    };
    Ok(asked.iter().map(one).collect())
}

fn decode_pending(row: &Row) -> Result<Pending, TxError> {
    let has_lane = row.opt_count("next_sequence")?.is_some();
    let has_intent = row.opt_count("dirty_generation")?.is_some();
    Ok(Pending {
        head: Position::new(row.opt_count("position")?.unwrap_or(0)),
        cursor: Position::new(row.opt_count("sequence")?.unwrap_or(0)),
        lane: has_lane.then(|| lanes::decode(row)).transpose()?,
        intent: has_intent.then(|| intents::decode(row)).transpose()?,
    })
}

/// Rows by the text of a column.
fn by<T>(
    answer: &Answer,
    column: &'static str,
    decode: impl Fn(&Row) -> Result<T, TxError>,
) -> Result<BTreeMap<String, T>, TxError> {
    answer
        .rows
        .iter()
        .map(|row| Ok((row.id(column)?, decode(row)?)))
        .collect()
}

/// Waits for lanes and intents, one statement each, so that [`lock`] finds them free. SQLite has nothing to wait for.
///
/// # Errors
/// [`TxError`], `Busy` when somebody holds one longer than the lock limit.
pub(crate) async fn wait_for(
    tx: &mut Tx,
    binding: &BindingName,
    asked: &[(Asked<'_>, Pending)],
) -> Result<(), TxError> {
    if tx.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    for (one, _) in asked {
        lanes::lock(tx, one.lane).await?;
    }
    let mut scopes: Vec<&ScopeId> = asked.iter().map(|(one, _)| one.scope).collect();
    scopes.sort();
    for scope in scopes {
        intents::lock(tx, binding, scope).await?;
    }
    Ok(())
}

/// Locks lanes and intents, making those that are missing, and reads the lanes' live items. `are_held`: [`wait_for`] has
/// locked them already.
///
/// # Errors
/// [`TxError::Corrupt`] when the rows of a lane contradict each other.
pub(crate) async fn lock(
    tx: &mut Tx,
    binding: &BindingName,
    asked: &[(Asked<'_>, Pending)],
    are_held: bool,
) -> Result<Vec<Locked>, TxError> {
    if !are_held {
        for (one, _) in asked {
            tx.locks(LockKind::Lane, one.lane.as_str());
        }
    }
    if tx.dialect() == Dialect::Sqlite {
        let locked = lock_sqlite(tx, asked).await?;
        tx.locks(LockKind::Intent, binding.as_str());
        return Ok(locked);
    }
    if !are_held {
        tx.locks(LockKind::Item, "");
        tx.locks(LockKind::Intent, binding.as_str());
    }
    let rows: Vec<Asked<'_>> = asked.iter().map(|(one, _)| *one).collect();
    let without = |is_missing: fn(&Pending) -> bool| -> Vec<Asked<'_>> {
        let missing = asked.iter().filter(|(_, pending)| is_missing(pending));
        missing.map(|(one, _)| *one).collect()
    };
    let (new_lanes, new_intents) = (without(|p| p.lane.is_none()), without(|p| p.intent.is_none()));
    let packet = oceanbase::lock_asked(binding, &rows, &new_lanes, &new_intents);
    let answers = tx.packet(&packet).await?;
    let made = usize::from(!new_lanes.is_empty());
    let ([lanes, live, cursors, ..], Some(intents)) = (&answers[made..], answers.last()) else {
        return Err(corrupt("answers of a packet"));
    };
    let mut lanes = by(lanes, "lane_key", lanes::decode)?;
    let mut intents = by(intents, "scope_id", intents::decode)?;
    let cursors = by(cursors, "scope_id", |row| row.count("sequence"))?;
    let mut live = live_items(&live.rows)?;
    let mut locked = Vec::with_capacity(rows.len());
    for one in rows {
        let lane = lanes.remove(one.lane.as_str()).ok_or_else(|| corrupt("lane"))?;
        let items = live.remove(one.lane.as_str()).unwrap_or_default();
        locked.push(Locked {
            view: LaneView::new(lane, items).map_err(|_| corrupt("lane"))?,
            cursor: Position::new(cursors.get(one.scope.as_str()).copied().unwrap_or(0)),
            intent: intents.remove(one.scope.as_str()).ok_or_else(|| corrupt("intent"))?,
        });
    }
    Ok(locked)
}

async fn lock_sqlite(tx: &mut Tx, asked: &[(Asked<'_>, Pending)]) -> Result<Vec<Locked>, TxError> {
    let mut locked = Vec::with_capacity(asked.len());
    for (one, pending) in asked {
        let new = || Lane {
            key: one.lane.clone(),
            head: None,
            next: LaneSeq::FIRST,
        };
        let lane = pending.lane.clone().unwrap_or_else(new);
        let (view, _) = works::lane_view(tx, lane).await?;
        locked.push(Locked {
            view,
            cursor: pending.cursor,
            intent: pending.intent.unwrap_or(Intent::NEW),
        });
    }
    Ok(locked)
}

/// Live items by lane, each lane's in their order.
fn live_items(rows: &[Row]) -> Result<BTreeMap<String, Vec<LiveItem>>, TxError> {
    let mut live: BTreeMap<String, Vec<LiveItem>> = BTreeMap::new();
    for row in rows {
        let row = works::decode(row)?;
        live.entry(row.lane_key.to_string()).or_default().push(LiveItem {
            id: row.item.id,
            seq: row.seq,
            state: row.item.state,
        });
    }
    Ok(live)
}

/// What a list of requests becomes.
#[derive(Debug, Default)]
pub(crate) struct Admitted<'a> {
    /// Items that are made, each with its lane as that leaves it.
    pub(crate) created: Vec<(NewWork<'a>, Lane)>,
    /// Scopes in which `requested` is raised by one.
    pub(crate) raised: Vec<&'a ScopeId>,
}

/// Writes accepted requests: items, lanes, keys, `requested`. The last write of the transaction.
///
/// # Errors
/// [`TxError`].
pub(crate) async fn admit(tx: &mut Tx, binding: &BindingName, admitted: &Admitted<'_>) -> Result<(), TxError> {
    if admitted.raised.is_empty() {
        return Ok(());
    }
    if tx.dialect() == Dialect::OceanBase {
        let now = tx.now().await?;
        let (packet, touches) = oceanbase::admit(binding, admitted, now);
        tx.with_commit(packet, touches);
        return Ok(());
    }
    sqlite::admit(tx, binding, admitted).await
}
