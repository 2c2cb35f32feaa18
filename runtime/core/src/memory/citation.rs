//! The exact place of a memory entry: which revision of the Memory, which entry, which version of it.

use serde::{Deserialize, Serialize};

use crate::ids::{ArtifactId, EntryId, EntryVersionId, FamilyName};
use crate::memory::entry::EntryVersion;
use crate::refs::{ArtifactRef, Revision};

/// Cites one version of one entry as it stood at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCitation {
    /// The Memory revision.
    pub memory_ref: ArtifactRef,
    /// The entry.
    pub entry_id: EntryId,
    /// Its version at that revision.
    pub entry_version_id: EntryVersionId,
}

/// The reference of a revision of a scope's Memory.
pub fn memory_ref(revision: Revision) -> ArtifactRef {
    ArtifactRef {
        family: FamilyName::memory(),
        artifact_id: ArtifactId::memory(),
        revision,
    }
}

impl MemoryCitation {
    /// Cites `entry` as it stands at `revision`.
    pub fn of(revision: Revision, entry: &EntryVersion) -> Self {
        Self {
            memory_ref: memory_ref(revision),
            entry_id: entry.entry_id.clone(),
            entry_version_id: entry.version_id.clone(),
        }
    }

    /// Whether it cites the scope's Memory at all, and not another artifact.
    pub fn is_of_memory(&self) -> bool {
        self.memory_ref.family == FamilyName::memory() && self.memory_ref.artifact_id == ArtifactId::memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_wire_form_is_closed_and_names_family_artifact_and_revision() {
        let wire = json!({
            "memory_ref": {"family": "memory", "artifact_id": "memory", "revision": 3},
            "entry_id": "mem_ent_1",
            "entry_version_id": "mem_ver_1"
        });
        let citation: MemoryCitation = serde_json::from_value(wire.clone()).expect("valid");
        assert!(citation.is_of_memory());
        assert_eq!(citation.memory_ref, memory_ref(Revision::new(3).expect("not zero")));
        assert_eq!(serde_json::to_value(&citation).expect("plain data"), wire);

        let mut open = wire.clone();
        open["more"] = json!(1);
        assert!(serde_json::from_value::<MemoryCitation>(open).is_err());
        let mut other = wire;
        other["memory_ref"]["family"] = json!("experience");
        let other: MemoryCitation = serde_json::from_value(other).expect("valid");
        assert!(!other.is_of_memory());
    }
}
