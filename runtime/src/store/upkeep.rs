//! Rows that nobody needs any more, and the counts that only an operator asks for.
//!
//! What has ended never changes, so it is deleted without locking anything that work needs. Attempts of a live item are
//! deleted under the item's lock, taken only if it is free.

use powercontext_core::ids::{WorkId, WorkKind};
use powercontext_core::time::DbTime;

use crate::store::conn::{Value, values};
use crate::store::error::TxError;
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;
use crate::store::works::{self, WorkRow};

statements! {
    /// Texts of this aggregate.
    UpkeepSql, upkeep {
        ended, purge_attempts, purge_acts, purge_items, long, lock, trim, payload_depths, revision, find
    }
}

/// Ids that one statement deletes.
const IDS: usize = 16;
/// Closed attempts that a live item keeps.
pub const ATTEMPTS_KEPT: u32 = 50;

/// Deletes items that ended at `from` or later and before `cutoff`, the oldest first, with their attempts and what operators did
/// to them. Answers how many, and when the last of them had ended.
///
/// # Errors
/// [`TxError`].
pub async fn purge_ended(
    tx: &mut Tx,
    from: Option<DbTime>,
    cutoff: DbTime,
    limit: u32,
) -> Result<(u64, Option<DbTime>), TxError> {
    let sql = UpkeepSql::of(tx.dialect());
    let from = from.unwrap_or(DbTime::from_micros(0));
    let rows = tx.fetch(sql.ended, values![from, cutoff, limit]).await?;
    let last = rows.last().map(|row| row.time("completed_at")).transpose()?;
    let ids: Result<Vec<String>, TxError> = rows.iter().map(|row| row.id("work_id")).collect();
    let mut purged = 0;
    for chunk in ids?.chunks(IDS) {
        let mut args: Vec<Value<'_>> = chunk.iter().map(Value::from).collect();
        args.resize(IDS, Value::Id(None));
        tx.execute(sql.purge_attempts, &args).await?;
        tx.execute(sql.purge_acts, &args).await?;
        purged += tx.execute(sql.purge_items, &args).await?;
    }
    Ok((purged, last))
}

/// Deletes closed attempts of live items beyond the newest [`ATTEMPTS_KEPT`], of at most `limit` items. Answers how many
/// attempts. An item that somebody holds is passed over.
///
/// # Errors
/// [`TxError`].
pub async fn trim_attempts(tx: &mut Tx, limit: u32) -> Result<u64, TxError> {
    let sql = UpkeepSql::of(tx.dialect());
    let mut trimmed = 0;
    for row in tx.fetch(sql.long, values![ATTEMPTS_KEPT, ATTEMPTS_KEPT, limit]).await? {
        let id = row.id("work_id")?;
        tx.locks_if_free(LockKind::Item, "");
        let Some(row) = tx.fetch_opt(sql.lock, values![&id]).await? else {
            continue;
        };
        let newest_gone = row.count("attempt_count")?.saturating_sub(u64::from(ATTEMPTS_KEPT));
        trimmed += tx.execute(sql.trim, values![&id, newest_gone]).await?;
    }
    Ok(trimmed)
}

/// Live items by the version of their payload.
///
/// # Errors
/// [`TxError`].
pub async fn payload_depths(tx: &mut Tx) -> Result<Vec<(u32, u64)>, TxError> {
    let sql = UpkeepSql::of(tx.dialect());
    let rows = tx.fetch(sql.payload_depths, &[]).await?;
    rows.iter()
        .map(|row| Ok((row.small("payload_version")?, row.count("items")?)))
        .collect()
}

/// Newest complete revision of the schema.
///
/// # Errors
/// [`TxError`].
pub async fn revision(tx: &mut Tx) -> Result<u32, TxError> {
    let sql = UpkeepSql::of(tx.dialect());
    let newest = tx.fetch_one(sql.revision, &[]).await?.opt_count("newest")?;
    Ok(newest.and_then(|newest| u32::try_from(newest).ok()).unwrap_or(0))
}

/// Which items to find.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// In this state; `None` for every live one.
    pub status: Option<&'static str>,
    /// Of this kind, internal ones included.
    pub kind: Option<WorkKind>,
    /// With this error code.
    pub code: Option<String>,
    /// Behind this item, in the order of the ids.
    pub after: Option<WorkId>,
}

/// A page of live items, in the order of their ids. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn find(tx: &mut Tx, filter: &Filter, limit: u32) -> Result<Vec<WorkRow>, TxError> {
    let sql = UpkeepSql::of(tx.dialect());
    let after = filter.after.map_or_else(String::new, |id| id.to_string());
    let kind = filter.kind.as_ref().map(WorkKind::as_str);
    let code = filter.code.as_deref();
    let args = values![filter.status, filter.status, kind, kind, code, code, &after, limit];
    tx.fetch(sql.find, args).await?.iter().map(works::decode).collect()
}
