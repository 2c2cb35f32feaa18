//! Rows of `pc_artifact_processing_admitted`: the ordinary items, those that a scan made and no worker has started yet.
//!
//! There are few of them, because admission stops when a family has [`WAITING_MAX`]. They are what lets a claim keep a share
//! of its starts for them whatever else waits. A row whose item has started or ended says nothing and is cleared away when
//! the room is counted.

use std::ops::RangeInclusive;

use powercontext_core::ids::{BindingName, WorkId};

use crate::store::conn::values;
use crate::store::error::TxError;
use crate::store::sql::statements;
use crate::store::tx::Tx;
use crate::store::works::{self, Candidate};

statements! {
    /// Texts of this aggregate.
    AdmittedSql, admitted { put, clear, waiting, ready }
}

/// Most ordinary items of a binding that wait for their first start.
pub const WAITING_MAX: u32 = 100;

/// Remembers that a scan made this item.
///
/// # Errors
/// [`TxError`].
pub async fn put(tx: &mut Tx, binding: &BindingName, id: WorkId) -> Result<(), TxError> {
    let sql = AdmittedSql::of(tx.dialect());
    tx.execute_one(sql.put, values![binding.as_str(), &id.to_string()])
        .await
}

/// Forgets the items of a binding that have started or ended.
///
/// # Errors
/// [`TxError`].
pub async fn clear(tx: &mut Tx, binding: &BindingName) -> Result<(), TxError> {
    let sql = AdmittedSql::of(tx.dialect());
    tx.execute(sql.clear, values![binding.as_str()]).await.map(|_| ())
}

/// How many ordinary items of a binding wait for their first start.
///
/// # Errors
/// [`TxError`].
pub async fn waiting(tx: &mut Tx, binding: &BindingName) -> Result<u32, TxError> {
    let sql = AdmittedSql::of(tx.dialect());
    tx.fetch_one(sql.waiting, values![binding.as_str()])
        .await?
        .small("items")
}

/// Ordinary items of a binding that can be claimed, with a payload version of these. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn ready(
    tx: &mut Tx,
    binding: &BindingName,
    versions: &RangeInclusive<u32>,
) -> Result<Vec<Candidate>, TxError> {
    let sql = AdmittedSql::of(tx.dialect());
    let rows = tx
        .fetch(
            sql.ready,
            values![binding.as_str(), *versions.start(), *versions.end(), WAITING_MAX],
        )
        .await?;
    rows.iter().map(works::candidate).collect()
}
