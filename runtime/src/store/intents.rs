//! Rows of `pc_artifact_processing_intents`: what is pending and what is owed, per binding and scope (I12). Locked last
//! but for leases, so they are held for one round trip.

use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::supervise::intent::{Clean, Dirty, Handled, Intent, Requested};
use powercontext_core::supervise::scan::{PendingSeq, ScanGeneration};
use powercontext_core::time::DbTime;

use crate::store::conn::{Row, Value, values};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    IntentsSql, intents {
        get, lock, create, save, mark_dirty, mark_all_dirty, pending, upper, page_dirty, page_owed, lock_scan, save_scan, mark_if_clean, owed
    }
}

pub(super) fn decode(row: &Row) -> Result<Intent, TxError> {
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
    tx.with_commit_one(sql.save, args).await
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

/// Counts one change of a scope's input for these bindings, in one statement that locks their intents in this order.
///
/// # Errors
/// [`TxError`].
pub async fn mark_all_dirty(tx: &mut Tx, bindings: &[BindingName; 4], scope: &ScopeId) -> Result<(), TxError> {
    let sql = IntentsSql::of(tx.dialect());
    for binding in bindings {
        tx.locks(LockKind::Intent, binding.as_str());
    }
    let args: Vec<Value<'_>> = bindings
        .iter()
        .flat_map(|binding| [binding.as_str().into(), scope.as_str().into()])
        .collect();
    tx.execute(sql.mark_all_dirty, &args).await.map(|_| ())
}

/// Bindings that [`pending`] looks at.
pub const BINDINGS_MAX: usize = 8;

/// Which of these bindings have a dirty scope, and the database's time, in one statement. At most [`BINDINGS_MAX`].
///
/// # Errors
/// [`TxError`].
pub async fn pending(tx: &mut Tx, bindings: &[BindingName]) -> Result<(DbTime, Vec<bool>), TxError> {
    const COLUMNS: [&str; BINDINGS_MAX] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];
    let sql = IntentsSql::of(tx.dialect());
    let mut args: Vec<Value<'_>> = bindings.iter().map(|binding| binding.as_str().into()).collect();
    args.resize(BINDINGS_MAX, Value::Id(None));
    let row = tx.fetch_one(sql.pending, &args).await?;
    let pending = COLUMNS.iter().take(bindings.len()).map(|column| row.opt_int(column));
    let pending: Result<Vec<_>, _> = pending.collect();
    Ok((
        row.time("now")?,
        pending?.into_iter().map(|found| found.is_some()).collect(),
    ))
}

/// The newest registration of a binding: nothing that comes later belongs to a scan that begins now.
///
/// # Errors
/// [`TxError`].
pub async fn upper(tx: &mut Tx, binding: &BindingName) -> Result<PendingSeq, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    let row = tx
        .fetch_one(sql.upper, values![binding.as_str(), binding.as_str()])
        .await?;
    Ok(row.opt_count("newest")?.map_or(PendingSeq::START, PendingSeq::from_row))
}

/// A scope on a page of intents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its place in the order of registration.
    pub seq: PendingSeq,
    /// The scope.
    pub scope: ScopeId,
    /// Whether an accepted invocation is not over: then an item lives in the lane, or its rows were lost.
    pub is_owed: bool,
}

fn decode_pending(row: &Row) -> Result<Pending, TxError> {
    Ok(Pending {
        seq: PendingSeq::from_row(row.count("pending_sequence")?),
        scope: row.parsed("scope_id", ScopeId::parse)?,
        is_owed: row.int("is_owed")? != 0,
    })
}

/// A page of dirty scopes after a place, up to the upper end of a scan. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn page_dirty(
    tx: &mut Tx,
    binding: &BindingName,
    after: PendingSeq,
    upper: PendingSeq,
    limit: u32,
) -> Result<Vec<Pending>, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    let args = values![binding.as_str(), after.get(), upper.get(), limit];
    tx.fetch(sql.page_dirty, args)
        .await?
        .iter()
        .map(decode_pending)
        .collect()
}

/// A page of scopes with an invocation that is not over, after a place. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn page_owed(
    tx: &mut Tx,
    binding: &BindingName,
    after: PendingSeq,
    limit: u32,
) -> Result<Vec<Pending>, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    let args = values![binding.as_str(), after.get(), limit];
    tx.fetch(sql.page_owed, args)
        .await?
        .iter()
        .map(decode_pending)
        .collect()
}

/// How many accepted invocations of a binding are not over.
///
/// # Errors
/// [`TxError`].
pub async fn owed(tx: &mut Tx, binding: &BindingName) -> Result<u64, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    tx.fetch_one(sql.owed, values![binding.as_str()]).await?.count("items")
}

/// Locks an intent and answers with it the newest scan that decided on it; `None` when there is no row.
///
/// # Errors
/// [`TxError`].
pub async fn lock_scan(
    tx: &mut Tx,
    binding: &BindingName,
    scope: &ScopeId,
) -> Result<Option<(Intent, ScanGeneration)>, TxError> {
    let sql = IntentsSql::of(tx.dialect());
    tx.locks(LockKind::Intent, binding.as_str());
    let row = tx
        .fetch_opt(sql.lock_scan, values![binding.as_str(), scope.as_str()])
        .await?;
    row.map(|row| {
        let scan = ScanGeneration::from_row(row.count("last_auto_scan_generation")?);
        Ok((decode(&row)?, scan))
    })
    .transpose()
}

/// Writes what a scan decided on an intent that this transaction has locked.
///
/// # Errors
/// [`TxError`].
pub async fn save_scan(
    tx: &mut Tx,
    binding: &BindingName,
    scope: &ScopeId,
    requested: Requested,
    scan: ScanGeneration,
) -> Result<(), TxError> {
    let sql = IntentsSql::of(tx.dialect());
    let args = values![requested.get(), scan.get(), binding.as_str(), scope.as_str()];
    tx.later(sql.save_scan, args, None).await
}

/// Marks a scope dirty unless it is dirty already.
///
/// # Errors
/// [`TxError`].
pub async fn mark_if_clean(tx: &mut Tx, binding: &BindingName, scope: &ScopeId) -> Result<(), TxError> {
    let sql = IntentsSql::of(tx.dialect());
    tx.locks(LockKind::Intent, binding.as_str());
    tx.execute(sql.mark_if_clean, values![binding.as_str(), scope.as_str()])
        .await
        .map(|_| ())
}
