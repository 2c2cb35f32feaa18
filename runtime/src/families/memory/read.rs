//! Reading a scope's Memory: for a run, and for people.
//!
//! SQLite reads one snapshot. OceanBase reads what is committed at each statement, so a reader that needs several first
//! reads which revision is current, and then only rows that belong to that revision: revisions and entry versions never
//! change, and a search is repeated when the head moved meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{EntryVersionId, ScopeId, SourceType};
use powercontext_core::memory::{
    EntryChange, EntryState, EntryVersion, ManifestEntry, MemoryCitation, MemoryContent, MemoryHead,
};
use powercontext_core::refs::{Position, Revision};
use powercontext_core::window::Window;
use serde_json::json;

use super::commit::binding;
use crate::families::Done;
use crate::families::host::{Load, Loaded, LoadedSource, SourceUse};
use crate::store::artifacts::{self, ArtifactKey};
use crate::store::error::corrupt;
use crate::store::memory_entries::{self, Match, Place, VERSIONS_MAX};
use crate::store::sources::{self, SourceRow};
use crate::store::standing::{self, Standing};
use crate::store::{Db, Tx, TxError, TxName};

/// Entries read at once; an entry has at most 8 KiB of text.
const ENTRIES_PAGE: u32 = 500;
/// Revisions read at once; each holds the whole manifest.
const REVISIONS_PAGE: u32 = 16;
/// How often a search whose head moved is run in all.
const SEARCHES_MAX: u32 = 5;
/// Ranks before the first one, in the reciprocal-rank score.
const RANK_OFFSET: u32 = 60;

/// Reads the next window of a scope and its Memory, within the limits of the request. Everything is read after the call,
/// so a run that calls this after its claim sees every source that was captured before the claim.
///
/// # Errors
/// [`TxError::Refused`] with `SourceWindowUnavailable` when the journal has a hole; other [`TxError`]s.
pub async fn load(db: &Db, scope: &ScopeId, request: Load) -> Result<Loaded, TxError> {
    let input = Arc::new((scope.clone(), request));
    db.read_with(TxName::Load, &input, |tx, (scope, request)| {
        Box::pin(load_in(tx, scope, *request))
    })
    .await
}

/// The end of a run that would find nothing pending; `None` when there is something.
///
/// # Errors
/// [`TxError`].
pub async fn nothing_pending(db: &Db, scope: &ScopeId) -> Result<Option<Done>, TxError> {
    let scope = Arc::new(scope.clone());
    db.read_with(TxName::Load, &scope, |tx, scope| {
        Box::pin(nothing_pending_in(tx, scope))
    })
    .await
}

async fn nothing_pending_in(tx: &mut Tx, scope: &ScopeId) -> Result<Option<Done>, TxError> {
    let Standing {
        cursor,
        journal_head,
        revision,
    } = standing::read(tx, &binding(), &ArtifactKey::memory(scope)).await?;
    if journal_head > cursor.sequence {
        return Ok(None);
    }
    Ok(Some(super::nothing_pending(cursor.sequence, journal_head, revision)))
}

async fn load_in(tx: &mut Tx, scope: &ScopeId, request: Load) -> Result<Loaded, TxError> {
    let key = ArtifactKey::memory(scope);
    let Standing {
        cursor,
        journal_head,
        revision,
    } = standing::read(tx, &binding(), &key).await?;
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

/// The current revision and its content.
pub(super) async fn head_content(tx: &mut Tx, scope: &ScopeId) -> Result<Option<(Revision, MemoryContent)>, TxError> {
    let key = ArtifactKey::memory(scope);
    let Some(revision) = artifacts::head(tx, &key).await? else {
        return Ok(None);
    };
    let content = content_at(tx, &key, revision).await?;
    Ok(Some((revision, content.ok_or_else(|| corrupt("revision"))?)))
}

async fn content_at(tx: &mut Tx, key: &ArtifactKey, at: Revision) -> Result<Option<MemoryContent>, TxError> {
    let bytes = artifacts::content(tx, key, at).await?;
    bytes.as_deref().map(decode).transpose()
}

fn decode(bytes: &[u8]) -> Result<MemoryContent, TxError> {
    MemoryContent::decode(bytes).map_err(|_| corrupt("content"))
}

/// Entries exactly as a manifest names them, the most recently changed first, as long as their texts fit.
/// `first` is their first page, where it was read already.
async fn entries_at(
    tx: &mut Tx,
    scope: &ScopeId,
    manifest: &[ManifestEntry],
    include_inactive: bool,
    bytes_max: u64,
    mut first: Option<Vec<(Place, EntryVersion)>>,
) -> Result<Vec<EntryVersion>, TxError> {
    let mut wanted: BTreeMap<&EntryVersionId, EntryState> = manifest
        .iter()
        .filter(|entry| include_inactive || entry.state == EntryState::Active)
        .map(|entry| (&entry.entry_version_id, entry.state))
        .collect();
    let (mut found, mut room, mut after) = (Vec::new(), bytes_max, None);
    loop {
        let page = match first.take() {
            Some(page) => page,
            None => memory_entries::page(tx, scope, include_inactive, after.as_ref(), ENTRIES_PAGE).await?,
        };
        let is_last = page.len() < ENTRIES_PAGE as usize;
        for (place, version) in page {
            after = Some(place);
            // Not the manifest's version: the entry was changed since the manifest was read.
            if wanted.remove(&version.version_id).is_some() {
                match room.checked_sub(version.text.as_str().len() as u64) {
                    Some(left) => room = left,
                    None => return Ok(found),
                }
                found.push(version);
            }
        }
        if is_last {
            break;
        }
    }
    for (id, state) in wanted {
        let version = memory_entries::version(tx, scope, id, state).await?;
        let version = version.ok_or_else(|| corrupt("entry_version_id"))?;
        match room.checked_sub(version.text.as_str().len() as u64) {
            Some(left) => room = left,
            None => break,
        }
        found.push(version);
    }
    Ok(found)
}

/// Entries of a Memory at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    /// The current revision; `None` without Memory.
    pub revision: Option<Revision>,
    /// The entries in order of their ids.
    pub entries: Vec<EntryVersion>,
}

/// The entries of a scope's Memory as they stand.
///
/// # Errors
/// [`TxError`].
pub async fn entries(db: &Db, scope: &ScopeId, include_inactive: bool) -> Result<Entries, TxError> {
    let input = Arc::new((scope.clone(), include_inactive));
    db.read_with(TxName::MemoryRead, &input, |tx, (scope, include_inactive)| {
        Box::pin(async move {
            let Some((revision, content)) = head_content(tx, scope).await? else {
                return Ok(Entries {
                    revision: None,
                    entries: Vec::new(),
                });
            };
            let mut entries = entries_at(tx, scope, content.manifest(), *include_inactive, u64::MAX, None).await?;
            entries.sort_by(|a, b| a.entry_id.cmp(&b.entry_id));
            Ok(Entries {
                revision: Some(revision),
                entries,
            })
        })
    })
    .await
}

/// Why an entry is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The scope has no Memory, or another artifact is cited.
    #[error("no such Memory")]
    NoMemory,
    /// The Memory never had this entry at this version and revision.
    #[error("no such memory entry")]
    NoEntry,
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

/// The entry version that a citation names, as it stood at the cited revision.
///
/// # Errors
/// [`EntryError`].
pub async fn entry(db: &Db, scope: &ScopeId, citation: &MemoryCitation) -> Result<EntryVersion, EntryError> {
    let input = Arc::new((scope.clone(), citation.clone()));
    let cited = db.read_with(TxName::MemoryRead, &input, |tx, (scope, citation)| {
        Box::pin(cited(tx, scope, citation))
    });
    cited.await?
}

async fn cited(
    tx: &mut Tx,
    scope: &ScopeId,
    citation: &MemoryCitation,
) -> Result<Result<EntryVersion, EntryError>, TxError> {
    let key = ArtifactKey::memory(scope);
    if !citation.is_of_memory() || artifacts::head(tx, &key).await?.is_none() {
        return Ok(Err(EntryError::NoMemory));
    }
    let content = content_at(tx, &key, citation.memory_ref.revision).await?;
    let place = content.as_ref().and_then(|content| content.entry(&citation.entry_id));
    let Some(place) = place.filter(|place| place.entry_version_id == citation.entry_version_id) else {
        return Ok(Err(EntryError::NoEntry));
    };
    let version = memory_entries::version(tx, scope, &place.entry_version_id, place.state).await?;
    Ok(Ok(version.ok_or_else(|| corrupt("entry_version_id"))?))
}

/// A ranking that can hold an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranking {
    /// By words.
    Fts,
}

impl Ranking {
    /// The public name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fts => "fts",
        }
    }
}

/// One hit of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The entry, at the revision that was searched.
    pub citation: MemoryCitation,
    /// What it states.
    pub text: String,
    /// Reciprocal-rank score, 0 to 1: `1 / (60 + rank)` for each ranking that holds it.
    pub score: f64,
    /// The rankings that hold it.
    pub matched_by: Vec<Ranking>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The revision that was searched; `None` without Memory.
    pub revision: Option<Revision>,
    /// Best first.
    pub hits: Vec<Hit>,
}

/// Why a search has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// The Memory changed during every try.
    #[error("the Memory keeps changing")]
    HeadMoves,
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

/// Active entries that share a word with the query, best first, at most `limit`.
///
/// # Errors
/// [`SearchError`].
pub async fn search(db: &Db, scope: &ScopeId, query: &str, limit: u32) -> Result<Found, SearchError> {
    let input = Arc::new((scope.clone(), query.to_owned(), limit));
    for _ in 0..SEARCHES_MAX {
        let found = db.read_with(TxName::MemoryRead, &input, |tx, (scope, query, limit)| {
            Box::pin(search_once(tx, scope, query, *limit))
        });
        if let Some(found) = found.await? {
            return Ok(found);
        }
    }
    Err(SearchError::HeadMoves)
}

/// `None` when the head moved during the search.
async fn search_once(tx: &mut Tx, scope: &ScopeId, query: &str, limit: u32) -> Result<Option<Found>, TxError> {
    let key = ArtifactKey::memory(scope);
    let Some(revision) = artifacts::head(tx, &key).await? else {
        return Ok(Some(Found {
            revision: None,
            hits: Vec::new(),
        }));
    };
    let matches = memory_entries::search(tx, scope, query, limit).await?;
    let ids: Vec<_> = matches.iter().map(|m| &m.version_id).collect();
    let mut versions = BTreeMap::new();
    for ids in ids.chunks(VERSIONS_MAX) {
        for version in memory_entries::versions(tx, scope, ids, EntryState::Active).await? {
            versions.insert(version.version_id.clone(), version);
        }
    }
    if artifacts::head(tx, &key).await? != Some(revision) {
        return Ok(None);
    }
    let hit = |(rank, found): (u32, &Match)| {
        let version = versions
            .get(&found.version_id)
            .ok_or_else(|| corrupt("entry_version_id"))?;
        Ok(Hit {
            citation: MemoryCitation::of(revision, version),
            text: version.text.as_str().to_owned(),
            score: 1.0 / f64::from(RANK_OFFSET + rank),
            matched_by: vec![Ranking::Fts],
        })
    };
    Ok(Some(Found {
        revision: Some(revision),
        hits: (1..).zip(&matches).map(hit).collect::<Result<_, TxError>>()?,
    }))
}

/// History of a Memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The current revision; `None` without Memory.
    pub revision: Option<Revision>,
    /// Revisions and what they changed, oldest first.
    pub revisions: Vec<(Revision, Vec<EntryChange>)>,
}

/// Why there is no history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangesError {
    /// The Memory has no such revision yet.
    #[error("no such revision")]
    UnknownRevision,
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

/// What happened to a Memory after a revision; 0 is before the first. A scope without Memory has no history, whatever
/// the bound.
///
/// # Errors
/// [`ChangesError`].
pub async fn changes(db: &Db, scope: &ScopeId, since: u64) -> Result<Changes, ChangesError> {
    let Some(head) = head(db, scope).await? else {
        return Ok(Changes {
            revision: None,
            revisions: Vec::new(),
        });
    };
    if since > u64::from(head.get()) {
        return Err(ChangesError::UnknownRevision);
    }
    let mut seen = u32::try_from(since).ok().and_then(|n| Revision::new(n).ok());
    let mut revisions = Vec::new();
    // Revisions never change, so pages need no common snapshot.
    while seen != Some(head) {
        let input = Arc::new((ArtifactKey::memory(scope), seen, head));
        let page = db.read_with(TxName::MemoryRead, &input, |tx, (key, seen, head)| {
            Box::pin(changes_page(tx, key, *seen, *head))
        });
        let page = page.await?;
        seen = Some(
            page.last()
                .map(|(revision, _)| *revision)
                .ok_or_else(|| corrupt("revision"))?,
        );
        revisions.extend(page);
    }
    Ok(Changes {
        revision: Some(head),
        revisions,
    })
}

async fn changes_page(
    tx: &mut Tx,
    key: &ArtifactKey,
    since: Option<Revision>,
    through: Revision,
) -> Result<Vec<(Revision, Vec<EntryChange>)>, TxError> {
    let page = artifacts::page(tx, key, since, through, REVISIONS_PAGE).await?;
    page.iter()
        .map(|(revision, bytes)| Ok((*revision, decode(bytes)?.changes().to_vec())))
        .collect()
}

/// The current revision of a scope's Memory.
///
/// # Errors
/// [`TxError`].
pub async fn head(db: &Db, scope: &ScopeId) -> Result<Option<Revision>, TxError> {
    let key = Arc::new(ArtifactKey::memory(scope));
    db.read_with(TxName::MemoryRead, &key, |tx, key| Box::pin(artifacts::head(tx, key)))
        .await
}
