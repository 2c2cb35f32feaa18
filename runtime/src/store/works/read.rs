//! Reading work items without locks: one, many, the due, the lapsed, a page.

use std::ops::RangeInclusive;

use powercontext_core::digest::LaneKey;
use powercontext_core::ids::{MemberId, ScopeId, WorkId, WorkKind};
use powercontext_core::time::{DbTime, Span};

use super::{WorkRow, WorksSql, decode};
use crate::store::conn::{Row, Value, values};
use crate::store::error::TxError;
use crate::store::tx::Tx;

/// Reads an item without locking it.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, id: WorkId) -> Result<Option<WorkRow>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    tx.fetch_opt(sql.get, values![&id.to_string()])
        .await?
        .as_ref()
        .map(decode)
        .transpose()
}

/// The live items of a lane in their order, without a lock.
///
/// # Errors
/// [`TxError`].
pub async fn live(tx: &mut Tx, lane: &LaneKey) -> Result<Vec<WorkRow>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    tx.fetch(sql.live, values![lane.as_str(), lane.as_str()])
        .await?
        .iter()
        .map(decode)
        .collect()
}

/// An item found without locks: where it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The item.
    pub id: WorkId,
    /// Its lane.
    pub lane: LaneKey,
}

/// Decodes a candidate.
pub(in crate::store) fn candidate(row: &Row) -> Result<Candidate, TxError> {
    Ok(Candidate {
        id: row.parsed("work_id", |id| WorkId::parse(&id))?,
        lane: row.parsed("lane_key", LaneKey::parse)?,
    })
}

fn candidates(rows: &[Row]) -> Result<Vec<Candidate>, TxError> {
    rows.iter().map(candidate).collect()
}

/// Waiting lane heads of one kind and payload version whose time has come, longest due first. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn ready(tx: &mut Tx, kind: &WorkKind, version: u32, limit: u32) -> Result<Vec<Candidate>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    candidates(&tx.fetch(sql.ready, values![kind.as_str(), version, limit]).await?)
}

/// Items whose lease is over, of any kind. Takes no lock. `living` is this process.
///
/// # Errors
/// [`TxError`].
pub async fn expired(tx: &mut Tx, living: &MemberId, limit: u32) -> Result<Vec<Candidate>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    candidates(&tx.fetch(sql.expired, values![living.as_str(), limit]).await?)
}

/// How long the lease lasts that ends first, of whatever kind: zero when one is over, `None` when nothing is leased. A lease that
/// lasts as long as its process has no time and is none of these.
///
/// # Errors
/// [`TxError`].
pub async fn next_lapse(tx: &mut Tx) -> Result<Option<Span>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    let row = tx.fetch_one(sql.next_lapse, &[]).await?;
    let ends = [row.opt_time("running")?, row.opt_time("cancelling")?];
    let now = row.time("now")?;
    Ok(ends.into_iter().flatten().min().map(|end| end.since(now)))
}

/// Items that a process holds. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn owned(tx: &mut Tx, member: &MemberId, limit: u32) -> Result<Vec<Candidate>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    candidates(&tx.fetch(sql.owned, values![member.as_str(), limit]).await?)
}

/// Which operations a page shows.
#[derive(Debug, Clone)]
pub struct PageFilter {
    /// Only of this scope.
    pub scope: Option<ScopeId>,
    /// Only of these kinds; at least one, at most two.
    pub kinds: Vec<WorkKind>,
    /// Only in this state.
    pub status: Option<&'static str>,
    /// Only items behind this one in the order of the page.
    pub before: Option<(DbTime, WorkId)>,
}

/// A page of items, newest first by creation time and id.
///
/// # Errors
/// [`TxError`].
pub async fn page(tx: &mut Tx, filter: &PageFilter, limit: u32) -> Result<Vec<WorkRow>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    let Some(first) = filter.kinds.first() else {
        return Ok(Vec::new());
    };
    let second = filter.kinds.get(1).unwrap_or(first);
    // Far in the future and still a year that both engines can hold.
    let end = DbTime::from_micros(253_370_764_800_000_000);
    let (at, id) = filter
        .before
        .map_or((end, String::new()), |(at, id)| (at, id.to_string()));
    let mut args = vec![
        Value::from(first.as_str()),
        second.as_str().into(),
        filter.status.into(),
        filter.status.into(),
    ];
    args.extend([at.into(), at.into(), Value::from(&id), limit.into()]);
    let rows = match &filter.scope {
        Some(scope) => {
            args.insert(0, scope.as_str().into());
            tx.fetch(sql.page_scope, &args).await?
        }
        None => tx.fetch(sql.page, &args).await?,
    };
    rows.iter().map(decode).collect()
}

/// How many ids [`by_ids`] takes at once.
pub const BY_IDS_MAX: usize = 16;

/// State and version of several items at once, for those who wait. At most [`BY_IDS_MAX`] ids.
///
/// # Errors
/// [`TxError`].
pub async fn by_ids(tx: &mut Tx, ids: &[WorkId]) -> Result<Vec<WorkRow>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    let texts: Vec<String> = ids.iter().take(BY_IDS_MAX).map(WorkId::to_string).collect();
    let Some(last) = texts.last() else {
        return Ok(Vec::new());
    };
    let mut args: Vec<Value<'_>> = texts.iter().map(Value::from).collect();
    args.resize(BY_IDS_MAX, Value::from(last));
    tx.fetch(sql.by_ids, &args).await?.iter().map(decode).collect()
}

/// How many live items there are of a kind in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    /// The kind.
    pub kind: String,
    /// The state.
    pub status: String,
    /// How many.
    pub items: u64,
    /// When the oldest of them was enqueued.
    pub oldest: DbTime,
}

/// Live items by kind and state.
///
/// # Errors
/// [`TxError`].
pub async fn depths(tx: &mut Tx) -> Result<Vec<Depth>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    let rows = tx.fetch(sql.depths, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(Depth {
                kind: row.id("kind")?,
                status: row.id("status")?,
                items: row.count("items")?,
                oldest: row.time("oldest")?,
            })
        })
        .collect()
}

/// Whether a lane head of this kind waits with a payload version that is none of these.
///
/// # Errors
/// [`TxError`].
pub async fn has_unsupported(tx: &mut Tx, kind: &WorkKind, read: RangeInclusive<u32>) -> Result<bool, TxError> {
    let sql = WorksSql::of(tx.dialect());
    Ok(tx
        .fetch_opt(sql.unsupported, values![kind.as_str(), *read.start(), *read.end()])
        .await?
        .is_some())
}

/// When the next waiting lane head of a kind becomes due, due ones included.
///
/// # Errors
/// [`TxError`].
pub async fn next_due(tx: &mut Tx, kind: &WorkKind, version: u32) -> Result<Option<DbTime>, TxError> {
    let sql = WorksSql::of(tx.dialect());
    tx.fetch_one(sql.next_due, values![kind.as_str(), version])
        .await?
        .opt_time("due")
}
