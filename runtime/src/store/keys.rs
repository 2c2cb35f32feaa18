//! Rows of `pc_work_keys`: the newest live item of a logical key, the one that a request would join. Written only under
//! the lane's lock.

use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::ids::WorkId;

use crate::store::conn::{Value, values};
use crate::store::error::TxError;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    KeysSql, keys { get, put, move_to, delete, present }
}

/// The newest live item of a key.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, key: &LogicalKey) -> Result<Option<WorkId>, TxError> {
    let sql = KeysSql::of(tx.dialect());
    let row = tx.fetch_opt(sql.get, values![key.as_str()]).await?;
    row.map(|row| row.parsed("work_id", |id| WorkId::parse(&id)))
        .transpose()
}

/// Points a key at a new item.
///
/// # Errors
/// [`TxError`].
pub async fn put(tx: &mut Tx, key: &LogicalKey, lane: &LaneKey, newest: WorkId) -> Result<(), TxError> {
    let sql = KeysSql::of(tx.dialect());
    let (now, id) = (tx.now().await?, newest.to_string());
    tx.execute(sql.put, values![key.as_str(), &id, lane.as_str(), now])
        .await
        .map(|_| ())
}

/// Points a key at the item before a cancelled one, or forgets it when its lane is empty.
///
/// # Errors
/// [`TxError`].
pub async fn settle(tx: &mut Tx, key: &LogicalKey, newest: Option<WorkId>) -> Result<(), TxError> {
    let sql = KeysSql::of(tx.dialect());
    match newest {
        Some(id) => {
            tx.later(sql.move_to, values![&id.to_string(), key.as_str()], None)
                .await
        }
        None => tx.later(sql.delete, values![key.as_str()], None).await,
    }
}

/// How many keys [`present`] takes at once.
pub const PRESENT_MAX: usize = 16;

/// Which of these keys have a live item. At most [`PRESENT_MAX`] keys. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn present(tx: &mut Tx, keys: &[LogicalKey]) -> Result<Vec<LogicalKey>, TxError> {
    let sql = KeysSql::of(tx.dialect());
    let mut args: Vec<Value<'_>> = keys.iter().take(PRESENT_MAX).map(|key| key.as_str().into()).collect();
    args.resize(PRESENT_MAX, Value::Id(None));
    let rows = tx.fetch(sql.present, &args).await?;
    rows.iter()
        .map(|row| row.parsed("logical_key", LogicalKey::parse))
        .collect()
}
