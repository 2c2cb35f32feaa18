//! The stored mode of supervision, and the terms of all Supervisors. The mode stands beside their leases in
//! `pc_scheduler_leases`, in a row of its own that nobody holds; its fence counts the switches. Whoever takes a lease locks
//! that first and the mode after it, as the switch does with all of them, so no term of the old mode can begin beside one.

use powercontext_core::fence::Fence;
use powercontext_core::ids::MemberId;
use powercontext_core::lease::{Acquire, Held};
use powercontext_core::supervise::mode::{Mode, ModeJudgement, SupervisorKey};
use powercontext_core::time::{DbTime, Span};

use crate::store::conn::{Dialect, values};
use crate::store::error::{TxError, corrupt};
use crate::store::leases::{self, LeaseName, LeasesSql};
use crate::store::locks::LockKind;
use crate::store::tx::Tx;

/// Name of the mode's row. It sorts behind the leases of all Supervisors.
const ROW: &str = "supervisor-mode";

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// It leads.
    Won(Held<LeaseName>),
    /// Somebody else does.
    Lost,
    /// Another mode is stored.
    ForeignMode {
        /// The stored one.
        stored: Mode,
    },
}

/// How long a term is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermLength {
    /// As long as this process owns the SQLite file.
    Process,
    /// So long, unless renewed.
    Timed(Span),
}

/// Reads the stored mode without a lock; `None` before the first term.
///
/// # Errors
/// [`TxError`].
pub async fn stored(tx: &mut Tx) -> Result<Option<Mode>, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let row = tx.fetch_opt(sql.peek, values![ROW]).await?;
    row.map_or(Ok(None), |row| parse(row.opt_id("owner_id")?))
}

fn parse(name: Option<String>) -> Result<Option<Mode>, TxError> {
    name.map(|name| Mode::from_name(&name).ok_or_else(|| corrupt("supervisor-mode")))
        .transpose()
}

/// Locks the mode, making its row when there is none.
async fn lock(tx: &mut Tx) -> Result<(Option<Mode>, Option<Fence>), TxError> {
    let sql = LeasesSql::of(tx.dialect());
    tx.locks(LockKind::Lease, ROW);
    let row = if let Some(row) = tx.fetch_opt(sql.lock, values![ROW]).await? {
        row
    } else {
        let now = tx.now().await?;
        tx.execute(sql.create, values![ROW, now]).await?;
        tx.fetch_one(sql.lock, values![ROW]).await?
    };
    Ok((parse(row.opt_id("owner_id")?)?, Fence::from_row(row.int("fence")?)))
}

async fn save(tx: &mut Tx, mode: Mode, fence: Fence) -> Result<(), TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let now = tx.now().await?;
    let args = values![mode.as_str(), fence.to_row(), None::<DbTime>, now, ROW];
    tx.execute_one(sql.take, args).await
}

/// Takes the lease of a Supervisor for a candidate of this mode, or extends it. The lease is locked first and the mode
/// after it; with a foreign one the lease stays as it is.
///
/// # Errors
/// [`TxError`].
pub async fn acquire(
    tx: &mut Tx,
    key: &SupervisorKey,
    member: &MemberId,
    length: TermLength,
    mode: Mode,
) -> Result<Term, TxError> {
    let name = LeaseName::Supervisor(key.clone());
    let row = leases::lock(tx, &name).await?;
    let (stored, fence) = lock(tx).await?;
    if let ModeJudgement::Refuse { stored } = mode.judge(stored) {
        return Ok(Term::ForeignMode { stored });
    }
    let held = match length {
        TermLength::Process => leases::raise_locked(tx, name, &row, member).await?,
        TermLength::Timed(span) => match leases::take_locked(tx, name, &row, member, span).await? {
            Acquire::Won(held) => held,
            Acquire::Lost(_) => return Ok(Term::Lost),
        },
    };
    if stored.is_none() {
        save(tx, mode, Fence::after(fence)).await?;
    }
    Ok(Term::Won(held))
}

/// Ends the terms of all Supervisors and stores another mode, in one transaction. Answers the mode before.
///
/// # Errors
/// [`TxError`].
pub async fn switch(tx: &mut Tx, to: Mode) -> Result<Option<Mode>, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let now = tx.now().await?;
    // All of them at once, in the order of their names; the mode's row is the last.
    tx.fetch(sql.lock_supervisors, values![]).await?;
    let (before, fence) = lock(tx).await?;
    tx.execute(sql.end_terms, values![now, now]).await?;
    save(tx, to, Fence::after(fence)).await?;
    Ok(before)
}

/// A Supervisor's lease, as somebody who does not hold it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermView {
    /// Whose.
    pub key: SupervisorKey,
    /// Its leader, as far as one is named.
    pub leader: Option<MemberId>,
    /// The highest fence so far.
    pub fence: Option<Fence>,
}

/// The leases of all Supervisors that ever led, without a lock.
///
/// # Errors
/// [`TxError`].
pub async fn terms(tx: &mut Tx) -> Result<Vec<TermView>, TxError> {
    let sql = LeasesSql::of(tx.dialect());
    let is_sqlite = tx.dialect() == Dialect::Sqlite;
    let now = tx.now().await?;
    let mut terms = Vec::new();
    for row in tx.fetch(sql.terms, values![]).await? {
        let Some(key) = row.parsed("lease_name", |name| SupervisorKey::parse(&name))? else {
            continue;
        };
        let is_live = match row.opt_time("lease_expires_at")? {
            Some(at) => !at.has_passed(now),
            None => is_sqlite,
        };
        let owner = row.opt_id("owner_id")?.filter(|_| is_live);
        terms.push(TermView {
            key,
            leader: owner
                .map(MemberId::parse)
                .transpose()
                .map_err(|_| corrupt("owner_id"))?,
            fence: Fence::from_row(row.int("fence")?),
        });
    }
    Ok(terms)
}
