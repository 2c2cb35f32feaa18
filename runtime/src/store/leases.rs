//! Rows of `pc_scheduler_leases`: named leases with a fence that survives release (I2, I5).

use std::borrow::Cow;

use powercontext_core::fence::Fence;
use powercontext_core::ids::MemberId;
use powercontext_core::lease::{Acquire, Expiry, Held, Holder, Seen};
use powercontext_core::supervise::mode::SupervisorKey;
use powercontext_core::time::{DbTime, Span};

use crate::store::conn::{Dialect, Row, values};
use crate::store::error::{FenceLost, TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    LeasesSql, leases {
        lock, create, take, renew, release, peek, assert, lock_supervisors, end_terms, terms
    }
}

/// The closed set of lease names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseName {
    /// The only process of a `single_node` deployment.
    SingleNodeRuntime,
    /// The only migrator.
    SchemaMigration,
    /// The leader of a Supervisor.
    Supervisor(SupervisorKey),
}

impl LeaseName {
    /// The stored name.
    pub fn as_str(&self) -> Cow<'static, str> {
        match self {
            Self::SingleNodeRuntime => Cow::Borrowed("single-node-runtime"),
            Self::SchemaMigration => Cow::Borrowed("schema-migration"),
            Self::Supervisor(key) => key.name(),
        }
    }
}

/// Takes a lease that nobody holds, or extends one that `member` holds already.
///
/// # Errors
/// [`TxError`].
pub async fn acquire(
    tx: &mut Tx,
    name: LeaseName,
    member: &MemberId,
    term: Span,
) -> Result<Acquire<LeaseName>, TxError> {
    let row = lock(tx, &name).await?;
    take_locked(tx, name, &row, member, term).await
}

/// [`acquire`] for a lease whose row this transaction has locked.
pub(super) async fn take_locked(
    tx: &mut Tx,
    name: LeaseName,
    row: &Row,
    member: &MemberId,
    term: Span,
) -> Result<Acquire<LeaseName>, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let now = tx.now().await?;
    let seen = seen(name.clone(), row)?;
    let is_live = is_live(&seen, now);
    if is_live && seen.holder.as_ref().is_some_and(|holder| holder.member != *member) {
        return Ok(Acquire::Lost(seen));
    }
    let fence = match seen.fence {
        Some(fence) if is_live => fence,
        other => Fence::after(other),
    };
    let until = now.plus(term);
    tx.execute_one(
        sql.take,
        values![member.as_str(), fence.to_row(), until, now, &*name.as_str()],
    )
    .await?;
    let holder = Holder {
        member: member.clone(),
        fence,
        expiry: Expiry::At(until),
    };
    Ok(Acquire::Won(Held::granted(name, holder)))
}

/// Locks a lease's row, making it when there is none.
pub(super) async fn lock(tx: &mut Tx, name: &LeaseName) -> Result<Row, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let name = name.as_str();
    tx.locks(LockKind::Lease, &name);
    if let Some(row) = tx.fetch_opt(sql.lock, values![&*name]).await? {
        return Ok(row);
    }
    let now = tx.now().await?;
    tx.execute(sql.create, values![&*name, now]).await?;
    tx.fetch_one(sql.lock, values![&*name]).await
}

/// A lease as its row shows it. One without an expiry belongs to a process for as long as it lives.
fn seen<K>(key: K, row: &Row) -> Result<Seen<K>, TxError> {
    let fence = Fence::from_row(row.int("fence")?);
    let owner = row.opt_id("owner_id")?;
    let owner = owner
        .map(MemberId::parse)
        .transpose()
        .map_err(|_| corrupt("owner_id"))?;
    let expiry = row.opt_time("lease_expires_at")?.map_or(Expiry::Term, Expiry::At);
    let holder = owner.zip(fence).map(|(member, fence)| Holder { member, fence, expiry });
    Ok(Seen { key, holder, fence })
}

/// Whether somebody holds a lease with a time that is not over.
fn is_live<K>(seen: &Seen<K>, now: DbTime) -> bool {
    let expiry = seen.holder.as_ref().map(|holder| holder.expiry);
    matches!(expiry, Some(Expiry::At(at)) if !at.has_passed(now))
}

/// Reads a lease without locking it, and whether somebody holds it now.
///
/// # Errors
/// [`TxError`].
pub async fn peek(tx: &mut Tx, name: LeaseName) -> Result<(Seen<LeaseName>, bool), TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let now = tx.now().await?;
    let row = tx.fetch_opt(sql.peek, values![&*name.as_str()]).await?;
    let seen = match row {
        Some(row) => seen(name, &row)?,
        None => Seen {
            key: name,
            holder: None,
            fence: None,
        },
    };
    let is_live = is_live(&seen, now);
    Ok((seen, is_live))
}

/// Proves that a lease is still ours, and keeps it locked until the transaction ends. The last lock of its transaction.
///
/// # Errors
/// [`TxError::Fenced`] when it is not.
pub async fn assert(tx: &mut Tx, held: &Held<LeaseName>) -> Result<(), TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let name = held.key().as_str();
    tx.locks(LockKind::Lease, &name);
    // A guarded write is the lock: it judges the expiry after it has waited, not before.
    let args = values![&*name, held.member().as_str(), held.fence().to_row()];
    match tx.execute(sql.assert, args).await? {
        1 => Ok(()),
        _ => Err(TxError::Fenced(FenceLost::Lease)),
    }
}

/// Extends a lease that is still ours.
///
/// # Errors
/// [`TxError::Fenced`] when it is not.
pub async fn renew(tx: &mut Tx, held: &Held<LeaseName>, term: Span) -> Result<Held<LeaseName>, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, &held.key().as_str());
    let now = tx.now().await?;
    let until = now.plus(term);
    let name = held.key().as_str();
    let args = values![until, now, &*name, held.member().as_str(), held.fence().to_row()];
    match tx.execute_one(sql.renew, args).await {
        Err(TxError::Rows { .. }) => Err(TxError::Fenced(FenceLost::Lease)),
        result => {
            let holder = Holder {
                expiry: Expiry::At(until),
                ..held.holder().clone()
            };
            result.map(|()| Held::granted(held.key().clone(), holder))
        }
    }
}

/// Gives a lease back if it is still ours; the fence stays.
///
/// # Errors
/// [`TxError`].
pub async fn release(tx: &mut Tx, held: &Held<LeaseName>) -> Result<(), TxError> {
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, &held.key().as_str());
    let now = tx.now().await?;
    let name = held.key().as_str();
    let args = values![now, now, &*name, held.member().as_str(), held.fence().to_row()];
    tx.execute(sql.release, args).await.map(|_| ())
}

/// Raises the term of the one process that owns a SQLite file. It has no expiry: the operating system's lock on the file
/// is what makes the owner the only one.
///
/// # Errors
/// [`TxError`].
pub async fn raise_term(tx: &mut Tx, name: LeaseName, member: &MemberId) -> Result<Held<LeaseName>, TxError> {
    let row = lock(tx, &name).await?;
    raise_locked(tx, name, &row, member).await
}

/// [`raise_term`] for a lease whose row this transaction has locked.
pub(super) async fn raise_locked(
    tx: &mut Tx,
    name: LeaseName,
    row: &Row,
    member: &MemberId,
) -> Result<Held<LeaseName>, TxError> {
    debug_assert_eq!(tx.dialect(), Dialect::Sqlite);
    let sql = LeasesSql::of(tx.dialect());
    let now = tx.now().await?;
    let fence = Fence::after(Fence::from_row(row.int("fence")?));
    let stored = name.as_str();
    let args = values![member.as_str(), fence.to_row(), None::<DbTime>, now, &*stored];
    tx.execute_one(sql.take, args).await?;
    let holder = Holder {
        member: member.clone(),
        fence,
        expiry: Expiry::Term,
    };
    Ok(Held::granted(name, holder))
}
