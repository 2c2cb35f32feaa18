//! References to sources and artifacts, as rows, prompts and responses carry them.

use serde::{Deserialize, Serialize};

use crate::ids::{ArtifactId, FamilyName, SourceId, SourceType};

/// One captured source of a scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRef {
    /// The source type; the wire calls it `name`.
    pub name: SourceType,
    /// Its id inside scope and type.
    pub source_id: SourceId,
}

/// One exact revision of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactRef {
    /// Family of the artifact.
    pub family: FamilyName,
    /// Its id inside scope and family.
    pub artifact_id: ArtifactId,
    /// Exact revision.
    pub revision: Revision,
}

/// Revision number of an artifact: 1, 2, 3 and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Revision(u32);

/// A revision must be at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a revision is at least 1")]
pub struct ZeroRevision;

impl Revision {
    /// The revision that creates an artifact.
    pub const FIRST: Self = Self(1);

    /// Takes a stored or transmitted revision.
    ///
    /// # Errors
    /// [`ZeroRevision`] for 0.
    pub fn new(raw: u32) -> Result<Self, ZeroRevision> {
        if raw == 0 { Err(ZeroRevision) } else { Ok(Self(raw)) }
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The revision after `head`; the first when there is none.
    #[must_use]
    pub fn after(head: Option<Self>) -> Self {
        head.map_or(Self::FIRST, |r| Self(r.0.saturating_add(1)))
    }
}

impl TryFrom<u32> for Revision {
    type Error = ZeroRevision;
    fn try_from(raw: u32) -> Result<Self, ZeroRevision> {
        Self::new(raw)
    }
}

impl From<Revision> for u32 {
    fn from(revision: Revision) -> Self {
        revision.0
    }
}

/// Place of a source in its scope's journal: 1, 2, 3 and so on, without a hole. 0 stands before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(u64);

impl Position {
    /// Before the first source.
    pub const START: Self = Self(0);

    /// Takes a stored position.
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// How far a binding has consumed a scope's journal. `generation` counts the saves and makes each compare-and-set exact;
/// `None` means that no row exists yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// Last consumed position.
    pub sequence: Position,
    /// Save counter of the row, `None` while there is no row.
    pub generation: Option<u64>,
}

impl Cursor {
    /// The cursor of a scope that was never processed.
    pub const START: Self = Self {
        sequence: Position::START,
        generation: None,
    };
}
