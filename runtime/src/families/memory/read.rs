//! Reading a scope's Memory: for people, and what a run's load ([`load`](super::load)) has in common with them.
//!
//! SQLite reads one snapshot. OceanBase reads what is committed at each statement, so a reader that needs several first
//! reads which revision is current, and then only rows that belong to that revision: revisions and entry versions never
//! change, and a search is repeated when the head moved meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use powercontext_core::ids::{EntryVersionId, ScopeId};
use powercontext_core::memory::{EntryChange, EntryState, EntryVersion, ManifestEntry, MemoryCitation, MemoryContent};
use powercontext_core::refs::Revision;

use crate::store::artifacts::{self, ArtifactKey};
use crate::store::error::corrupt;
use crate::store::memory_entries::{self, Match, Place, VERSIONS_MAX};
use crate::store::{Db, Tx, TxError, TxName};

/// Entries read at once; an entry has at most 8 KiB of text.
pub(super) const ENTRIES_PAGE: u32 = 500;
/// Revisions read at once; each holds the whole manifest.
const REVISIONS_PAGE: u32 = 16;
/// How often a search whose head moved is run in all.
const SEARCHES_MAX: u32 = 5;
/// Ranks before the first one, in the reciprocal-rank score.
const RANK_OFFSET: u32 = 60;

/// The current revision and its content.
pub(super) async fn head_content(tx: &mut Tx, scope: &ScopeId) -> Result<Option<(Revision, MemoryContent)>, TxError> {
    let key = ArtifactKey::memory(scope);
    let Some(revision) = artifacts::head(tx, &key).await? else {
        return Ok(None);
    };
    let content = content_at(tx, &key, revision).await?;
    Ok(Some((revision, content.ok_or_else(|| corrupt("revision"))?)))
}

pub(super) async fn content_at(tx: &mut Tx, key: &ArtifactKey, at: Revision) -> Result<Option<MemoryContent>, TxError> {
    let bytes = artifacts::content(tx, key, at).await?;
    bytes.as_deref().map(decode).transpose()
}

pub(super) fn decode(bytes: &[u8]) -> Result<MemoryContent, TxError> {
    MemoryContent::decode(bytes).map_err(|_| corrupt("content"))
}

/// Entries exactly as a manifest names them, the most recently changed first, as long as their texts fit.
/// `first` is their first page, where it was read already.
pub(super) async fn entries_at(
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
