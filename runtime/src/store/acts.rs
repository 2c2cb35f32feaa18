//! Rows of `pc_work_acts`: who cancelled or revived an item, and in which of its versions. Written once, in the transaction of
//! the act and under the item's lock; never changed.

use powercontext_core::ids::WorkId;

use crate::store::conn::{Value, values};
use crate::store::error::TxError;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    ActsSql, acts { record }
}

/// Who acts: a class and an id inside it. Both are names of ours, never a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// The class.
    pub kind: &'static str,
    /// The id inside the class.
    pub id: &'static str,
}

impl Actor {
    /// Whoever may run commands on the server's own machine.
    pub const HOST: Self = Self {
        kind: "host",
        id: "operator",
    };
}

/// Notes an act on the version of an item that it was decided on.
///
/// # Errors
/// [`TxError::Constraint`] when that version was acted on before.
pub async fn record(tx: &mut Tx, id: WorkId, version: u64, act: &'static str, by: Actor) -> Result<(), TxError> {
    let sql = ActsSql::of(tx.dialect());
    let (now, id) = (tx.now().await?, id.to_string());
    let args = values![&id, Value::count(version), act, by.kind, by.id, now];
    tx.later(sql.record, args, None).await
}
