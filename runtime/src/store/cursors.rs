//! Rows of `pc_source_cursors`: how far a binding has consumed a scope's journal. Every save names the exact generation
//! that it replaces, so a cursor never goes back and no window counts twice (I6).

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::refs::{Cursor, Position};

use crate::store::ask::Ask;
use crate::store::conn::{Dialect, Row, values};
use crate::store::error::TxError;
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    CursorsSql, cursors { get, lock, create, save }
}

fn decode(rows: &[Row]) -> Result<Cursor, TxError> {
    let Some(row) = rows.first() else {
        return Ok(Cursor::START);
    };
    Ok(Cursor {
        sequence: Position::new(row.count("sequence")?),
        generation: Some(row.count("generation")?),
    })
}

/// [`get`], to be sent with other reads.
pub(super) fn ask<'a>(dialect: Dialect, scope: &'a ScopeId, binding: &'a BindingName) -> Ask<'a, Cursor> {
    Ask {
        sql: CursorsSql::of(dialect).get,
        args: values![scope.as_str(), binding.as_str()].to_vec(),
        decode,
    }
}

/// [`lock`], to be sent with other reads.
pub(super) fn ask_lock<'a>(tx: &mut Tx, scope: &'a ScopeId, binding: &'a BindingName) -> Ask<'a, Cursor> {
    tx.locks(LockKind::Cursor, binding.as_str());
    Ask {
        sql: CursorsSql::of(tx.dialect()).lock,
        ..ask(tx.dialect(), scope, binding)
    }
}

/// Reads a cursor without locking it; [`Cursor::START`] when there is no row.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, scope: &ScopeId, binding: &BindingName) -> Result<Cursor, TxError> {
    tx.ask(ask(tx.dialect(), scope, binding)).await
}

/// Locks a cursor. A cursor without a row cannot be locked; [`save`] finds out who was first.
///
/// # Errors
/// [`TxError`].
pub async fn lock(tx: &mut Tx, scope: &ScopeId, binding: &BindingName) -> Result<Cursor, TxError> {
    let cursor = ask_lock(tx, scope, binding);
    tx.ask(cursor).await
}

/// Moves a cursor from exactly `from` to a position and answers it as it stands then.
///
/// # Errors
/// [`TxError::Refused`] with [`FailCode::CursorChanged`] when it stands elsewhere; it may come later in the transaction.
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
    let elsewhere = Some(TxError::Refused(FailCode::CursorChanged));
    match from.generation {
        None => {
            let args = values![scope, binding, to.get()];
            tx.later(sql.create, args, elsewhere).await?;
        }
        Some(old) => {
            let args = values![to.get(), generation, scope, binding, old, from.sequence.get()];
            tx.later(sql.save, args, elsewhere).await?;
        }
    }
    Ok(Cursor {
        sequence: to,
        generation: Some(generation),
    })
}
