//! Rows of `pc_scheduler_leases`: named leases with a fence that survives release (I2, I5).

use powercontext_core::fence::Fence;
use powercontext_core::ids::MemberId;
use powercontext_core::lease::{Acquire, Expiry, Held, Holder, Seen};
use powercontext_core::time::Span;

use crate::store::conn::{Dialect, values};
use crate::store::error::{FenceLost, TxError};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    LeasesSql, leases { lock, create, take, renew, release }
}

/// The closed set of lease names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseName {
    /// The only process of a `single_node` deployment.
    SingleNodeRuntime,
    /// The only migrator.
    SchemaMigration,
}

impl LeaseName {
    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SingleNodeRuntime => "single-node-runtime",
            Self::SchemaMigration => "schema-migration",
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
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, name.as_str());
    let now = tx.now().await?;
    let row = if let Some(row) = tx.fetch_opt(sql.lock, values![name.as_str()]).await? {
        row
    } else {
        tx.execute(sql.create, values![name.as_str(), now]).await?;
        tx.fetch_one(sql.lock, values![name.as_str()]).await?
    };
    let stored = Fence::from_row(row.int("fence")?);
    let owner = row.opt_id("owner_id")?;
    let expires = row.opt_time("lease_expires_at")?;
    let is_live = expires.is_some_and(|at| !at.has_passed(now));
    let mine = owner.as_deref() == Some(member.as_str());
    if is_live && !mine {
        let member = row.parsed("owner_id", MemberId::parse)?;
        let holder = stored.zip(expires).map(|(fence, at)| Holder {
            member,
            fence,
            expiry: Expiry::At(at),
        });
        return Ok(Acquire::Lost(Seen {
            key: name,
            holder,
            fence: stored,
        }));
    }
    let fence = match stored {
        Some(fence) if is_live => fence,
        other => Fence::after(other),
    };
    let until = now.plus(term);
    tx.execute_one(
        sql.take,
        values![member.as_str(), fence.to_row(), until, now, name.as_str()],
    )
    .await?;
    let holder = Holder {
        member: member.clone(),
        fence,
        expiry: Expiry::At(until),
    };
    Ok(Acquire::Won(Held::granted(name, holder)))
}

/// Extends a lease that is still ours.
///
/// # Errors
/// [`TxError::Fenced`] when it is not.
pub async fn renew(tx: &mut Tx, held: &Held<LeaseName>, term: Span) -> Result<Held<LeaseName>, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, held.key().as_str());
    let now = tx.now().await?;
    let until = now.plus(term);
    let args = values![
        until,
        now,
        held.key().as_str(),
        held.member().as_str(),
        held.fence().to_row()
    ];
    match tx.execute_one(sql.renew, args).await {
        Err(TxError::Rows { .. }) => Err(TxError::Fenced(FenceLost::Lease)),
        result => {
            let holder = Holder {
                expiry: Expiry::At(until),
                ..held.holder().clone()
            };
            result.map(|()| Held::granted(*held.key(), holder))
        }
    }
}

/// Gives a lease back if it is still ours; the fence stays.
///
/// # Errors
/// [`TxError`].
pub async fn release(tx: &mut Tx, held: &Held<LeaseName>) -> Result<(), TxError> {
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, held.key().as_str());
    let now = tx.now().await?;
    let args = values![
        now,
        now,
        held.key().as_str(),
        held.member().as_str(),
        held.fence().to_row()
    ];
    tx.execute(sql.release, args).await.map(|_| ())
}

/// Raises the term of the one process that owns a SQLite file. It has no expiry: the operating system's lock on the file
/// is what makes the owner the only one.
///
/// # Errors
/// [`TxError`].
pub async fn raise_term(tx: &mut Tx, member: &MemberId) -> Result<Fence, TxError> {
    debug_assert_eq!(tx.dialect(), Dialect::Sqlite);
    let name = LeaseName::SingleNodeRuntime;
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, name.as_str());
    let now = tx.now().await?;
    tx.execute(sql.create, values![name.as_str(), now]).await?;
    let row = tx.fetch_one(sql.lock, values![name.as_str()]).await?;
    let fence = Fence::after(Fence::from_row(row.int("fence")?));
    let args = values![
        member.as_str(),
        fence.to_row(),
        None::<powercontext_core::time::DbTime>,
        now,
        name.as_str()
    ];
    tx.execute_one(sql.take, args).await?;
    Ok(fence)
}
