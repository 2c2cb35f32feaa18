//! Rows of `pc_artifact_processing_slots`: the slots of families with a cap (I13). A row is free, or names the item that
//! holds it and the fence under which that runs. It changes hands only in the transaction that claims the item or ends its
//! run, under the item's lock. Rows are made when a process first needs them and never deleted.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use powercontext_core::fence::Fence;
use powercontext_core::ids::{FamilyName, WorkId};
use powercontext_core::work::{SlotNo, slot};

use crate::store::conn::{Row, values};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    SlotsSql, slots { numbers, create, free, of, give_back }
}

/// Makes the slots of a family up to its cap, those that are not there.
///
/// # Errors
/// [`TxError`].
pub async fn make(tx: &mut Tx, family: &FamilyName, cap: NonZeroU16) -> Result<(), TxError> {
    let sql = SlotsSql::of(tx.dialect());
    let rows = tx
        .fetch(sql.numbers, values![family.as_str(), i64::from(cap.get())])
        .await?;
    let present: BTreeSet<SlotNo> = decode(&rows)?.into_iter().collect();
    for slot in slot::missing(&present, cap) {
        tx.locks(LockKind::Slot, family.as_str());
        tx.execute(sql.create, values![family.as_str(), i64::from(slot.get())])
            .await?;
    }
    Ok(())
}

/// The free slots of a family up to its cap. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn free(tx: &mut Tx, family: &FamilyName, cap: NonZeroU16) -> Result<Vec<SlotNo>, TxError> {
    let sql = SlotsSql::of(tx.dialect());
    let rows = tx
        .fetch(sql.free, values![family.as_str(), i64::from(cap.get())])
        .await?;
    decode(&rows)
}

pub(super) fn decode(rows: &[Row]) -> Result<Vec<SlotNo>, TxError> {
    let number = |row: &Row| SlotNo::from_row(row.int("slot_no")?).ok_or_else(|| corrupt("slot_no"));
    rows.iter().map(number).collect()
}

/// Gives back the slots that these runs hold, if they hold any, whoever took them and whatever this process knows of caps.
/// The items' locks are held, so nobody else gives or takes these slots meanwhile.
///
/// # Errors
/// [`TxError::Rows`] when a slot is held under another fence.
pub async fn give_back(tx: &mut Tx, runs: &[(WorkId, Fence)]) -> Result<(), TxError> {
    let sql = SlotsSql::of(tx.dialect());
    let mut held = Vec::new();
    for (id, fence) in runs {
        let id = id.to_string();
        for row in tx.fetch(sql.of, values![&id]).await? {
            held.push((row.id("family")?, row.int("slot_no")?, id.clone(), *fence));
        }
    }
    held.sort();
    for (family, slot, id, fence) in held {
        tx.locks(LockKind::Slot, &family);
        tx.later(sql.give_back, values![&family, slot, &id, fence.to_row()], None)
            .await?;
    }
    Ok(())
}
