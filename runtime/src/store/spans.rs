//! Which span an attempt was: the two columns of `pc_work_attempts` that the next attempt of the item is linked by.
//!
//! Written under the item's lock and the attempt's fence, never waiting for either: a span is worth no delay. Only a
//! process that records spans runs these statements.

use powercontext_core::ids::WorkId;
use powercontext_core::lease::Holder;
use powercontext_core::work::AttemptNo;

use crate::store::conn::{Row, values};
use crate::store::error::TxError;
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;
use crate::telemetry::trace::SpanIds;

statements! {
    /// Texts of this aggregate.
    SpansSql, spans { lock, save, read }
}

/// What is known of an attempt's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptSpan {
    /// The attempt's own.
    pub ids: SpanIds,
    /// That of the attempt before it, if that one was recorded.
    pub previous: Option<SpanIds>,
    /// How often an operator had revived the item.
    pub recovery: u32,
}

/// Gives an open attempt its span, or finds the one that it was given before. `None` when the attempt is not held under this
/// owner and fence any more, or somebody holds its row just now.
///
/// # Errors
/// [`TxError`].
pub async fn record(
    tx: &mut Tx,
    id: WorkId,
    no: AttemptNo,
    holder: &Holder,
    ids: SpanIds,
) -> Result<Option<AttemptSpan>, TxError> {
    let sql = SpansSql::of(tx.dialect());
    let (id, member, fence) = (id.to_string(), holder.member.as_str(), holder.fence.to_row());
    tx.locks_if_free(LockKind::Item, "");
    if tx.fetch_opt(sql.lock, values![&id, member, fence]).await?.is_none() {
        return Ok(None);
    }
    let (trace, span) = (ids.trace_hex(), ids.span_hex());
    tx.execute(sql.save, values![&trace, &span, &id, no.get(), member, fence])
        .await?;
    let rows = tx.fetch(sql.read, values![&id, no.get(), no.get() - 1]).await?;
    let row_of = |wanted: u32| {
        rows.iter()
            .find(|row| row.small("attempt_no").is_ok_and(|found| found == wanted))
    };
    let Some(own) = row_of(no.get()) else {
        return Ok(None);
    };
    let previous = row_of(no.get() - 1).map(read).transpose()?.flatten();
    let recovery = own.small("recovery_generation")?;
    Ok(read(own)?.map(|ids| AttemptSpan {
        ids,
        previous,
        recovery,
    }))
}

fn read(row: &Row) -> Result<Option<SpanIds>, TxError> {
    let pair = row.opt_id("trace_id")?.zip(row.opt_id("span_id")?);
    Ok(pair.and_then(|(trace, span)| SpanIds::from_hex(&trace, &span)))
}
