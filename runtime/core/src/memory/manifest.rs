//! Content of a Memory revision: which entry stands at which version, and what changed.
//!
//! The manifest is flat (`flat-v1`): every entry the Memory ever had, sorted by the bytes of its id, so that any
//! revision can be read alone. The encoded form is canonical JSON; equal contents are equal bytes.

use serde::{Deserialize, Serialize};

use crate::ids::{EntryId, EntryVersionId};
use crate::memory::canonical::canonical_json;
use crate::memory::entry::{ContentHash, EntryState, EntryVersion, Reason};

/// Names the form of the content.
pub const SCHEMA: &str = "powercontext.memory.v1";
/// Names the form of the manifest.
pub const MANIFEST_FORMAT: &str = "flat-v1";
/// Most entries of one Memory, retired ones included.
pub const ENTRIES_MAX: usize = 20_000;
/// Largest encoded content, in bytes.
pub const CONTENT_BYTES_MAX: usize = 12 * 1024 * 1024;

/// Where one entry stands at a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    /// The entry.
    pub entry_id: EntryId,
    /// Its version.
    pub entry_version_id: EntryVersionId,
    /// Hash of that version's content.
    pub entry_content_hash: ContentHash,
    /// Whether it counts as remembered.
    pub state: EntryState,
}

impl ManifestEntry {
    /// The manifest's line for a version.
    pub fn of(version: &EntryVersion) -> Self {
        Self {
            entry_id: version.entry_id.clone(),
            entry_version_id: version.version_id.clone(),
            entry_content_hash: version.content_hash.clone(),
            state: version.state,
        }
    }
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOp {
    /// A new entry.
    Add,
    /// Other content.
    Revise,
    /// No longer remembered.
    Deactivate,
    /// Remembered again.
    Reactivate,
}

/// One change of a revision, as it is stored and as the public API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryChange {
    /// What happened.
    pub op: ChangeOp,
    /// To which entry.
    pub entry_id: EntryId,
    /// The version before; `None` when it is new.
    pub from_entry_version_id: Option<EntryVersionId>,
    /// The version after.
    pub to_entry_version_id: Option<EntryVersionId>,
    /// Why, if anybody said.
    pub reason: Option<Reason>,
}

/// Content of one Memory revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct MemoryContent {
    manifest: Vec<ManifestEntry>,
    changes: Vec<EntryChange>,
}

/// Why bytes are not a Memory content, or entries cannot make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentFault {
    /// Not JSON of this form.
    #[error("not a Memory content")]
    Form,
    /// Another schema or manifest format.
    #[error("a Memory content of another schema or format")]
    Schema,
    /// Entries out of order, or one twice.
    #[error("manifest entries are not in strict order of their ids")]
    Order,
    /// More than a Memory holds.
    #[error("more than {entries_max} entries or {bytes_max} bytes")]
    TooLarge {
        /// Most entries.
        entries_max: usize,
        /// Most encoded bytes.
        bytes_max: usize,
    },
}

const TOO_LARGE: ContentFault = ContentFault::TooLarge {
    entries_max: ENTRIES_MAX,
    bytes_max: CONTENT_BYTES_MAX,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    schema: String,
    manifest: WireManifest,
    changes: Vec<EntryChange>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireManifest {
    format: String,
    entries: Vec<ManifestEntry>,
}

impl TryFrom<Wire> for MemoryContent {
    type Error = ContentFault;
    fn try_from(wire: Wire) -> Result<Self, ContentFault> {
        if wire.schema != SCHEMA || wire.manifest.format != MANIFEST_FORMAT {
            return Err(ContentFault::Schema);
        }
        Self::new(wire.manifest.entries, wire.changes)
    }
}

impl From<MemoryContent> for Wire {
    fn from(content: MemoryContent) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            manifest: WireManifest {
                format: MANIFEST_FORMAT.to_owned(),
                entries: content.manifest,
            },
            changes: content.changes,
        }
    }
}

impl MemoryContent {
    /// Puts a content together from entries in order of their ids.
    ///
    /// # Errors
    /// [`ContentFault::Order`] or [`ContentFault::TooLarge`].
    pub fn new(manifest: Vec<ManifestEntry>, changes: Vec<EntryChange>) -> Result<Self, ContentFault> {
        if manifest.len() > ENTRIES_MAX || changes.len() > ENTRIES_MAX {
            return Err(TOO_LARGE);
        }
        if manifest.windows(2).any(|pair| pair[0].entry_id >= pair[1].entry_id) {
            return Err(ContentFault::Order);
        }
        Ok(Self { manifest, changes })
    }

    /// Every entry, in order of the bytes of its id.
    pub fn manifest(&self) -> &[ManifestEntry] {
        &self.manifest
    }

    /// What changed since the revision before.
    pub fn changes(&self) -> &[EntryChange] {
        &self.changes
    }

    /// Where an entry stands; `None` when the Memory never had it.
    pub fn entry(&self, id: &EntryId) -> Option<&ManifestEntry> {
        let at = self.manifest.binary_search_by(|entry| entry.entry_id.cmp(id)).ok()?;
        self.manifest.get(at)
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let value = serde_json::to_value(self).expect("plain data with string keys always encodes");
        canonical_json(&value).into_bytes()
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`ContentFault`] unless the bytes are a content of this schema, whatever their white space.
    pub fn decode(bytes: &[u8]) -> Result<Self, ContentFault> {
        if bytes.len() > CONTENT_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        let wire: Wire = serde_json::from_slice(bytes).map_err(|_| ContentFault::Form)?;
        wire.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize, state: EntryState) -> ManifestEntry {
        ManifestEntry {
            entry_id: EntryId::parse(format!("mem_ent_{n:08}")).expect("valid"),
            entry_version_id: EntryVersionId::parse(format!("mem_ver_{n:08}")).expect("valid"),
            entry_content_hash: ContentHash::parse("0".repeat(64)).expect("valid"),
            state,
        }
    }

    fn add(entry: &ManifestEntry) -> EntryChange {
        EntryChange {
            op: ChangeOp::Add,
            entry_id: entry.entry_id.clone(),
            from_entry_version_id: None,
            to_entry_version_id: Some(entry.entry_version_id.clone()),
            reason: Some(Reason::parse("said so").expect("short")),
        }
    }

    #[test]
    fn the_stored_form_is_canonical_json_of_the_documented_shape() {
        let only = entry(1, EntryState::Active);
        let content = MemoryContent::new(vec![only.clone()], vec![add(&only)]).expect("in order");
        let expected = format!(
            "{{\"changes\":[{{\"entry_id\":\"mem_ent_00000001\",\"from_entry_version_id\":null,\"op\":\"add\",\
             \"reason\":\"said so\",\"to_entry_version_id\":\"mem_ver_00000001\"}}],\"manifest\":{{\"entries\":\
             [{{\"entry_content_hash\":\"{}\",\"entry_id\":\"mem_ent_00000001\",\"entry_version_id\":\
             \"mem_ver_00000001\",\"state\":\"active\"}}],\"format\":\"flat-v1\"}},\"schema\":\"powercontext.memory.v1\"}}",
            "0".repeat(64)
        );
        assert_eq!(String::from_utf8(content.encode()).expect("JSON"), expected);
        assert_eq!(MemoryContent::decode(expected.as_bytes()), Ok(content));
    }

    #[test]
    fn an_empty_memory_is_a_content_too() {
        let empty = MemoryContent::new(Vec::new(), Vec::new()).expect("in order");
        assert_eq!(MemoryContent::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn entries_out_of_order_or_repeated_are_refused_when_made_and_when_read() {
        let (one, two) = (entry(1, EntryState::Active), entry(2, EntryState::Inactive));
        for wrong in [vec![two.clone(), one.clone()], vec![one.clone(), one.clone()]] {
            assert_eq!(MemoryContent::new(wrong, Vec::new()), Err(ContentFault::Order));
        }
        let text = String::from_utf8(
            MemoryContent::new(vec![one, two], Vec::new())
                .expect("in order")
                .encode(),
        );
        let swapped = text.expect("JSON").replace("00000001", "00000003");
        assert_eq!(MemoryContent::decode(swapped.as_bytes()), Err(ContentFault::Order));
    }

    #[test]
    fn an_entry_is_found_by_its_id() {
        let entries: Vec<_> = (1..=9).map(|n| entry(n * 2, EntryState::Active)).collect();
        let content = MemoryContent::new(entries.clone(), Vec::new()).expect("in order");
        for wanted in &entries {
            assert_eq!(content.entry(&wanted.entry_id), Some(wanted));
        }
        assert_eq!(content.entry(&entry(5, EntryState::Active).entry_id), None);
    }

    #[test]
    fn anything_else_is_refused() {
        for (bytes, fault) in [
            (&b"{}"[..], ContentFault::Form),
            (b"\xff", ContentFault::Form),
            (b"[]", ContentFault::Form),
            (
                br#"{"schema":"powercontext.memory.v2","manifest":{"format":"flat-v1","entries":[]},"changes":[]}"#,
                ContentFault::Schema,
            ),
            (
                br#"{"schema":"powercontext.memory.v1","manifest":{"format":"flat-v2","entries":[]},"changes":[]}"#,
                ContentFault::Schema,
            ),
            (
                br#"{"schema":"powercontext.memory.v1","manifest":{"format":"flat-v1","entries":[]},"changes":[],"x":1}"#,
                ContentFault::Form,
            ),
        ] {
            assert_eq!(MemoryContent::decode(bytes), Err(fault), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_memory_holds_at_most_20_000_entries_and_they_fit_the_byte_limit() {
        let mut entries: Vec<_> = (0..ENTRIES_MAX).map(|n| entry(n, EntryState::Active)).collect();
        let full = MemoryContent::new(entries.clone(), Vec::new()).expect("at the limit");
        assert!(full.encode().len() <= CONTENT_BYTES_MAX);
        entries.push(entry(ENTRIES_MAX, EntryState::Active));
        assert_eq!(MemoryContent::new(entries, Vec::new()), Err(TOO_LARGE));
        assert_eq!(
            MemoryContent::decode(&vec![b' '; CONTENT_BYTES_MAX + 1]),
            Err(TOO_LARGE)
        );
    }
}
