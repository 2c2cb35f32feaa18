//! Where a scope stands for one family, in one look: its cursor, its journal head and the revision of its artifact.

use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::memory::EntryVersion;
use powercontext_core::refs::{Cursor, Position, Revision};
use powercontext_core::window::Window;

use crate::store::artifacts::{self, ArtifactKey};
use crate::store::cursors;
use crate::store::error::TxError;
use crate::store::memory_entries::{self, Place};
use crate::store::sources;
use crate::store::tx::Tx;

/// Where a scope stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// How far the binding has consumed the journal.
    pub cursor: Cursor,
    /// The journal's newest position.
    pub journal_head: Position,
    /// The artifact's current revision; `None` without one.
    pub revision: Option<Revision>,
}

/// Reads it without a lock.
///
/// # Errors
/// [`TxError`].
pub async fn read(tx: &mut Tx, binding: &BindingName, artifact: &ArtifactKey) -> Result<Standing, TxError> {
    let (dialect, scope) = (tx.dialect(), &artifact.scope);
    let asks = (
        cursors::ask(dialect, scope, binding),
        sources::ask_head(dialect, scope),
        artifacts::ask_head(dialect, artifact),
    );
    let (cursor, journal_head, revision) = tx.ask_3(asks.0, asks.1, asks.2).await?;
    Ok(Standing {
        cursor,
        journal_head,
        revision,
    })
}

/// Locks the cursor and reads the journal head.
///
/// # Errors
/// [`TxError`].
pub async fn lock_cursor(tx: &mut Tx, scope: &ScopeId, binding: &BindingName) -> Result<(Cursor, Position), TxError> {
    let cursor = cursors::ask_lock(tx, scope, binding);
    tx.ask_2(cursor, sources::ask_head(tx.dialect(), scope)).await
}

/// Locks the cursor, then the artifact's head.
///
/// # Errors
/// [`TxError`].
pub async fn lock(tx: &mut Tx, binding: &BindingName, artifact: &ArtifactKey) -> Result<Standing, TxError> {
    let cursor = cursors::ask_lock(tx, &artifact.scope, binding);
    let journal_head = sources::ask_head(tx.dialect(), &artifact.scope);
    let revision = artifacts::ask_lock_head(tx, artifact);
    let (cursor, journal_head, revision) = tx.ask_3(cursor, journal_head, revision).await?;
    Ok(Standing {
        cursor,
        journal_head,
        revision,
    })
}

/// What is known of a window before its sources are read.
#[derive(Debug)]
pub struct Ahead {
    /// Bytes of each source of the window.
    pub sizes: Vec<(Position, u64)>,
    /// Content of the Memory's revision; `None` when there is no such row.
    pub content: Option<Vec<u8>>,
    /// The first page of its active entries.
    pub page: Vec<(Place, EntryVersion)>,
}

/// Reads how large the sources of a window are, and beside it a revision of the Memory with the first page of its active
/// entries.
///
/// # Errors
/// [`TxError`].
pub async fn ahead(
    tx: &mut Tx,
    window: Window,
    memory: &ArtifactKey,
    at: Revision,
    limit: u32,
) -> Result<Ahead, TxError> {
    let dialect = tx.dialect();
    let asks = (
        sources::ask_sizes(dialect, &memory.scope, window),
        artifacts::ask_content(dialect, memory, at),
        memory_entries::ask_page(dialect, memory, false, None, limit),
    );
    let (sizes, content, page) = tx.ask_3(asks.0, asks.1, asks.2).await?;
    Ok(Ahead { sizes, content, page })
}
