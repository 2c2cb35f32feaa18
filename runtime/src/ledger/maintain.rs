//! Deleting what nobody needs any more, in small transactions: ended items after their retention, rate windows that are over,
//! old attempts of live items, and members that died long ago. Failed items stay until an operator acts.

use std::sync::Arc;

use powercontext_core::time::{DbTime, Span};

use crate::rt;
use crate::store::{Db, Dialect, Tx, TxError, TxName, members, rates, upkeep};

/// How many items one transaction deletes. On SQLite everybody who writes waits for it, elsewhere who wants its rows.
fn items_at_once(upkeep: &Upkeep, dialect: Dialect) -> u32 {
    upkeep.batch.min(match dialect {
        Dialect::OceanBase => 32,
        Dialect::Sqlite => 16,
    })
}

/// Live items whose attempts one transaction looks at.
const LONG_ITEMS_AT_ONCE: u32 = 64;
/// How long the row of a member that died is kept, for whoever looks for the cause.
const DEAD_MEMBERS_KEPT: Span = Span::seconds(86_400);

/// How long things are kept, and how much is deleted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// How long an ended item is kept.
    pub retention: Span,
    /// Rows deleted at once, 1 to 500.
    pub batch: u32,
}

/// What a batch deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Ended items.
    pub operations: u64,
    /// Rate windows.
    pub rate_limit_windows: u64,
    /// Attempts of live items.
    pub attempts: u64,
    /// Members.
    pub members: u64,
}

impl Cleaned {
    /// Whether nothing was left to delete.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            rate_limit_windows: self.rate_limit_windows + other.rate_limit_windows,
            attempts: self.attempts + other.attempts,
            members: self.members + other.members,
        }
    }
}

/// Deletes one batch: of ended items while there are as many as a batch takes, then of the rest. Then it rests for as long as
/// that took, so that half of the time belongs to others. Deleting again what a lost reply hides is harmless.
///
/// `place` is where the last batch of the same purge ended, `None` before the first: a store that keeps deleted index entries
/// for a while would pass over all of them again with each batch.
///
/// # Errors
/// [`TxError`]; what was deleted before it stays deleted.
pub async fn maintain(db: &Db, upkeep: Upkeep, place: &mut Option<DbTime>) -> Result<Cleaned, TxError> {
    let begun = rt::now();
    let (cleaned, next) = clean(db, upkeep, *place).await?;
    *place = next.or(*place);
    rt::sleep(begun.elapsed()).await;
    Ok(cleaned)
}

async fn clean(db: &Db, upkeep: Upkeep, place: Option<DbTime>) -> Result<(Cleaned, Option<DbTime>), TxError> {
    let input = Arc::new((upkeep, place));
    let operations = db.tx_with(TxName::Maintain, &input, |tx, (upkeep, place)| {
        Box::pin(operations(tx, upkeep, *place))
    });
    let (operations, next) = operations.await?;
    // The rest looks at every live item, so it comes once those that ended are gone, and not with each batch of them.
    if operations >= u64::from(items_at_once(&upkeep, db.dialect())) {
        let cleaned = Cleaned {
            operations,
            ..Cleaned::default()
        };
        return Ok((cleaned, next));
    }
    let rest = db.tx_with(TxName::Maintain, &input, |tx, (upkeep, _)| Box::pin(rest(tx, upkeep)));
    let cleaned = Cleaned {
        operations,
        ..rest.await?
    };
    Ok((cleaned, next))
}

fn before(now: DbTime, span: Span) -> DbTime {
    let micros = i64::try_from(span.as_millis().saturating_mul(1000)).unwrap_or(i64::MAX);
    DbTime::from_micros(now.micros().saturating_sub(micros))
}

async fn operations(tx: &mut Tx, upkeep: &Upkeep, place: Option<DbTime>) -> Result<(u64, Option<DbTime>), TxError> {
    let cutoff = before(tx.now().await?, upkeep.retention);
    let batch = items_at_once(upkeep, tx.dialect());
    upkeep::purge_ended(tx, place, cutoff, batch).await
}

async fn rest(tx: &mut Tx, upkeep: &Upkeep) -> Result<Cleaned, TxError> {
    let cutoff = before(tx.now().await?, DEAD_MEMBERS_KEPT);
    Ok(Cleaned {
        operations: 0,
        attempts: upkeep::trim_attempts(tx, LONG_ITEMS_AT_ONCE).await?,
        rate_limit_windows: rates::purge(tx, upkeep.batch).await?,
        members: members::purge(tx, cutoff, upkeep.batch).await?,
    })
}
