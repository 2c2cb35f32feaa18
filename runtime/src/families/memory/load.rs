//! Reading for a run: the next window of a scope's journal, and its Memory as far as a run needs it.

use std::sync::Arc;

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, SourceType};
use powercontext_core::memory::{EntryVersion, MemoryContent, MemoryHead};
use powercontext_core::refs::{Position, Revision};
use powercontext_core::window::Window;
use serde_json::json;

use super::commit::binding;
use super::read::{ENTRIES_PAGE, content_at, decode, entries_at};
use crate::families::Done;
use crate::families::host::{Load, Loaded, LoadedSource, SourceUse};
use crate::store::artifacts::ArtifactKey;
use crate::store::error::corrupt;
use crate::store::sources::{self, SourceRow};
use crate::store::standing::{self, Standing};
use crate::store::{Db, Tx, TxError, TxName};

/// Reads the next window of a scope and its Memory, within the limits of the request. Everything is read after the call,
/// so a run that calls this after its claim sees every source that was captured before the claim.
///
/// # Errors
/// [`TxError::Refused`] with `SourceWindowUnavailable` when the journal has a hole; other [`TxError`]s.
pub async fn load(db: &Db, scope: &ScopeId, request: Load) -> Result<Loaded, TxError> {
    load_from(db, scope, request, None).await
}

/// [`load`] for a run that knows already where its scope stands. What came later is left for the next run, and a Memory that
/// changed meanwhile is a conflict at the end of this one.
///
/// # Errors
/// As those of [`load`].
pub async fn load_from(db: &Db, scope: &ScopeId, request: Load, standing: Option<Standing>) -> Result<Loaded, TxError> {
    let input = Arc::new((scope.clone(), request, standing));
    db.read_with(TxName::Load, &input, |tx, (scope, request, standing)| {
        Box::pin(load_in(tx, scope, *request, standing.clone()))
    })
    .await
}

/// Where a scope stands.
///
/// # Errors
/// [`TxError`].
pub async fn standing(db: &Db, scope: &ScopeId) -> Result<Standing, TxError> {
    let memory = Arc::new(ArtifactKey::memory(scope));
    db.read_with(TxName::Load, &memory, |tx, memory| {
        Box::pin(async move { standing::read(tx, &binding(), memory).await })
    })
    .await
}

/// The end of a run that would find nothing pending; `None` when there is something.
pub fn nothing_pending(standing: &Standing) -> Option<Done> {
    let Standing {
        cursor,
        journal_head,
        revision,
    } = standing;
    (*journal_head <= cursor.sequence).then(|| super::nothing_pending(cursor.sequence, *journal_head, *revision))
}

async fn load_in(tx: &mut Tx, scope: &ScopeId, request: Load, standing: Option<Standing>) -> Result<Loaded, TxError> {
    let key = ArtifactKey::memory(scope);
    let standing = match standing {
        Some(standing) => standing,
        None => standing::read(tx, &binding(), &key).await?,
    };
    let Standing {
        cursor,
        journal_head,
        revision,
    } = standing;
    let mut loaded = Loaded {
        cursor,
        journal_head,
        sources: Vec::new(),
        memory: None,
    };
    let pending = Window::next(cursor.sequence, journal_head, request.sources_max);
    let sizes = match (pending, revision) {
        (None, None) => Vec::new(),
        (Some(window), None) => sources::sizes(tx, scope, window).await?,
        (None, Some(at)) => {
            let content = content_at(tx, &key, at).await?.ok_or_else(|| corrupt("revision"))?;
            loaded.memory = Some(memory_head(at, &content, Vec::new()));
            Vec::new()
        }
        (Some(window), Some(at)) => {
            let ahead = standing::ahead(tx, window, &key, at, ENTRIES_PAGE).await?;
            let content = decode(&ahead.content.ok_or_else(|| corrupt("revision"))?)?;
            let first = Some(ahead.page);
            let active = entries_at(tx, scope, content.manifest(), false, request.entry_bytes_max, first).await?;
            loaded.memory = Some(memory_head(at, &content, active));
            ahead.sizes
        }
    };
    if let Some(window) = pending {
        loaded.sources = evidence(tx, scope, window, sizes, request.source_bytes_max).await?;
    }
    Ok(loaded)
}

fn memory_head(revision: Revision, content: &MemoryContent, active: Vec<EntryVersion>) -> MemoryHead {
    MemoryHead {
        revision,
        active,
        manifest: content.manifest().to_vec(),
    }
}

/// Sources of a window up to a number of bytes; the first one always.
async fn evidence(
    tx: &mut Tx,
    scope: &ScopeId,
    window: Window,
    sizes: Vec<(Position, u64)>,
    bytes_max: u64,
) -> Result<Vec<LoadedSource>, TxError> {
    const MISSING: TxError = TxError::Refused(FailCode::SourceWindowUnavailable);
    let (mut through, mut bytes, mut is_full) = (window.after, 0_u64, false);
    for (position, size) in sizes {
        if position != through.next() {
            return Err(MISSING);
        }
        bytes = bytes.saturating_add(size);
        is_full = bytes > bytes_max && through > window.after;
        if is_full {
            break;
        }
        through = position;
    }
    if !is_full && through != window.through {
        return Err(MISSING);
    }
    let taken = Window { through, ..window };
    let rows = sources::window(tx, scope, taken).await?;
    if rows.len() as u64 != taken.len() {
        return Err(MISSING);
    }
    Ok(rows.into_iter().map(shown).collect())
}

/// A source as a run sees it. Only what a client wrote is evidence; a type that this build does not know is consumed with
/// its window and never shown to a model.
fn shown(row: SourceRow) -> LoadedSource {
    let (usage, content) = if row.source.name == SourceType::content() {
        let content = match row.payload.metadata() {
            Some(metadata) => json!({"content": row.payload.content(), "metadata": metadata}),
            None => json!({"content": row.payload.content()}),
        };
        (SourceUse::Evidence, content)
    } else {
        (SourceUse::LineageOnly, serde_json::Value::Null)
    };
    LoadedSource {
        position: row.position,
        source: row.source,
        usage,
        content,
    }
}
