//! Rows of `pc_sources` and `pc_source_journal_heads`: what was captured, in the one order of its scope. Positions are
//! contiguous because the head's row is locked before one is taken (I6).

use powercontext_core::ids::{BindingName, ScopeId, SourceId, SourceType};
use powercontext_core::refs::{Position, SourceRef};
use powercontext_core::window::Window;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::store::ask::Ask;
use crate::store::conn::{Dialect, Row, values};
use crate::store::error::{TxError, corrupt};
use crate::store::locks::LockKind;
use crate::store::sql::statements;
use crate::store::tx::Tx;

statements! {
    /// Texts of this aggregate.
    SourcesSql, sources { head, lock_head, create_head, move_head, get, insert, window, sizes, unread }
}

/// How a payload's content is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    /// As JSON.
    Json,
}

/// Where a payload's content comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Origin {
    /// A client handed it in as it is.
    Native,
    /// A connector saw it elsewhere.
    Observation,
}

/// What a source says. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    encoding: Encoding,
    kind: Origin,
    content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Map<String, Json>>,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").finish_non_exhaustive()
    }
}

impl Payload {
    /// What a client captured. No metadata differs from empty metadata.
    pub fn native(content: String, metadata: Option<Map<String, Json>>) -> Self {
        Self {
            encoding: Encoding::Json,
            kind: Origin::Native,
            content,
            metadata,
        }
    }

    /// The content.
    pub fn content(&self) -> &str {
        &self.content
    }

    /// The metadata, if there is any.
    pub fn metadata(&self) -> Option<&Map<String, Json>> {
        self.metadata.as_ref()
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data with string keys always encodes")
    }

    /// Whether stored bytes say the same. Equal bytes are enough: a fraction may change its last digit when it is read.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] when the bytes are no payload.
    pub fn is_stored_as(&self, stored: &[u8]) -> Result<bool, TxError> {
        Ok(self.encode() == stored || *self == Self::decode(stored)?)
    }

    fn decode(bytes: &[u8]) -> Result<Self, TxError> {
        serde_json::from_slice(bytes).map_err(|_| corrupt("payload"))
    }
}

/// One source of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRow {
    /// What it is called.
    pub source: SourceRef,
    /// Its place in the journal.
    pub position: Position,
    /// What it says.
    pub payload: Payload,
}

fn position(row: &Row, column: &'static str) -> Result<Position, TxError> {
    row.count(column).map(Position::new)
}

/// The last position of a scope's journal, without locking it; [`Position::START`] for a scope without sources.
///
/// # Errors
/// [`TxError`].
pub async fn head(tx: &mut Tx, scope: &ScopeId) -> Result<Position, TxError> {
    tx.ask(ask_head(tx.dialect(), scope)).await
}

/// [`head`], to be sent with other reads.
pub(super) fn ask_head(dialect: Dialect, scope: &ScopeId) -> Ask<'_, Position> {
    Ask {
        sql: SourcesSql::of(dialect).head,
        args: values![scope.as_str()].to_vec(),
        decode: |rows| {
            rows.first()
                .map_or(Ok(Position::START), |row| position(row, "position"))
        },
    }
}

/// [`sizes`], to be sent with other reads.
pub(super) fn ask_sizes(dialect: Dialect, scope: &ScopeId, window: Window) -> Ask<'_, Vec<(Position, u64)>> {
    Ask {
        sql: SourcesSql::of(dialect).sizes,
        args: values![scope.as_str(), window.after.get(), window.through.get(), window.len()].to_vec(),
        decode: |rows| {
            rows.iter()
                .map(|row| Ok((position(row, "journal_position")?, row.count("bytes")?)))
                .collect()
        },
    }
}

/// Locks a scope's journal head, making its row when there is none.
///
/// # Errors
/// [`TxError`].
pub async fn lock_head(tx: &mut Tx, scope: &ScopeId) -> Result<Position, TxError> {
    let sql = SourcesSql::of(tx.dialect());
    tx.locks(LockKind::JournalHead, scope.as_str());
    if let Some(row) = tx.fetch_opt(sql.lock_head, values![scope.as_str()]).await? {
        return position(&row, "position");
    }
    tx.execute(sql.create_head, values![scope.as_str()]).await?;
    position(&tx.fetch_one(sql.lock_head, values![scope.as_str()]).await?, "position")
}

/// Where a source stands, with its stored payload.
///
/// # Errors
/// [`TxError`].
pub async fn get(tx: &mut Tx, scope: &ScopeId, source: &SourceRef) -> Result<Option<(Position, Vec<u8>)>, TxError> {
    let sql = SourcesSql::of(tx.dialect());
    let key = values![scope.as_str(), source.name.as_str(), source.source_id.as_str()];
    let row = tx.fetch_opt(sql.get, key).await?;
    row.map(|row| Ok((position(&row, "journal_position")?, row.blob("payload")?)))
        .transpose()
}

/// Appends a new source behind a locked journal head and answers its position.
///
/// # Errors
/// [`TxError`].
pub async fn append(
    tx: &mut Tx,
    scope: &ScopeId,
    source: &SourceRef,
    payload: &Payload,
    head: Position,
) -> Result<Position, TxError> {
    let sql = SourcesSql::of(tx.dialect());
    let (at, bytes) = (head.next(), payload.encode());
    let row = values![
        scope.as_str(),
        source.name.as_str(),
        source.source_id.as_str(),
        bytes.as_slice(),
        at.get()
    ];
    tx.later(sql.insert, row, None).await?;
    tx.later(sql.move_head, values![at.get(), scope.as_str(), head.get()], None)
        .await?;
    Ok(at)
}

/// The sources of a window in order. A hole shows as fewer rows than the window is long.
///
/// # Errors
/// [`TxError`].
pub async fn window(tx: &mut Tx, scope: &ScopeId, window: Window) -> Result<Vec<SourceRow>, TxError> {
    let sql = SourcesSql::of(tx.dialect());
    let args = values![scope.as_str(), window.after.get(), window.through.get(), window.len()];
    let rows = tx.fetch(sql.window, args).await?;
    rows.iter()
        .map(|row| {
            Ok(SourceRow {
                source: SourceRef {
                    name: row.parsed("source_type", SourceType::parse)?,
                    source_id: row.parsed("source_id", SourceId::parse)?,
                },
                position: position(row, "journal_position")?,
                payload: Payload::decode(&row.blob("payload")?)?,
            })
        })
        .collect()
}

/// Positions of a window in order, each with the bytes of its payload: read before the payloads, to bound them.
///
/// # Errors
/// [`TxError`].
pub async fn sizes(tx: &mut Tx, scope: &ScopeId, window: Window) -> Result<Vec<(Position, u64)>, TxError> {
    tx.ask(ask_sizes(tx.dialect(), scope, window)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn payload(content: &str, metadata: Option<Json>) -> Payload {
        let metadata = metadata.map(|m| m.as_object().expect("an object").clone());
        Payload::native(content.to_owned(), metadata)
    }

    #[test]
    fn the_stored_form_is_an_envelope_that_names_encoding_and_kind() {
        let stored = payload("hi", Some(json!({"a": 1}))).encode();
        let stored: Json = serde_json::from_slice(&stored).expect("JSON");
        assert_eq!(
            stored,
            json!({"encoding": "json", "kind": "native", "content": "hi", "metadata": {"a": 1}})
        );
    }

    #[test]
    fn absent_metadata_differs_from_empty_metadata() {
        let absent = payload("hi", None);
        let empty = payload("hi", Some(json!({})));
        assert_eq!(absent.is_stored_as(&absent.encode()), Ok(true));
        assert_eq!(absent.is_stored_as(&empty.encode()), Ok(false));
        assert_eq!(empty.is_stored_as(&absent.encode()), Ok(false));
    }

    #[test]
    fn the_order_of_members_makes_no_difference() {
        let stored = br#"{"metadata":{"b":2,"a":[1.5,null]},"content":"hi","kind":"native","encoding":"json"}"#;
        let same = payload("hi", Some(json!({"a": [1.5, null], "b": 2})));
        assert_eq!(same.is_stored_as(stored), Ok(true));
        let other = payload("hi", Some(json!({"a": [1.5, null], "b": 3})));
        assert_eq!(other.is_stored_as(stored), Ok(false));
        assert_eq!(same.is_stored_as(b"{}"), Err(corrupt("payload")));
    }

    #[test]
    fn nothing_of_the_content_shows_in_debug_output() {
        let text = format!("{:?}", payload("secret", Some(json!({"secret": "secret"}))));
        assert!(!text.contains("secret"), "{text}");
    }
}

/// A scope whose journal goes on behind a binding's cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPage {
    /// Scopes with sources behind the cursor whose intent says that there are none.
    pub lost: Vec<ScopeId>,
    /// The last scope that was looked at; `None` at the end of all journals.
    pub last: Option<ScopeId>,
}

/// A page of journals after a scope, each compared with a binding's cursor and intent. Takes no lock.
///
/// # Errors
/// [`TxError`].
pub async fn unread(
    tx: &mut Tx,
    binding: &BindingName,
    after: Option<&ScopeId>,
    limit: u32,
) -> Result<JournalPage, TxError> {
    let sql = SourcesSql::of(tx.dialect());
    let after = after.map_or("", ScopeId::as_str);
    let args = values![binding.as_str(), binding.as_str(), after, limit];
    let rows = tx.fetch(sql.unread, args).await?;
    let mut page = JournalPage {
        lost: Vec::new(),
        last: None,
    };
    for row in &rows {
        let scope = row.parsed("scope_id", ScopeId::parse)?;
        let is_behind = row.opt_count("sequence")?.unwrap_or(0) < row.count("position")?;
        if is_behind && row.opt_int("is_dirty")?.unwrap_or(0) == 0 {
            page.lost.push(scope.clone());
        }
        page.last = Some(scope);
    }
    // A page that is not full was the last.
    if rows.len() < limit as usize {
        page.last = None;
    }
    Ok(page)
}
