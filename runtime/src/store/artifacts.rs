//! Rows of `pc_artifacts`, `pc_artifact_heads` and the lineage tables: immutable revisions, and which one is current.
//! A head moves only from the exact revision that its writer saw.

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ArtifactId, FamilyName, ScopeId, SourceId, SourceType};
use powercontext_core::refs::{ArtifactRef, Revision, SourceRef};

use crate::store::ask::Ask;
use crate::store::conn::{Dialect, Row, Value, values};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    ArtifactsSql, artifacts {
        head, lock_head, create_head, move_head, insert, content, page, add_source, add_artifact, sources, artifacts,
    }
}

/// Most references of a kind that one revision's lineage answers.
pub const LINEAGE_MAX: u32 = 1000;

/// Names one artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactKey {
    /// Its scope.
    pub scope: ScopeId,
    /// Its family.
    pub family: FamilyName,
    /// Its id inside scope and family.
    pub id: ArtifactId,
}

impl ArtifactKey {
    /// The Memory of a scope.
    pub fn memory(scope: &ScopeId) -> Self {
        Self {
            scope: scope.clone(),
            family: FamilyName::memory(),
            id: ArtifactId::memory(),
        }
    }

    fn values(&self) -> [Value<'_>; 3] {
        [
            self.scope.as_str().into(),
            self.family.as_str().into(),
            self.id.as_str().into(),
        ]
    }

    /// The key's columns and what follows them.
    fn with<'a>(&'a self, more: &[Value<'a>]) -> Vec<Value<'a>> {
        [&self.values()[..], more].concat()
    }
}

fn revision(row: &Row, column: &'static str) -> Result<Revision, TxError> {
    Revision::new(row.small(column)?).map_err(|_| corrupt(column))
}

/// What it means when a write is made that only the first of two rivals can make.
const RIVAL: Option<TxError> = Some(TxError::Refused(FailCode::HeadChanged));

fn decode_head(rows: &[Row]) -> Result<Option<Revision>, TxError> {
    rows.first().map(|row| revision(row, "revision")).transpose()
}

/// [`head`], to be sent with other reads.
pub(super) fn ask_head(dialect: Dialect, key: &ArtifactKey) -> Ask<'_, Option<Revision>> {
    Ask {
        sql: ArtifactsSql::of(dialect).head,
        args: key.values().to_vec(),
        decode: decode_head,
    }
}

/// [`lock_head`], to be sent with other reads.
pub(super) fn ask_lock_head<'a>(tx: &mut Tx, key: &'a ArtifactKey) -> Ask<'a, Option<Revision>> {
    tx.locks(LockKind::ArtifactHead, key.id.as_str());
    Ask {
        sql: ArtifactsSql::of(tx.dialect()).lock_head,
        ..ask_head(tx.dialect(), key)
    }
}

/// [`content`], to be sent with other reads.
pub(super) fn ask_content(dialect: Dialect, key: &ArtifactKey, at: Revision) -> Ask<'_, Option<Vec<u8>>> {
    Ask {
        sql: ArtifactsSql::of(dialect).content,
        args: key.with(values![at.get()]),
        decode: |rows| rows.first().map(|row| row.blob("content")).transpose(),
    }
}

/// The current revision, without locking it.
///
/// # Errors
/// [`TxError`].
pub async fn head(tx: &mut Tx, key: &ArtifactKey) -> Result<Option<Revision>, TxError> {
    tx.ask(ask_head(tx.dialect(), key)).await
}

/// Locks an artifact's head. An artifact that does not exist cannot be locked; [`insert`] finds out who was first.
///
/// # Errors
/// [`TxError`].
pub async fn lock_head(tx: &mut Tx, key: &ArtifactKey) -> Result<Option<Revision>, TxError> {
    let head = ask_lock_head(tx, key);
    tx.ask(head).await
}

/// Writes a revision. Rows that refer to it can be written after this; it becomes current with [`move_head`].
///
/// # Errors
/// [`TxError::Refused`] with [`FailCode::HeadChanged`] when somebody else wrote that revision; it may come later in the
/// transaction.
pub async fn insert(tx: &mut Tx, key: &ArtifactKey, at: Revision, content: &[u8]) -> Result<(), TxError> {
    let sql = ArtifactsSql::of(tx.dialect());
    let args = key.with(values![at.get(), content]);
    tx.later(sql.insert, &args, RIVAL).await
}

/// Makes a written revision the current one, after exactly `expected`.
///
/// # Errors
/// [`TxError::Refused`] with [`FailCode::HeadChanged`] when another revision is current; it may come later in the
/// transaction.
pub async fn move_head(
    tx: &mut Tx,
    key: &ArtifactKey,
    expected: Option<Revision>,
    to: Revision,
) -> Result<(), TxError> {
    let sql = ArtifactsSql::of(tx.dialect());
    match expected {
        None => tx.later(sql.create_head, &key.with(values![to.get()]), RIVAL).await,
        Some(old) => {
            let mut args = vec![Value::from(to.get())];
            args.extend(key.with(values![old.get()]));
            tx.later(sql.move_head, &args, RIVAL).await
        }
    }
}

/// Writes what a revision was made from, in this order.
///
/// # Errors
/// [`TxError`].
pub async fn add_lineage(
    tx: &mut Tx,
    key: &ArtifactKey,
    at: Revision,
    sources: &[SourceRef],
    artifacts: &[ArtifactRef],
) -> Result<(), TxError> {
    let sql = ArtifactsSql::of(tx.dialect());
    let sources = (0_u64..).zip(sources).map(|(ordinal, source)| {
        let row = values![at.get(), ordinal, source.name.as_str(), source.source_id.as_str()];
        key.with(row)
    });
    tx.later_rows(sql.add_source, &sources.collect::<Vec<_>>()).await?;
    let artifacts = (0_u64..).zip(artifacts).map(|(ordinal, artifact)| {
        let row = values![
            at.get(),
            ordinal,
            artifact.family.as_str(),
            artifact.artifact_id.as_str(),
            artifact.revision.get()
        ];
        key.with(row)
    });
    tx.later_rows(sql.add_artifact, &artifacts.collect::<Vec<_>>()).await
}

/// What a revision was made from, at most [`LINEAGE_MAX`] of a kind.
///
/// # Errors
/// [`TxError`].
pub async fn lineage(
    tx: &mut Tx,
    key: &ArtifactKey,
    at: Revision,
) -> Result<(Vec<SourceRef>, Vec<ArtifactRef>), TxError> {
    let sql = ArtifactsSql::of(tx.dialect());
    let args = key.with(values![at.get(), LINEAGE_MAX]);
    let sources = tx.fetch(sql.sources, &args).await?;
    let sources = sources.iter().map(|row| {
        Ok(SourceRef {
            name: row.parsed("source_type", SourceType::parse)?,
            source_id: row.parsed("source_id", SourceId::parse)?,
        })
    });
    let sources = sources.collect::<Result<_, TxError>>()?;
    let artifacts = tx.fetch(sql.artifacts, &args).await?;
    let artifacts = artifacts.iter().map(|row| {
        Ok(ArtifactRef {
            family: row.parsed("upstream_family", FamilyName::parse)?,
            artifact_id: row.parsed("upstream_artifact_id", ArtifactId::parse)?,
            revision: revision(row, "upstream_revision")?,
        })
    });
    Ok((sources, artifacts.collect::<Result<_, TxError>>()?))
}

/// Content of one revision.
///
/// # Errors
/// [`TxError`].
pub async fn content(tx: &mut Tx, key: &ArtifactKey, at: Revision) -> Result<Option<Vec<u8>>, TxError> {
    tx.ask(ask_content(tx.dialect(), key, at)).await
}

/// Revisions after `since` up to `through` with their contents, oldest first, at most `limit`.
///
/// # Errors
/// [`TxError`].
pub async fn page(
    tx: &mut Tx,
    key: &ArtifactKey,
    since: Option<Revision>,
    through: Revision,
    limit: u32,
) -> Result<Vec<(Revision, Vec<u8>)>, TxError> {
    let sql = ArtifactsSql::of(tx.dialect());
    let args = key.with(values![since.map_or(0, Revision::get), through.get(), limit]);
    let rows = tx.fetch(sql.page, &args).await?;
    rows.iter()
        .map(|row| Ok((revision(row, "revision")?, row.blob("content")?)))
        .collect()
}
