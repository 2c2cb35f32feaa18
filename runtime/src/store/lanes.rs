//! Rows of `pc_work_lanes`: the lock that orders everything of one family in one scope (I5).

use powercontext_core::digest::LaneKey;
use powercontext_core::work::lane::{Lane, LaneSeq};

use crate::store::conn::{Row, values};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    LanesSql, lanes { lock, lock_skip, create, save }
}

pub(super) fn decode(row: &Row) -> Result<Lane, TxError> {
    let head = row.opt_count("head_sequence")?;
    Ok(Lane {
        key: row.parsed("lane_key", LaneKey::parse)?,
        head: head
            .map(|raw| LaneSeq::from_row(raw).ok_or_else(|| corrupt("head_sequence")))
            .transpose()?,
        next: LaneSeq::from_row(row.count("next_sequence")?).ok_or_else(|| corrupt("next_sequence"))?,
    })
}

/// Locks a lane, making its row when it is the first of its name.
///
/// # Errors
/// [`TxError`], `Busy` when somebody holds it longer than the lock limit.
pub async fn lock(tx: &mut Tx, key: &LaneKey) -> Result<Lane, TxError> {
    let sql = LanesSql::of(tx.dialect());
    tx.locks(LockKind::Lane, key.as_str());
    if let Some(row) = tx.fetch_opt(sql.lock, values![key.as_str()]).await? {
        return decode(&row);
    }
    tx.execute(sql.create, values![key.as_str()]).await?;
    let row = tx.fetch_one(sql.lock, values![key.as_str()]).await?;
    decode(&row)
}

/// Locks a lane unless somebody else has it: then `None`, at once.
///
/// # Errors
/// [`TxError`].
pub async fn try_lock(tx: &mut Tx, key: &LaneKey) -> Result<Option<Lane>, TxError> {
    let sql = LanesSql::of(tx.dialect());
    tx.locks_if_free(LockKind::Lane, key.as_str());
    tx.fetch_opt(sql.lock_skip, values![key.as_str()])
        .await?
        .as_ref()
        .map(decode)
        .transpose()
}

/// Writes a lane that this transaction has locked.
///
/// # Errors
/// [`TxError`].
pub async fn save(tx: &mut Tx, lane: &Lane) -> Result<(), TxError> {
    let sql = LanesSql::of(tx.dialect());
    let head = crate::store::conn::Value::Int(lane.head.map(|seq| i64::try_from(seq.get()).unwrap_or(i64::MAX)));
    tx.later(
        sql.save,
        &[head, lane.next.get().into(), lane.key.as_str().into()],
        None,
    )
    .await
}
