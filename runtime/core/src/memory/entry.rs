//! Memory entries and their versions.
//!
//! An entry keeps its id for ever; every change makes a new version with an id of its own. The content hash is part of
//! the stored format: SHA-256 over a domain prefix and the canonical JSON of kind, text and sorted references. Text is
//! normalised (NFC) once, on the way in, so that equal text has equal bytes.

use serde::{Deserialize, Serialize};
use serde_json::json;
use unicode_normalization::UnicodeNormalization as _;

use crate::digest::sha256_hex;
use crate::ids::{EntryId, EntryVersionId, TextFault, check_text};
use crate::limits::{ENTRY_KIND_CHARS_MAX, ENTRY_TEXT_BYTES_MAX, REASON_CHARS_MAX};
use crate::memory::canonical::canonical_json;
use crate::refs::{ArtifactRef, SourceRef};

/// Most sources, and most artifacts, that one entry version cites.
pub const ENTRY_REFS_MAX: usize = 128;

/// Separates this hash from every other one over JSON.
const HASH_DOMAIN: &str = "powercontext.memory.entry.v1\0";

/// Why a text cannot be part of an entry. Never carries the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// Not usable as a kind.
    #[error("kind {0}")]
    Kind(TextFault),
    /// Nothing, or nothing but white space.
    #[error("text must hold at least one character that is not white space")]
    TextBlank,
    /// More bytes than an entry holds.
    #[error("text must be at most {bytes_max} bytes after normalisation")]
    TextTooLong {
        /// Upper limit, in UTF-8 bytes.
        bytes_max: usize,
    },
    /// Holds a NUL, which some indexes take for the end.
    #[error("text must not hold NUL characters")]
    TextNul,
    /// A reason with more characters than the limit.
    #[error("reason must be at most {chars_max} characters")]
    ReasonTooLong {
        /// Upper limit, in Unicode characters.
        chars_max: usize,
    },
    /// More references than one version keeps.
    #[error("at most {refs_max} references of a kind")]
    TooManyRefs {
        /// Upper limit.
        refs_max: usize,
    },
    /// Not 64 lower-case hex digits.
    #[error("must match [0-9a-f]{{64}}")]
    Hash,
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $parse:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Accepts a text of this form.
            ///
            /// # Errors
            /// [`EntryFault`] with the first rule that it breaks.
            pub fn parse(text: impl Into<String>) -> Result<Self, EntryFault> {
                let text = text.into();
                $parse(&text).map(Self)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = EntryFault;
            fn try_from(text: String) -> Result<Self, EntryFault> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }
    };
}

checked_text! {
    /// What sort of thing an entry states: 1 to 128 characters, free for people. A model chooses from
    /// [`EntryKind::EXTRACTED`] only.
    EntryKind, parse_kind
}
checked_text! {
    /// What an entry states: normalised (NFC), not blank, at most 8192 bytes.
    EntryText, parse_text
}
checked_text! {
    /// Why an entry changed, in the words of whoever changed it: at most 512 characters, possibly none.
    Reason, parse_reason
}
checked_text! {
    /// Content hash of an entry version: 64 lower-case hex digits.
    ContentHash, parse_hash
}

fn parse_kind(text: &str) -> Result<String, EntryFault> {
    check_text(text, ENTRY_KIND_CHARS_MAX).map_err(EntryFault::Kind)?;
    Ok(text.to_owned())
}

fn parse_text(text: &str) -> Result<String, EntryFault> {
    const TOO_LONG: EntryFault = EntryFault::TextTooLong {
        bytes_max: ENTRY_TEXT_BYTES_MAX,
    };
    // Composing never shortens a text to less than a third, so anything longer than that is refused before the work.
    if text.len() > ENTRY_TEXT_BYTES_MAX * 4 {
        return Err(TOO_LONG);
    }
    let text: String = text.nfc().collect();
    if text.len() > ENTRY_TEXT_BYTES_MAX {
        return Err(TOO_LONG);
    }
    if text.contains('\0') {
        return Err(EntryFault::TextNul);
    }
    if text.trim().is_empty() {
        return Err(EntryFault::TextBlank);
    }
    Ok(text)
}

fn parse_reason(text: &str) -> Result<String, EntryFault> {
    if text.chars().take(REASON_CHARS_MAX + 1).count() > REASON_CHARS_MAX {
        return Err(EntryFault::ReasonTooLong {
            chars_max: REASON_CHARS_MAX,
        });
    }
    Ok(text.to_owned())
}

fn parse_hash(text: &str) -> Result<String, EntryFault> {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() == 64 && text.bytes().all(is_hex) {
        Ok(text.to_owned())
    } else {
        Err(EntryFault::Hash)
    }
}

impl EntryKind {
    /// The closed set that extraction may use.
    pub const EXTRACTED: [&'static str; 5] = ["fact", "preference", "decision", "constraint", "working_note"];

    /// Whether extraction may use it.
    pub fn is_extracted(&self) -> bool {
        Self::EXTRACTED.contains(&self.as_str())
    }
}

/// Whether an entry counts as remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// Found by searches and shown to the model.
    Active,
    /// Retired: kept for its history only.
    Inactive,
}

impl EntryState {
    /// The stored and public name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
        }
    }

    /// Reads the stored name.
    pub fn from_row(name: &str) -> Option<Self> {
        [Self::Active, Self::Inactive].into_iter().find(|s| s.as_str() == name)
    }
}

/// What an entry version states and what it cites, before it has an id. References are sorted and unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryContent {
    kind: EntryKind,
    text: EntryText,
    source_refs: Vec<SourceRef>,
    artifact_refs: Vec<ArtifactRef>,
}

impl EntryContent {
    /// Puts a content together; sorts the references and drops repeated ones.
    ///
    /// # Errors
    /// [`EntryFault::TooManyRefs`] when more than [`ENTRY_REFS_MAX`] of a kind remain.
    pub fn new(
        kind: EntryKind,
        text: EntryText,
        mut source_refs: Vec<SourceRef>,
        mut artifact_refs: Vec<ArtifactRef>,
    ) -> Result<Self, EntryFault> {
        source_refs.sort();
        source_refs.dedup();
        artifact_refs.sort();
        artifact_refs.dedup();
        if source_refs.len().max(artifact_refs.len()) > ENTRY_REFS_MAX {
            return Err(EntryFault::TooManyRefs {
                refs_max: ENTRY_REFS_MAX,
            });
        }
        Ok(Self {
            kind,
            text,
            source_refs,
            artifact_refs,
        })
    }

    /// The kind.
    pub fn kind(&self) -> &EntryKind {
        &self.kind
    }

    /// The text.
    pub fn text(&self) -> &EntryText {
        &self.text
    }

    /// The cited sources, sorted.
    pub fn source_refs(&self) -> &[SourceRef] {
        &self.source_refs
    }

    /// Whether both state the same thing, whatever they cite.
    pub fn says_the_same_as(&self, entry: &EntryVersion) -> bool {
        self.kind == entry.kind && self.text == entry.text
    }

    /// This content with the references of `other` added; `None` past [`ENTRY_REFS_MAX`] or when the two state
    /// different things.
    pub fn merged_with(&self, other: &Self) -> Option<Self> {
        if (&self.kind, &self.text) != (&other.kind, &other.text) {
            return None;
        }
        let sources = [self.source_refs.as_slice(), &other.source_refs].concat();
        let artifacts = [self.artifact_refs.as_slice(), &other.artifact_refs].concat();
        Self::new(self.kind.clone(), self.text.clone(), sources, artifacts).ok()
    }

    /// The content hash.
    pub fn hash(&self) -> ContentHash {
        hash_parts(&self.kind, &self.text, &self.source_refs, &self.artifact_refs)
    }
}

fn hash_parts(kind: &EntryKind, text: &EntryText, sources: &[SourceRef], artifacts: &[ArtifactRef]) -> ContentHash {
    let value = json!({"kind": kind, "text": text, "source_refs": sources, "artifact_refs": artifacts});
    ContentHash(sha256_hex(
        format!("{HASH_DOMAIN}{}", canonical_json(&value)).as_bytes(),
    ))
}

/// One version of an entry, as its row and the public API show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryVersion {
    /// The entry, stable over its versions.
    pub entry_id: EntryId,
    /// This version.
    pub version_id: EntryVersionId,
    /// Counts what the entry stated: 1, 2, 3 and so on. Retiring states nothing new and keeps the number.
    pub version: u32,
    /// The version before, `None` for the first.
    pub previous: Option<EntryVersionId>,
    /// Sort of statement.
    pub kind: EntryKind,
    /// The statement.
    pub text: EntryText,
    /// Sources it cites, sorted.
    pub source_refs: Vec<SourceRef>,
    /// Artifact revisions it cites, sorted.
    pub artifact_refs: Vec<ArtifactRef>,
    /// Hash of the four fields above.
    pub content_hash: ContentHash,
    /// Whether the entry counts as remembered.
    pub state: EntryState,
}

impl EntryVersion {
    fn make(
        (entry_id, version_id): (EntryId, EntryVersionId),
        version: u32,
        previous: Option<EntryVersionId>,
        content: EntryContent,
    ) -> Self {
        let content_hash = content.hash();
        Self {
            entry_id,
            version_id,
            version,
            previous,
            kind: content.kind,
            text: content.text,
            source_refs: content.source_refs,
            artifact_refs: content.artifact_refs,
            content_hash,
            state: EntryState::Active,
        }
    }

    /// The first version of a new entry.
    pub fn first(entry_id: EntryId, version_id: EntryVersionId, content: EntryContent) -> Self {
        Self::make((entry_id, version_id), 1, None, content)
    }

    /// The version after this one, with other content.
    #[must_use]
    pub fn revised(&self, version_id: EntryVersionId, content: EntryContent) -> Self {
        let ids = (self.entry_id.clone(), version_id);
        Self::make(
            ids,
            self.version.saturating_add(1),
            Some(self.version_id.clone()),
            content,
        )
    }

    /// The version that retires the entry: same number, same content, inactive.
    #[must_use]
    pub fn retired(&self, version_id: EntryVersionId) -> Self {
        Self {
            version_id,
            previous: Some(self.version_id.clone()),
            state: EntryState::Inactive,
            ..self.clone()
        }
    }

    /// Whether the hash is that of the content.
    pub fn is_intact(&self) -> bool {
        self.content_hash == hash_parts(&self.kind, &self.text, &self.source_refs, &self.artifact_refs)
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
