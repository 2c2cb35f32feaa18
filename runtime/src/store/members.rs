//! Rows of `pc_runtime_members`: which processes live, and what they announce of themselves. A row holds names, numbers and
//! digests that nobody can guess a secret from.

use powercontext_core::ids::MemberId;
use powercontext_core::supervise::member::{Member, Role};
use powercontext_core::time::{DbTime, Span};

use crate::store::conn::{Row, values};
use crate::store::error::{TxError, corrupt};
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    MembersSql, members { announce, beat, live, leave, purge }
}

/// Most live members that are read; a deployment has a few dozen.
const LIVE_MAX: u32 = 1000;

/// Announces a member, new or forgotten, for so long.
///
/// # Errors
/// [`TxError`].
pub async fn announce(tx: &mut Tx, member: &Member, ttl: Span) -> Result<(), TxError> {
    let sql = MembersSql::of(tx.dialect());
    let now = tx.now().await?;
    let args = values![
        member.id.as_str(),
        member.role.as_str(),
        &member.build,
        *member.schema.start(),
        *member.schema.end(),
        *member.payload.start(),
        *member.payload.end(),
        &member.revision,
        &member.contract,
        member.execution.as_deref(),
        member.started_at,
        now,
        now.plus(ttl),
    ];
    tx.execute(sql.announce, args).await.map(|_| ())
}

/// Prolongs a member's row. `false` when it has none any more: it must announce itself again.
///
/// # Errors
/// [`TxError`].
pub async fn beat(tx: &mut Tx, id: &MemberId, ttl: Span) -> Result<bool, TxError> {
    let sql = MembersSql::of(tx.dialect());
    let now = tx.now().await?;
    let touched = tx.execute(sql.beat, values![now, now.plus(ttl), id.as_str()]).await?;
    Ok(touched == 1)
}

/// Every member whose time is not over, the earliest first.
///
/// # Errors
/// [`TxError`].
pub async fn live(tx: &mut Tx) -> Result<Vec<Member>, TxError> {
    let sql = MembersSql::of(tx.dialect());
    let now = tx.now().await?;
    let rows = tx.fetch(sql.live, values![now, LIVE_MAX]).await?;
    rows.iter().map(decode).collect()
}

/// Forgets a member that ends in order.
///
/// # Errors
/// [`TxError`].
pub async fn leave(tx: &mut Tx, id: &MemberId) -> Result<(), TxError> {
    let sql = MembersSql::of(tx.dialect());
    tx.execute(sql.leave, values![id.as_str()]).await.map(|_| ())
}

/// Forgets members whose time was over before `cutoff`. Answers how many.
///
/// # Errors
/// [`TxError`].
pub async fn purge(tx: &mut Tx, cutoff: DbTime, limit: u32) -> Result<u64, TxError> {
    let sql = MembersSql::of(tx.dialect());
    tx.execute(sql.purge, values![cutoff, limit]).await
}

fn decode(row: &Row) -> Result<Member, TxError> {
    let role = row.id("role")?;
    Ok(Member {
        id: row.parsed("member_id", MemberId::parse)?,
        role: Role::from_name(&role).ok_or_else(|| corrupt("role"))?,
        build: row.id("build_version")?,
        schema: row.small("schema_min")?..=row.small("schema_max")?,
        payload: row.small("payload_min")?..=row.small("payload_max")?,
        revision: row.id("behavior_revision")?,
        contract: row.id("contract_digest")?,
        execution: row.opt_id("execution_digest")?,
        started_at: row.time("started_at")?,
    })
}
