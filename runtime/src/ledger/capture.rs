//! Capturing a source: its row, its place in the journal and the dirty marks of every family that reads sources, in one
//! transaction. What a client was told is kept; the same source again changes nothing and answers the same position.
//!
//! Locks journal head -> intents.

use std::sync::Arc;

use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::refs::{Position, SourceRef};
use serde_json::{Map, Value};

use crate::store::sources::{self, Payload};
use crate::store::{Db, Tx, TxError, TxName, intents};

/// Bindings that read sources, in the order in which their intents are locked.
const BINDINGS: [&str; 4] = [
    "experience-incubation",
    "memory-source-window",
    "profile-source-window",
    "topic-memory-source-window",
];

/// How often a capture whose commit is of unknown outcome is run; a second run finds what the first one wrote.
const RUNS_MAX: u32 = 2;

/// A source to store. `Debug` shows neither content nor metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSource {
    /// Its scope.
    pub scope: ScopeId,
    /// Its type, and its id inside scope and type.
    pub source: SourceRef,
    /// What it says.
    pub payload: Payload,
}

impl NewSource {
    /// What a client hands in. No metadata differs from empty metadata.
    pub fn native(scope: ScopeId, source: SourceRef, content: String, metadata: Option<Map<String, Value>>) -> Self {
        Self {
            scope,
            source,
            payload: Payload::native(content, metadata),
        }
    }
}

/// A stored source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured {
    /// Its place in the scope's journal.
    pub position: Position,
    /// Whether it was there already.
    pub replayed: bool,
}

/// A source that was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The same source says something else already.
    #[error("the source exists with other content or metadata")]
    Conflict,
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

/// Stores a source. It survives being dropped: the transaction goes on and ends on its own task.
///
/// # Errors
/// [`CaptureError`]; nothing was stored, or (`Unknown`, twice in a row) the next capture of it will tell.
pub async fn capture(db: &Db, source: NewSource) -> Result<Captured, CaptureError> {
    let source = Arc::new(source);
    let mut runs = 1;
    loop {
        let captured = db
            .tx_with(TxName::Capture, &source, |tx, source| Box::pin(store(tx, source)))
            .await;
        match captured {
            Err(TxError::Unknown) if runs < RUNS_MAX => runs += 1,
            Err(error) => return Err(error.into()),
            Ok(captured) => return captured.ok_or(CaptureError::Conflict),
        }
    }
}

/// `None` when the source says something else already.
async fn store(tx: &mut Tx, new: &NewSource) -> Result<Option<Captured>, TxError> {
    let NewSource { scope, source, payload } = new;
    let head = sources::lock_head(tx, scope).await?;
    if let Some((position, stored)) = sources::get(tx, scope, source).await? {
        let same = payload.is_stored_as(&stored)?;
        return Ok(same.then_some(Captured {
            position,
            replayed: true,
        }));
    }
    let position = sources::append(tx, scope, source, payload, head).await?;
    let bindings = BINDINGS.map(|name| BindingName::parse(name).expect("a constant of the right form"));
    intents::mark_all_dirty(tx, &bindings, scope).await?;
    Ok(Some(Captured {
        position,
        replayed: false,
    }))
}
