//! Rows to views, and errors of use cases to what a client is told.

use powercontext_core::fail::FailCode;
use powercontext_core::memory::EditRefused;
use powercontext_core::operation::OperationKind;
use powercontext_core::refs::{ArtifactRef, Position};
use serde::Deserialize;

use crate::api::app::{AppError, OperationProduct, OperationResult, OperationStatus, OperationView};
use crate::families::memory::edit::EditError;
use crate::ledger::{FlushError, OperatorError};
use crate::store::TxError;
use crate::store::works::WorkRow;

/// Pause that a client is asked for when the database is busy.
const BUSY_RETRY_SECONDS: u32 = 1;

/// Something that must not happen: logged here, where it is handled.
pub(super) fn internal(what: &'static str) -> AppError {
    tracing::error!(reason = what, "a request failed inside");
    AppError::Internal
}

pub(super) fn tx_error(error: TxError) -> AppError {
    match error {
        // An unknown commit was looked up already, in vain: the client repeats its request, which is safe for every route.
        TxError::Busy(_) | TxError::Unknown => AppError::Busy {
            retry_after_seconds: BUSY_RETRY_SECONDS,
        },
        TxError::Down(down) => {
            tracing::warn!(error = %down, "a request met a database that is not available");
            AppError::Unavailable
        }
        error => {
            tracing::error!(error = %error, "a request failed in the database");
            AppError::Internal
        }
    }
}

pub(super) fn flush_error(error: FlushError) -> AppError {
    match error {
        FlushError::Tx(error) => tx_error(error),
        FlushError::UnknownKind | FlushError::Payload => internal("a flush was built wrongly"),
    }
}

pub(super) fn operator_error(error: OperatorError) -> AppError {
    match error {
        OperatorError::NotFound => AppError::OperationNotFound,
        OperatorError::Conflict { id, status, version } => match OperationStatus::from_wire(status) {
            Some(status) => AppError::OperationConflict {
                id,
                status,
                actual_version: version,
            },
            None => internal("an operation has an unknown state"),
        },
        OperatorError::Tx(error) => tx_error(error),
    }
}

pub(super) fn edit_error(error: EditError) -> AppError {
    match error {
        EditError::Refused(EditRefused::NoMemory) => AppError::ArtifactNotFound,
        EditError::Refused(EditRefused::NoEntry) => AppError::MemoryNotFound,
        EditError::Refused(EditRefused::Inactive) => AppError::EntryInactive,
        EditError::Refused(EditRefused::Plan(_)) => AppError::Invalid {
            field: "text",
            reason: "the Memory of this scope cannot hold another entry",
        },
        EditError::Refused(EditRefused::RevisionConflict)
        | EditError::Tx(TxError::Refused(FailCode::HeadChanged | FailCode::CursorChanged)) => {
            AppError::RevisionConflict
        }
        EditError::Tx(error) => tx_error(error),
    }
}

/// The result of a Memory run as its row keeps it.
#[derive(Deserialize)]
struct MemoryResult {
    previous_cursor: Position,
    current_cursor: Position,
    high_watermark: Position,
    source_count: u64,
    memory_ref: Option<ArtifactRef>,
}

fn result(kind: OperationKind, stored: &[u8]) -> Result<OperationResult, AppError> {
    let broken = || internal("a stored result does not have the form of its kind");
    match kind {
        OperationKind::MemoryFlush => {
            let result: MemoryResult = serde_json::from_slice(stored).map_err(|_| broken())?;
            Ok(OperationResult {
                previous_cursor: result.previous_cursor,
                high_watermark: result.high_watermark,
                current_cursor: result.current_cursor,
                processed_source_count: result.source_count,
                product: OperationProduct::Memory(result.memory_ref),
            })
        }
        // No processor of this kind has written a result yet.
        OperationKind::ExperienceIncubation => Err(broken()),
    }
}

pub(super) fn operation_view(row: &WorkRow) -> Result<OperationView, AppError> {
    let kind = OperationKind::of(&row.kind).ok_or(AppError::OperationNotFound)?;
    let status = OperationStatus::from_wire(row.item.state.name());
    Ok(OperationView {
        id: row.item.id,
        kind,
        scope_id: row.scope.clone(),
        status: status.ok_or_else(|| internal("an operation has an unknown state"))?,
        attempt_count: row.item.counters.attempts,
        state_version: row.item.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
        completed_at: row.completed_at,
        result: row.result.as_deref().map(|stored| result(kind, stored)).transpose()?,
        error: row
            .error
            .as_ref()
            .map(|(category, code)| FailCode::from_row(category, code)),
    })
}
