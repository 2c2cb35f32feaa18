//! Rows of `pc_rate_limit_windows`: how many requests of a principal a window has counted.
//!
//! The usual request is one guarded update: it counts where the window has room and touches nothing where it has not.
//! Only when it counted nothing is the row looked at, to open the window or to say how long it lasts. The window is
//! always the one that the database's clock is in.

use std::sync::Arc;

use powercontext_core::digest::PrincipalKey;
use powercontext_core::rate::{Decision, Quota};

use crate::store::conn::{Value, values};
use crate::store::db::Db;
use crate::store::error::{Busy, TxError};
use crate::store::names::TxName;
use crate::store::sql::statements;
use crate::store::tx::{Tx, TxFuture};

statements! {
    /// Texts of this aggregate.
    RatesSql, rates { take, read, open, purge }
}

/// Whose request is counted, and against what.
#[derive(Debug, Clone)]
pub struct Charge {
    /// The principal.
    pub principal: PrincipalKey,
    /// The policy, such as [`powercontext_core::rate::HTTP_POLICY`].
    pub policy: &'static str,
    /// Its quota.
    pub quota: Quota,
}

/// How often a request looks again after another one opened or closed the window under it.
const LOOKS_MAX: u32 = 4;

/// Counts one request, unless the window is full.
///
/// # Errors
/// [`TxError`]; after [`TxError::Unknown`] the request may have been counted.
pub async fn charge(db: &Db, charge: Charge) -> Result<Decision, TxError> {
    let charge = Arc::new(charge);
    for _ in 0..LOOKS_MAX {
        // On OceanBase each statement stands for itself: one packet, and the row is locked for no longer than that.
        match db.autocommit_with(TxName::RateLimit, &charge, count).await {
            Ok(Some(decision)) => return Ok(decision),
            Ok(None) | Err(TxError::Constraint) => {}
            Err(error) => return Err(error),
        }
    }
    Err(TxError::Busy(Busy::Lock))
}

/// One look. `None`, or a constraint, when another request changed the row between two statements.
fn count<'t>(tx: &'t mut Tx, charge: &'t Charge) -> TxFuture<'t, Option<Decision>> {
    Box::pin(async move {
        let sql = RatesSql::of(tx.dialect());
        let Charge {
            principal,
            policy,
            quota,
        } = charge;
        let seconds = quota.window_seconds();
        let args = values![principal.as_str(), *policy, seconds, seconds, quota.requests()];
        if tx.execute(sql.take, args).await? == 1 {
            return Ok(Some(Decision::Allowed));
        }
        let now = tx.now().await?;
        let window = quota.window_at(now);
        let key = values![principal.as_str(), *policy, window.starts()];
        let Some(row) = tx.fetch_opt(sql.read, key).await? else {
            let first = values![principal.as_str(), *policy, window.starts(), window.expires()];
            tx.execute_one(sql.open, first).await?;
            return Ok(Some(Decision::Allowed));
        };
        let decision = quota.decide(row.count("request_count")?, window, now);
        Ok(matches!(decision, Decision::Denied { .. }).then_some(decision))
    })
}

/// Deletes windows that are over, at most `rows_max`, and answers how many it deleted.
///
/// # Errors
/// [`TxError`].
pub async fn purge(tx: &mut Tx, rows_max: u32) -> Result<u64, TxError> {
    let sql = RatesSql::of(tx.dialect());
    let now = tx.now().await?;
    tx.execute(sql.purge, &[Value::from(now), Value::from(rows_max)]).await
}
