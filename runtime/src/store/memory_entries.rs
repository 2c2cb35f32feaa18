//! Rows of `pc_memory_entry_versions` and `pc_memory_entry_heads`: what a Memory's entries state, every version of them,
//! and which version is current. The heads carry the search index, so both are written together.
//!
//! A version's row does not say whether the entry is active: retiring makes a version of the same content, and the
//! manifest of a revision says how each entry stands there.

use powercontext_core::ids::{ArtifactId, EntryId, EntryVersionId, ScopeId};
use powercontext_core::memory::analyzer::tokens;
use powercontext_core::memory::{ContentHash, EntryKind, EntryState, EntryText, EntryVersion};
use powercontext_core::refs::Revision;
use serde::de::DeserializeOwned;

use crate::store::artifacts::ArtifactKey;
use crate::store::ask::Ask;
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

/// What the rows of a version hold in another form than it does.
struct Encoded<'a> {
    version: &'a EntryVersion,
    sources: Vec<u8>,
    artifacts: Vec<u8>,
    searchable: String,
}

impl<'a> Encoded<'a> {
    fn of(scope: &ScopeId, version: &'a EntryVersion) -> Self {
        Self {
            version,
            sources: encode_refs(&version.source_refs),
            artifacts: encode_refs(&version.artifact_refs),
            searchable: searchable_text(scope, version),
        }
    }

    fn previous(&self) -> Option<&'a str> {
        self.version.previous.as_ref().map(EntryVersionId::as_str)
    }

    /// The version's own row.
    fn row<'b>(&'b self, memory: &'b ArtifactKey, revision: Revision) -> Vec<Value<'b>> {
        values![
            memory.scope.as_str(),
            memory.id.as_str(),
            self.version.version_id.as_str(),
            memory.family.as_str(),
            self.version.entry_id.as_str(),
            self.version.version,
            self.previous(),
            self.version.kind.as_str(),
            Value::Text(Some(self.version.text.as_str())),
            self.sources.as_slice(),
            self.artifacts.as_slice(),
            self.version.content_hash.as_str(),
            revision.get()
        ]
        .to_vec()
    }

    /// Names the head of its entry.
    fn key<'b>(&'b self, memory: &'b ArtifactKey) -> [Value<'b>; 3] {
        values![
            memory.scope.as_str(),
            memory.id.as_str(),
            self.version.entry_id.as_str()
        ]
        .to_owned()
    }

    /// What the head of its entry says of it.
    fn head(&self, revision: Revision) -> [Value<'_>; 5] {
        [
            revision.get().into(),
            self.version.version_id.as_str().into(),
            self.version.content_hash.as_str().into(),
            self.version.state.as_str().into(),
            Value::Text(Some(&self.searchable)),
        ]
    }
}

/// Writes versions as those of `revision` and makes each its entry's head. The artifact revision must be written already.
///
/// # Errors
/// [`TxError::Rows`] when an entry's head is not the version before; it may come later in the transaction.
pub async fn put(tx: &mut Tx, scope: &ScopeId, revision: Revision, versions: &[EntryVersion]) -> Result<(), TxError> {
    let sql = MemoryEntriesSql::of(tx.dialect());
    let memory = ArtifactKey::memory(scope);
    let encoded: Vec<_> = versions.iter().map(|version| Encoded::of(scope, version)).collect();
    let rows: Vec<_> = encoded.iter().map(|version| version.row(&memory, revision)).collect();
    tx.later_rows(sql.insert_version, &rows).await?;
    let new = encoded.iter().filter(|encoded| encoded.previous().is_none());
    let new = new.map(|encoded| {
        [
            &encoded.key(&memory)[..],
            &[memory.family.as_str().into()],
            &encoded.head(revision),
        ]
        .concat()
    });
    tx.later_rows(sql.create_head, &new.collect::<Vec<_>>()).await?;
    for encoded in &encoded {
        if let Some(previous) = encoded.previous() {
            let args = [&encoded.head(revision)[..], &encoded.key(&memory), &[previous.into()]].concat();
            tx.later(sql.move_head, &args, None).await?;
        }
    }
    Ok(())
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
    let key = ArtifactKey::memory(scope);
    tx.ask(ask_page(tx.dialect(), &key, include_inactive, after, limit))
        .await
}

/// [`page`], to be sent with other reads.
pub(super) fn ask_page<'a>(
    dialect: Dialect,
    memory: &'a ArtifactKey,
    include_inactive: bool,
    after: Option<&'a Place>,
    limit: u32,
) -> Ask<'a, Vec<(Place, EntryVersion)>> {
    let (revision, entry) = after.map_or((i64::MAX, ""), |place| {
        (i64::from(place.changed_in.get()), place.entry.as_str())
    });
    let args = values![
        memory.scope.as_str(),
        memory.id.as_str(),
        include_inactive,
        revision,
        revision,
        entry,
        limit
    ];
    Ask {
        sql: MemoryEntriesSql::of(dialect).page,
        args: args.to_vec(),
        decode: |rows| rows.iter().map(decode_place).collect(),
    }
}

fn decode_place(row: &Row) -> Result<(Place, EntryVersion), TxError> {
    let version = decode(row, state(row)?)?;
    let changed_in = Revision::new(row.small("head_revision")?).map_err(|_| corrupt("head_revision"))?;
    let entry = version.entry_id.clone();
    Ok((Place { changed_in, entry }, version))
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
