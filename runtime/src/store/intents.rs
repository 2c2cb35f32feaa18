//! Rows of `pc_artifact_processing_intents`: what is pending and what is owed, per binding and scope (I12). Locked last
//! but for leases, so they are held for one round trip.

use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::supervise::intent::{Clean, Dirty, Handled, Intent, Requested};

use crate::store::conn::{Row, values};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    IntentsSql, intents { get, lock, create, save, mark_dirty }
}

fn decode(row: &Row) -> Result<Intent, TxError> {
    Intent::from_row(
        Dirty::from_row(row.count("dirty_generation")?),
        Clean::from_row(row.count("clean_generation")?),
        Requested::from_row(row.count("requested_generation")?),
        Handled::from_row(row.count("handled_generation")?),
    )
    .map_err(|_| corrupt("intent"))
}

/// Reads an intent without locking it.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, binding: &BindingName, scope: &ScopeId) -> Result<Intent, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    let row = tx.fetch_opt(sql.get, values![binding.as_str(), scope.as_str()]).await?;
    row.as_ref().map_or(Ok(Intent::NEW), decode)
}

/// Locks an intent, making its row when there is none.
///
/// # Errors
/// [`TxError`].
pub async fn lock(tx: &mut Tx, binding: &BindingName, scope: &ScopeId) -> Result<Intent, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    tx.locks(LockKind::Intent, binding.as_str());
    let key = [binding.as_str(), scope.as_str()];
    if let Some(row) = tx.fetch_opt(sql.lock, values![key[0], key[1]]).await? {
        return decode(&row);
    }
    tx.execute(sql.create, values![key[0], key[1]]).await?;
    decode(&tx.fetch_one(sql.lock, values![key[0], key[1]]).await?)
}

/// Writes an intent that this transaction has locked.
///
/// # Errors
/// [`TxError`].
pub async fn save(tx: &mut Tx, binding: &BindingName, scope: &ScopeId, intent: &Intent) -> Result<(), TxError> {
    let sql = IntentsSql::of(tx.dialect());
    let args = values![
        intent.dirty().get(),
        intent.clean().get(),
        intent.requested().get(),
        intent.handled().get(),
        binding.as_str(),
        scope.as_str()
    ];
    tx.execute_one(sql.save, args).await
}

/// Counts one change of a scope's input for a binding.
///
/// # Errors
/// [`TxError`].
pub async fn mark_dirty(tx: &mut Tx, binding: &BindingName, scope: &ScopeId) -> Result<(), TxError> {
    let sql = IntentsSql::of(tx.dialect());
    tx.locks(LockKind::Intent, binding.as_str());
    tx.execute(sql.mark_dirty, values![binding.as_str(), scope.as_str()])
        .await
        .map(|_| ())
}
