//! Slots of families with a cap over the whole deployment (I13): a claim takes one for each item, and the transaction that
//! ends a run gives its back, whoever ends it.
//!
//! A process that dies keeps its slots for as long as its leases: they are free with the recovery of its items. Locks item
//! -> slot; a claim skips slots that another is just taking.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use powercontext_core::fence::Fence;
use powercontext_core::ids::{FamilyName, WorkId};
use powercontext_core::work::slot::choose;
use powercontext_core::work::{SlotNo, Step};

use crate::ledger::Ledger;
use crate::ledger::claim;
use crate::ledger::kinds::KindSpec;
use crate::rt;
use crate::store::batch::{self, SlotRow};
use crate::store::error::corrupt;
use crate::store::works::WorkRow;
use crate::store::{Tx, TxError, TxName, slots};

/// Families whose slots this process has seen to be there.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<BTreeSet<FamilyName>>);

impl Ledger {
    /// Makes the slots of kinds with a cap, once a process.
    pub(super) async fn make_slots(&self, specs: impl Iterator<Item = &KindSpec>) -> Result<(), TxError> {
        for spec in specs {
            let Some(cap) = spec.slots_max else { continue };
            // No code panics between two changes under this lock.
            let made = || self.0.slots_made.0.lock().unwrap_or_else(PoisonError::into_inner);
            if made().contains(&spec.family) {
                continue;
            }
            let input = Arc::new((spec.family.clone(), cap));
            self.db()
                .tx_with(TxName::Claim, &input, |tx, (family, cap)| {
                    Box::pin(slots::make(tx, family, *cap))
                })
                .await?;
            made().insert(spec.family.clone());
        }
        Ok(())
    }
}

/// How many of a kind may be claimed while so many slots of it are free.
pub(super) fn within(free: Option<&[SlotNo]>, limit: u32) -> u32 {
    let free = free.map_or(usize::MAX, <[SlotNo]>::len);
    limit.min(u32::try_from(free).unwrap_or(u32::MAX))
}

/// A slot that a claim has locked for an item.
pub(super) struct Taken {
    family: FamilyName,
    slot: SlotNo,
    id: WorkId,
    fence: Fence,
}

impl Taken {
    pub(super) fn row(&self) -> SlotRow<'_> {
        SlotRow {
            family: &self.family,
            slot: self.slot,
            id: self.id,
            fence: self.fence,
        }
    }
}

/// Locks a slot for each item that needs one. An item that finds none is not claimed; ordinary ones go first.
pub(super) async fn take(
    tx: &mut Tx,
    input: &claim::Input,
    free: &[Option<Vec<SlotNo>>],
    ordinary: &BTreeSet<WorkId>,
    taken: &mut claim::Taken,
) -> Result<Vec<Taken>, TxError> {
    let mut items: BTreeMap<&FamilyName, Vec<(WorkId, Fence)>> = BTreeMap::new();
    let mut wanted = BTreeMap::new();
    for ((spec, _), free) in input.wanted.iter().zip(free) {
        let Some(free) = free else { continue };
        let of_kind = taken.claimed.iter().filter(|claimed| claimed.kind == spec.kind);
        let mut of_kind: Vec<_> = of_kind
            .map(|claimed| (*claimed.held.key(), claimed.held.fence()))
            .collect();
        if of_kind.is_empty() {
            continue;
        }
        of_kind.sort_by_key(|(id, _)| !ordinary.contains(id));
        wanted.insert(spec.family.clone(), choose(free, of_kind.len(), rt::random()));
        items.insert(&spec.family, of_kind);
    }
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<WorkId> = items.values().flatten().map(|(id, _)| *id).collect();
    let wanted: Vec<_> = wanted.into_iter().collect();
    let locked = batch::lock_slots(tx, &ids, &wanted).await?;
    let mut slots = Vec::new();
    for ((family, _), locked) in wanted.iter().zip(locked) {
        let items = items.get(family).ok_or_else(|| corrupt("family"))?;
        slots.extend(items.iter().zip(locked).map(|((id, fence), slot)| Taken {
            family: family.clone(),
            slot,
            id: *id,
            fence: *fence,
        }));
    }
    let without: BTreeSet<WorkId> = ids
        .into_iter()
        .filter(|id| slots.iter().all(|slot| slot.id != *id))
        .collect();
    taken.rows.retain(|row| !without.contains(&row.after.id));
    taken.claimed.retain(|claimed| !without.contains(claimed.held.key()));
    for claimed in &mut taken.claimed {
        let held = slots.iter().find(|slot| slot.id == *claimed.held.key());
        claimed.slot = held.map(|slot| slot.slot);
    }
    Ok(slots)
}

/// The run that a step ends, if it ends one.
pub(super) fn ended_run(row: &WorkRow, step: &Step) -> Option<(WorkId, Fence)> {
    let run = row.item.state.run().filter(|_| step.item.state.run().is_none());
    run.map(|run| (row.item.id, run.holder.fence))
}

/// Gives back the slot of the run that a step ends, if it holds one. The item is locked.
pub(super) async fn give_back(tx: &mut Tx, row: &WorkRow, step: &Step) -> Result<(), TxError> {
    slots::give_back(tx, ended_run(row, step).as_slice()).await
}
