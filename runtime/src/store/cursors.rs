//! Rows of `pc_source_cursors`: how far a binding has consumed a scope's journal. Every save names the exact generation
//! that it replaces, so a cursor never goes back and no window counts twice (I6).

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::refs::{Cursor, Position};

use crate::store::conn::{Row, values};
use crate::store::error::TxError;
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    CursorsSql, cursors { get, lock, create, save }
}

fn decode(row: &Row) -> Result<Cursor, TxError> {
    Ok(Cursor {
        sequence: Position::new(row.count("sequence")?),
        generation: Some(row.count("generation")?),
    })
}

/// Reads a cursor without locking it; [`Cursor::START`] when there is no row.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, scope: &ScopeId, binding: &BindingName) -> Result<Cursor, TxError> {
    let sql = CursorsSql::of(tx.dialect());
    let row = tx.fetch_opt(sql.get, values![scope.as_str(), binding.as_str()]).await?;
    row.as_ref().map_or(Ok(Cursor::START), decode)
}

/// Locks a cursor. A cursor without a row cannot be locked; [`save`] finds out who was first.
///
/// # Errors
/// [`TxError`].
pub async fn lock(tx: &mut Tx, scope: &ScopeId, binding: &BindingName) -> Result<Cursor, TxError> {
    let sql = CursorsSql::of(tx.dialect());
    tx.locks(LockKind::Cursor, binding.as_str());
    let row = tx
        .fetch_opt(sql.lock, values![scope.as_str(), binding.as_str()])
        .await?;
    row.as_ref().map_or(Ok(Cursor::START), decode)
}

/// Moves a cursor from exactly `from` to a position and answers it as it stands then.
///
/// # Errors
/// [`TxError::Refused`] with [`FailCode::CursorChanged`] when it stands elsewhere.
pub async fn save(
    tx: &mut Tx,
    scope: &ScopeId,
    binding: &BindingName,
    from: Cursor,
    to: Position,
) -> Result<Cursor, TxError> {
    let sql = CursorsSql::of(tx.dialect());
    let (scope, binding) = (scope.as_str(), binding.as_str());
    let generation = from.generation.map_or(1, |generation| generation.saturating_add(1));
    let touched = match from.generation {
        None => tx.execute(sql.create, values![scope, binding, to.get()]).await,
        Some(old) => {
            let args = values![to.get(), generation, scope, binding, old, from.sequence.get()];
            tx.execute(sql.save, args).await
        }
    };
    match touched {
        Ok(1) => Ok(Cursor {
            sequence: to,
            generation: Some(generation),
        }),
        Ok(_) | Err(TxError::Constraint) => Err(TxError::Refused(FailCode::CursorChanged)),
        Err(error) => Err(error),
    }
}
