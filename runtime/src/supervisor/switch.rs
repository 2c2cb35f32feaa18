//! `switch-mode`: ends the terms of every Supervisor and stores another mode, in one transaction.
//!
//! It needs the Schedulers down, but does not depend on it: a leader of the old mode that lives on has lost its term and
//! changes no row, and cannot take another one. Counters, checkpoints, cursors and running items stay as they are.

use std::sync::Arc;

use powercontext_core::supervise::mode::Mode;

use crate::store::{Db, TxError, TxName, modes};

/// Stores the mode. Answers the one before, `None` where nobody has led yet.
///
/// # Errors
/// [`TxError`]. After `Unknown` the mode may have been stored; the same again is harmless.
pub async fn switch_mode(db: &Db, to: Mode) -> Result<Option<Mode>, TxError> {
    db.tx_with(TxName::SwitchMode, &Arc::new(to), |tx, to| {
        Box::pin(modes::switch(tx, *to))
    })
    .await
}
