//! Rows of `pc_memory_entry_versions` and `pc_memory_entry_heads`: what a Memory's entries state, every version of them,
//! and which version is current. The heads carry the search index, so both are written together.
//!
//! A version's row does not say whether the entry is active: retiring makes a version of the same content, and the
//! manifest of a revision says how each entry stands there.

use powercontext_core::ids::{ArtifactId, EntryId, EntryVersionId, FamilyName, ScopeId};
use powercontext_core::memory::analyzer::tokens;
use powercontext_core::memory::{ContentHash, EntryKind, EntryState, EntryText, EntryVersion};
use powercontext_core::refs::Revision;
use serde::de::DeserializeOwned;

use crate::store::conn::{Dialect, Row, Value, values};
use crate::store::error::{TxError, corrupt};
use crate::store::search_text;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    MemoryEntriesSql, memory_entries { insert_version, create_head, move_head, version, written_in, versions, page, stated, search }
}

/// How many ids [`versions`] takes at once.
pub const VERSIONS_MAX: usize = 32;
/// Most entries that [`stated`] answers; an edit keeps statements unique, so there is hardly more than one.
const STATED_MAX: u32 = 16;

fn decode_refs<T: DeserializeOwned>(row: &Row, column: &'static str) -> Result<Vec<T>, TxError> {
    serde_json::from_slice(&row.blob(column)?).map_err(|_| corrupt(column))
}

fn encode_refs<T: serde::Serialize>(refs: &[T]) -> Vec<u8> {
    serde_json::to_vec(refs).expect("plain data always encodes")
}

fn decode(row: &Row, state: EntryState) -> Result<EntryVersion, TxError> {
    let previous = row.opt_id("previous_version_id")?.map(EntryVersionId::parse);
    Ok(EntryVersion {
        entry_id: row.parsed("entry_id", EntryId::parse)?,
        version_id: row.parsed("entry_version_id", EntryVersionId::parse)?,
        version: row.small("version")?,
        previous: previous.transpose().map_err(|_| corrupt("previous_version_id"))?,
        kind: row.parsed("kind", EntryKind::parse)?,
        text: row.parsed("text", EntryText::parse)?,
        source_refs: decode_refs(row, "source_refs")?,
        artifact_refs: decode_refs(row, "artifact_refs")?,
        content_hash: row.parsed("entry_content_hash", ContentHash::parse)?,
        state,
    })
}

fn state(row: &Row) -> Result<EntryState, TxError> {
    EntryState::from_row(&row.id("state")?).ok_or_else(|| corrupt("state"))
}

/// Writes a version as one of `revision` and makes it its entry's head. The artifact revision must be written already.
///
/// # Errors
/// [`TxError::Rows`] when the entry's head is not the version before this one.
pub async fn put(tx: &mut Tx, scope: &ScopeId, revision: Revision, version: &EntryVersion) -> Result<(), TxError> {
    let sql = MemoryEntriesSql::of(tx.dialect());
    let (artifact, family) = (ArtifactId::memory(), FamilyName::memory());
    let sources = encode_refs(&version.source_refs);
    let artifacts = encode_refs(&version.artifact_refs);
    let previous = version.previous.as_ref().map(EntryVersionId::as_str);
    let row = values![
        scope.as_str(),
        artifact.as_str(),
        version.version_id.as_str(),
        family.as_str(),
        version.entry_id.as_str(),
        version.version,
        previous,
        version.kind.as_str(),
        Value::Text(Some(version.text.as_str())),
        sources.as_slice(),
        artifacts.as_slice(),
        version.content_hash.as_str(),
        revision.get()
    ];
    tx.execute_one(sql.insert_version, row).await?;
    let searchable = searchable_text(scope, version);
    let head = [
        Value::from(revision.get()),
        version.version_id.as_str().into(),
        version.content_hash.as_str().into(),
        version.state.as_str().into(),
        Value::Text(Some(&searchable)),
    ];
    let key = [
        Value::from(scope.as_str()),
        artifact.as_str().into(),
        version.entry_id.as_str().into(),
    ];
    match previous {
        None => {
            let args = [&key[..], &[family.as_str().into()], &head].concat();
            tx.execute_one(sql.create_head, &args).await
        }
        Some(previous) => {
            let args = [&head[..], &key, &[previous.into()]].concat();
            tx.execute_one(sql.move_head, &args).await
        }
    }
}

/// What the index holds for a version; nothing for a retired one.
fn searchable_text(scope: &ScopeId, version: &EntryVersion) -> String {
    match version.state {
        EntryState::Active => search_text::stored_form(scope, &tokens(version.text.as_str())),
        EntryState::Inactive => String::new(),
    }
}

/// One version by its id. `state` is how the entry stands at the revision that the caller reads.
///
/// # Errors
/// [`TxError`].
pub async fn version(
    tx: &mut Tx,
    scope: &ScopeId,
    id: &EntryVersionId,
    state: EntryState,
) -> Result<Option<EntryVersion>, TxError> {
    let sql = MemoryEntriesSql::of(tx.dialect());
    let artifact = ArtifactId::memory();
    let args = values![scope.as_str(), artifact.as_str(), id.as_str()];
    let row = tx.fetch_opt(sql.version, args).await?;
    row.map(|row| decode(&row, state)).transpose()
}

/// The revision that made a version; `None` when no such version was written.
///
/// # Errors
/// [`TxError`].
pub async fn written_in(tx: &mut Tx, scope: &ScopeId, id: &EntryVersionId) -> Result<Option<Revision>, TxError> {
    let sql = MemoryEntriesSql::of(tx.dialect());
    let artifact = ArtifactId::memory();
    let args = values![scope.as_str(), artifact.as_str(), id.as_str()];
    let row = tx.fetch_opt(sql.written_in, args).await?;
    let revision = row.map(|row| row.small("created_in_revision")).transpose()?;
    let revision = revision.map(Revision::new).transpose();
    revision.map_err(|_| corrupt("created_in_revision"))
}

/// Versions by their ids, of entries that stand at `state`, in no order; unknown ids are left out. At most
/// [`VERSIONS_MAX`] ids.
///
/// # Errors
/// [`TxError`].
pub async fn versions(
    tx: &mut Tx,
    scope: &ScopeId,
    ids: &[&EntryVersionId],
    state: EntryState,
) -> Result<Vec<EntryVersion>, TxError> {
    debug_assert!(
        ids.len() <= VERSIONS_MAX,
        "the statement has room for {VERSIONS_MAX} ids"
    );
    let Some(last) = ids.last() else {
        return Ok(Vec::new());
    };
    let sql = MemoryEntriesSql::of(tx.dialect());
    let artifact = ArtifactId::memory();
    let mut args = vec![Value::from(scope.as_str()), artifact.as_str().into()];
    args.extend(ids.iter().map(|id| Value::from(id.as_str())));
    args.resize(2 + VERSIONS_MAX, last.as_str().into());
    let rows = tx.fetch(sql.versions, &args).await?;
    rows.iter().map(|row| decode(row, state)).collect()
}

/// Place of an entry in the order of [`page`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The revision that changed the entry last.
    pub changed_in: Revision,
    /// The entry.
    pub entry: EntryId,
}

/// Entries as their heads stand, the most recently changed first, behind `after`.
///
/// # Errors
/// [`TxError`].
pub async fn page(
    tx: &mut Tx,
    scope: &ScopeId,
    include_inactive: bool,
    after: Option<&Place>,
    limit: u32,
) -> Result<Vec<(Place, EntryVersion)>, TxError> {
    let sql = MemoryEntriesSql::of(tx.dialect());
    let artifact = ArtifactId::memory();
    let (revision, entry) = after.map_or((i64::MAX, ""), |place| {
        (i64::from(place.changed_in.get()), place.entry.as_str())
    });
    let args = values![
        scope.as_str(),
        artifact.as_str(),
        include_inactive,
        revision,
        revision,
        entry,
        limit
    ];
    let rows = tx.fetch(sql.page, args).await?;
    rows.iter()
        .map(|row| {
            let version = decode(row, state(row)?)?;
            let changed_in = Revision::new(row.small("head_revision")?).map_err(|_| corrupt("head_revision"))?;
            let entry = version.entry_id.clone();
            Ok((Place { changed_in, entry }, version))
        })
        .collect()
}

/// Active entries that state exactly this. The engine compares texts, and OceanBase takes trailing spaces for nothing:
/// compare again.
///
/// # Errors
/// [`TxError`].
pub async fn stated(
    tx: &mut Tx,
    scope: &ScopeId,
    kind: &EntryKind,
    text: &EntryText,
) -> Result<Vec<EntryVersion>, TxError> {
    let sql = MemoryEntriesSql::of(tx.dialect());
    let artifact = ArtifactId::memory();
    let args = values![
        scope.as_str(),
        artifact.as_str(),
        kind.as_str(),
        Value::Text(Some(text.as_str())),
        STATED_MAX
    ];
    let rows = tx.fetch(sql.stated, args).await?;
    rows.iter().map(|row| decode(row, EntryState::Active)).collect()
}

/// An entry that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The entry.
    pub entry_id: EntryId,
    /// Its current version.
    pub version_id: EntryVersionId,
    /// The engine's own score; larger is better, and only the order of two of one search means anything.
    pub score: f64,
}

/// Active entries that share a token with the query, best first.
///
/// # Errors
/// [`TxError`].
pub async fn search(tx: &mut Tx, scope: &ScopeId, query: &str, limit: u32) -> Result<Vec<Match>, TxError> {
    let dialect = tx.dialect();
    let tokens = tokens(query);
    let spelled = match dialect {
        Dialect::OceanBase => search_text::oceanbase_query(scope, &tokens),
        Dialect::Sqlite => search_text::sqlite_query(scope, &tokens),
    };
    let Some(spelled) = spelled else {
        return Ok(Vec::new());
    };
    let query = Value::Text(Some(&spelled));
    let args = [query, scope.as_str().into(), query, limit.into()];
    let rows = tx.fetch(MemoryEntriesSql::of(dialect).search, &args).await?;
    rows.iter()
        .map(|row| {
            Ok(Match {
                entry_id: row.parsed("entry_id", EntryId::parse)?,
                version_id: row.parsed("entry_version_id", EntryVersionId::parse)?,
                score: row.float("score")?,
            })
        })
        .collect()
}
