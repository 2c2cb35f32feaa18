//! Rows of `pc_work_attempts`: the audit of every attempt, 1, 2, 3 without a hole, one outcome each (I9). Written only
//! under the item's lock.

use powercontext_core::fail::FailCode;
use powercontext_core::ids::WorkId;
use powercontext_core::lease::Holder;
use powercontext_core::time::DbTime;
use powercontext_core::work::{AttemptNo, Outcome};

use crate::store::conn::values;
use crate::store::error::{TxError, corrupt};
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    AttemptsSql, attempts { open, close, beat, started, list }
}

/// Most attempts that [`list`] answers, newest first.
const LIST_MAX: u32 = 100;

/// Inserts the open row of an attempt.
///
/// # Errors
/// [`TxError`].
pub async fn open(tx: &mut Tx, id: WorkId, no: AttemptNo, recovery: u32, holder: &Holder) -> Result<(), TxError> {
    let sql = AttemptsSql::of(tx.dialect());
    let (now, id) = (tx.now().await?, id.to_string());
    let args = values![
        &id,
        no.get(),
        recovery,
        holder.member.as_str(),
        holder.fence.to_row(),
        now,
        now
    ];
    tx.later(sql.open, args, None).await
}

/// Closes an attempt that is still open under this holder; any other number of rows means that it is closed already.
///
/// # Errors
/// [`TxError::Rows`] when the attempt is not open under this owner and fence.
pub async fn close(
    tx: &mut Tx,
    id: WorkId,
    no: AttemptNo,
    holder: &Holder,
    outcome: Outcome,
    error: Option<FailCode>,
) -> Result<(), TxError> {
    let sql = AttemptsSql::of(tx.dialect());
    let (now, id) = (tx.now().await?, id.to_string());
    let (category, code) = (error.map(FailCode::category), error.map(FailCode::code));
    let args = values![
        now,
        now,
        outcome.name(),
        category,
        code,
        &id,
        no.get(),
        holder.member.as_str(),
        holder.fence.to_row()
    ];
    tx.later(sql.close, args, None).await
}

/// When an attempt began.
///
/// # Errors
/// [`TxError`].
pub async fn started(tx: &mut Tx, id: WorkId, no: AttemptNo) -> Result<DbTime, TxError> {
    let sql = AttemptsSql::of(tx.dialect());
    tx.fetch_one(sql.started, values![&id.to_string(), no.get()])
        .await?
        .time("started_at")
}

/// Notes that the holder of an open attempt is alive.
///
/// # Errors
/// [`TxError`].
pub async fn beat(tx: &mut Tx, id: WorkId, holder: &Holder) -> Result<(), TxError> {
    let sql = AttemptsSql::of(tx.dialect());
    let (now, id) = (tx.now().await?, id.to_string());
    tx.execute(
        sql.beat,
        values![now, &id, holder.member.as_str(), holder.fence.to_row()],
    )
    .await
    .map(|_| ())
}

/// One attempt, as an operator or a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// Number, from 1.
    pub no: AttemptNo,
    /// Fence of its claim.
    pub fence: i64,
    /// Start.
    pub started_at: DbTime,
    /// End; `None` while open.
    pub finished_at: Option<DbTime>,
    /// Outcome; `None` while open.
    pub outcome: Option<String>,
    /// Why it did not succeed.
    pub error: Option<(String, String)>,
}

/// The newest attempts of an item in order of their numbers, at most 100.
///
/// # Errors
/// [`TxError`].
pub async fn list(tx: &mut Tx, id: WorkId) -> Result<Vec<AttemptRow>, TxError> {
    let sql = AttemptsSql::of(tx.dialect());
    let mut rows = Vec::new();
    for row in tx.fetch(sql.list, values![&id.to_string(), LIST_MAX]).await? {
        rows.push(AttemptRow {
            no: AttemptNo::from_row(row.small("attempt_no")?).ok_or_else(|| corrupt("attempt_no"))?,
            fence: row.int("fence")?,
            started_at: row.time("started_at")?,
            finished_at: row.opt_time("finished_at")?,
            outcome: row.opt_id("outcome")?,
            error: row.opt_id("error_category")?.zip(row.opt_id("error_code")?),
        });
    }
    rows.reverse();
    Ok(rows)
}
