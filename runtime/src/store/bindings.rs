//! Rows of `pc_artifact_processing_binding_states` and `pc_scheduler_scans`: when a binding was checked last, the scan in
//! progress, and how far it has come. Only the term that leads the binding writes them. The place only saves reading
//! again; what a scan has decided stands in the intents.

use powercontext_core::ids::BindingName;
use powercontext_core::supervise::scan::{PendingSeq, ScanGeneration, ScanState};

use crate::store::conn::{Row, Value, values};
use crate::store::error::TxError;
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    BindingsSql, bindings { get, lock, create, save, place, save_place }
}

fn decode(row: &Row) -> Result<ScanState, TxError> {
    let is_scanning = row.int("scan_in_progress")? != 0;
    let upper = row.opt_count("scan_upper_pending_sequence")?;
    Ok(ScanState {
        checkpoint: row.opt_time("last_schedule_checkpoint_at")?,
        generation: ScanGeneration::from_row(row.count("scan_generation")?),
        upper: upper.filter(|_| is_scanning).map(PendingSeq::from_row),
    })
}

/// Reads a binding's state and the place of its scan, without a lock. A place of another scan is no place of this one.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, binding: &BindingName) -> Result<(ScanState, PendingSeq), TxError> {
    let sql = BindingsSql::of(tx.dialect());
    let row = tx.fetch_opt(sql.get, values![binding.as_str()]).await?;
    let state = row.as_ref().map_or(Ok(ScanState::NEW), decode)?;
    let args = values![binding.as_str(), state.generation.get()];
    let place = tx.fetch_opt(sql.place, args).await?;
    let place = place.map(|row| row.count("after_pending_sequence")).transpose()?;
    Ok((state, place.map_or(PendingSeq::START, PendingSeq::from_row)))
}

/// Locks a binding's state, making its row when there is none.
///
/// # Errors
/// [`TxError`].
pub async fn lock(tx: &mut Tx, binding: &BindingName) -> Result<ScanState, TxError> {
    let sql = BindingsSql::of(tx.dialect());
    tx.locks(LockKind::BindingState, binding.as_str());
    if let Some(row) = tx.fetch_opt(sql.lock, values![binding.as_str()]).await? {
        return decode(&row);
    }
    let now = tx.now().await?;
    tx.execute(sql.create, values![binding.as_str(), now]).await?;
    decode(&tx.fetch_one(sql.lock, values![binding.as_str()]).await?)
}

/// Writes a state that this transaction has locked.
///
/// # Errors
/// [`TxError`].
pub async fn save(tx: &mut Tx, binding: &BindingName, state: &ScanState) -> Result<(), TxError> {
    let sql = BindingsSql::of(tx.dialect());
    let now = tx.now().await?;
    let args = [
        Value::Time(state.checkpoint),
        state.generation.get().into(),
        state.upper.is_some().into(),
        state.upper.map_or(Value::Int(None), |upper| upper.get().into()),
        now.into(),
        binding.as_str().into(),
    ];
    tx.execute_one(sql.save, &args).await
}

/// Writes how far the scan of a locked binding has come.
///
/// # Errors
/// [`TxError`].
pub async fn save_place(
    tx: &mut Tx,
    binding: &BindingName,
    scan: ScanGeneration,
    place: PendingSeq,
) -> Result<(), TxError> {
    let sql = BindingsSql::of(tx.dialect());
    let now = tx.now().await?;
    let args = values![binding.as_str(), scan.get(), place.get(), now];
    tx.execute(sql.save_place, args).await.map(|_| ())
}
