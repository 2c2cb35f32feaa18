//! The planner: what the next revision of a Memory is, if anything changes at all.
//!
//! Planning is pure; ids come from the number supply that the caller hands in. A plan names the head it was made
//! against, and whoever commits it compares: when another writer was faster, the plan is thrown away and made anew. A
//! plan may have crossed a pipe, so [`MemoryPlan::check`] proves that its parts belong together before they are written.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{EntryId, EntryVersionId, ScopeId};
use crate::memory::citation::MemoryCitation;
use crate::memory::entry::{EntryContent, EntryFault, EntryKind, EntryState, EntryText, EntryVersion, Reason};
use crate::memory::manifest::{ChangeOp, ContentFault, EntryChange, ManifestEntry, MemoryContent};
use crate::refs::{ArtifactRef, Cursor, Position, Revision, SourceRef};

/// A Memory as it stands: its head revision, every entry's place, and the versions of active entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryHead {
    /// The head revision.
    pub revision: Revision,
    /// Every entry, retired ones included, in order of the bytes of its id.
    pub manifest: Vec<ManifestEntry>,
    /// Versions of active entries: all of them, or as many as the reader asked for, but always those to be changed.
    pub active: Vec<EntryVersion>,
}

/// One validated proposal of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The entry to revise; `None` to add one.
    pub revises: Option<EntryId>,
    /// What the entry is to state and cite.
    pub content: EntryContent,
    /// Why, in the model's words.
    pub reason: Option<Reason>,
}

/// A person's change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Remember something.
    Remember {
        /// Its kind.
        kind: EntryKind,
        /// Its text.
        text: EntryText,
        /// The head that the person saw, if they insist on it.
        expected: Option<Revision>,
    },
    /// State it otherwise.
    Revise {
        /// The entry as the person saw it.
        citation: MemoryCitation,
        /// New kind.
        kind: EntryKind,
        /// New text.
        text: EntryText,
    },
    /// No longer remember it.
    Retire {
        /// The entry as the person saw it.
        citation: MemoryCitation,
    },
}

/// The next revision of a Memory, ready to be written against the head it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPlan {
    /// The head that the plan was made against; `None` when there was no Memory.
    pub expected_head: Option<Revision>,
    /// The revision it makes: the one after `expected_head`.
    pub revision: Revision,
    /// Content of that revision; its bytes are [`MemoryContent::encode`].
    pub content: MemoryContent,
    /// Entry versions to insert; each is also the new head of its entry.
    pub new_versions: Vec<EntryVersion>,
    /// Sources of the revision, in order of their ordinals.
    pub lineage_sources: Vec<SourceRef>,
    /// Artifact revisions of the revision, in order of their ordinals.
    pub lineage_artifacts: Vec<ArtifactRef>,
}

/// The step of a cursor that goes with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CursorStep {
    /// The cursor that the window was read behind; compared exactly.
    pub from: Cursor,
    /// The position it moves to.
    pub through: Position,
}

/// Everything that one invocation or edit writes to the domain, in one transaction or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryWrite {
    /// The scope.
    pub scope: ScopeId,
    /// The step of the binding's cursor; `None` for a person's edit.
    pub cursor: Option<CursorStep>,
    /// The next revision; `None` when only the cursor moves.
    pub plan: Option<MemoryPlan>,
}

/// Why no plan could be made, or why one does not hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// A candidate revises an entry that is not active.
    #[error("a candidate revises an entry that is not active")]
    NotActive,
    /// Two candidates revise one entry.
    #[error("two candidates revise one entry")]
    RevisedTwice,
    /// Content cannot be put together.
    #[error(transparent)]
    Content(#[from] ContentFault),
    /// An entry cannot be put together.
    #[error(transparent)]
    Entry(#[from] EntryFault),
    /// A plan whose revision, content and versions contradict each other.
    #[error("the parts of the plan contradict each other")]
    Inconsistent,
}

/// Why a person's edit is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditRefused {
    /// The scope has no Memory, or the citation is of another artifact.
    #[error("no such Memory")]
    NoMemory,
    /// The Memory does not have this entry at this version.
    #[error("no such memory entry")]
    NoEntry,
    /// The citation or the expected revision is not of the current head.
    #[error("the Memory has another head")]
    RevisionConflict,
    /// The entry is retired.
    #[error("the memory entry is inactive")]
    Inactive,
    /// The Memory cannot hold the change.
    #[error(transparent)]
    Plan(#[from] PlanFault),
}

/// An accepted edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// What to write; `None` when the Memory already says exactly that.
    pub plan: Option<MemoryPlan>,
    /// The entry as it stands afterwards.
    pub entry: EntryVersion,
    /// The head revision afterwards.
    pub revision: Revision,
}

/// Plans the revision that a window's candidates make; `None` when every one of them states what the Memory already
/// states. `numbers` supplies 128 random bits per call.
///
/// A candidate that repeats an active entry is dropped; two that add the same statement become one with the references
/// of both. `window` becomes the lineage of the revision.
///
/// # Errors
/// [`PlanFault`] when a candidate revises what is not active or was revised, or the Memory is full.
pub fn plan_candidates(
    head: Option<&MemoryHead>,
    candidates: Vec<Candidate>,
    window: Vec<SourceRef>,
    numbers: &mut dyn FnMut() -> u128,
) -> Result<Option<MemoryPlan>, PlanFault> {
    let active = head.map_or(&[][..], |h| h.active.as_slice());
    let mut draft = Draft::on(head, numbers);
    let mut revised = BTreeSet::new();
    let mut added: Vec<(EntryContent, Option<Reason>)> = Vec::new();
    for Candidate {
        revises,
        content,
        reason,
    } in candidates
    {
        if let Some(id) = revises {
            let old = active.iter().find(|entry| entry.entry_id == id);
            let old = old.ok_or(PlanFault::NotActive)?;
            if !revised.insert(id) {
                return Err(PlanFault::RevisedTwice);
            }
            if !content.says_the_same_as(old) {
                draft.revise(old, content, reason);
            }
        } else if !active.iter().any(|entry| content.says_the_same_as(entry)) {
            let twin = added
                .iter_mut()
                .find_map(|(c, _)| c.merged_with(&content).map(|m| (c, m)));
            match twin {
                Some((place, merged)) => *place = merged,
                None => added.push((content, reason)),
            }
        }
    }
    for (content, reason) in added {
        draft.add(content, reason);
    }
    draft.finish(window)
}

/// Plans a person's edit. A new statement cites nothing: the sources of the old one do not say it.
///
/// # Errors
/// [`EditRefused`] in the order: no Memory, other head, no such entry, inactive entry.
pub fn plan_edit(
    head: Option<&MemoryHead>,
    edit: Edit,
    reason: Option<Reason>,
    numbers: &mut dyn FnMut() -> u128,
) -> Result<Edited, EditRefused> {
    let mut draft = Draft::on(head, numbers);
    let entry = match edit {
        Edit::Remember { kind, text, expected } => {
            if expected.is_some() && expected != head.map(|h| h.revision) {
                return Err(EditRefused::RevisionConflict);
            }
            let content = uncited(kind, text)?;
            let known = head.and_then(|h| h.active.iter().find(|entry| content.says_the_same_as(entry)));
            match known {
                Some(entry) => entry.clone(),
                None => draft.add(content, reason),
            }
        }
        Edit::Revise { citation, kind, text } => {
            let old = cited(head, &citation)?;
            let content = uncited(kind, text)?;
            if content.says_the_same_as(old) {
                old.clone()
            } else {
                draft.revise(old, content, reason)
            }
        }
        Edit::Retire { citation } => {
            let old = cited(head, &citation)?;
            draft.retire(old, reason)
        }
    };
    let plan = draft.finish(Vec::new())?;
    let revision = plan.as_ref().map(|p| p.revision).or(head.map(|h| h.revision));
    Ok(Edited {
        plan,
        entry,
        revision: revision.ok_or(EditRefused::NoMemory)?,
    })
}

fn uncited(kind: EntryKind, text: EntryText) -> Result<EntryContent, PlanFault> {
    Ok(EntryContent::new(kind, text, Vec::new(), Vec::new())?)
}

/// The active entry that a citation of the current head names.
fn cited<'h>(head: Option<&'h MemoryHead>, citation: &MemoryCitation) -> Result<&'h EntryVersion, EditRefused> {
    let head = head.filter(|_| citation.is_of_memory()).ok_or(EditRefused::NoMemory)?;
    if citation.memory_ref.revision != head.revision {
        return Err(EditRefused::RevisionConflict);
    }
    let place = head.manifest.iter().find(|e| e.entry_id == citation.entry_id);
    let place = place.filter(|e| e.entry_version_id == citation.entry_version_id);
    match place.ok_or(EditRefused::NoEntry)?.state {
        EntryState::Inactive => Err(EditRefused::Inactive),
        EntryState::Active => {
            let entry = head.active.iter().find(|e| e.version_id == citation.entry_version_id);
            entry.ok_or(EditRefused::NoEntry)
        }
    }
}

/// A revision in the making.
struct Draft<'a> {
    expected_head: Option<Revision>,
    manifest: BTreeMap<EntryId, ManifestEntry>,
    changes: Vec<EntryChange>,
    versions: Vec<EntryVersion>,
    numbers: &'a mut dyn FnMut() -> u128,
}

impl<'a> Draft<'a> {
    fn on(head: Option<&MemoryHead>, numbers: &'a mut dyn FnMut() -> u128) -> Self {
        let manifest = head.map_or(&[][..], |h| h.manifest.as_slice());
        Self {
            expected_head: head.map(|h| h.revision),
            manifest: manifest.iter().map(|e| (e.entry_id.clone(), e.clone())).collect(),
            changes: Vec::new(),
            versions: Vec::new(),
            numbers,
        }
    }

    fn version_id(&mut self) -> EntryVersionId {
        let id = format!("mem_ver_{:032x}", (self.numbers)());
        EntryVersionId::parse(id).expect("a prefix and 32 hex digits are an id")
    }

    fn put(&mut self, op: ChangeOp, version: EntryVersion, reason: Option<Reason>) -> EntryVersion {
        self.changes.push(EntryChange {
            op,
            entry_id: version.entry_id.clone(),
            from_entry_version_id: version.previous.clone(),
            to_entry_version_id: Some(version.version_id.clone()),
            reason,
        });
        self.manifest
            .insert(version.entry_id.clone(), ManifestEntry::of(&version));
        self.versions.push(version.clone());
        version
    }

    fn add(&mut self, content: EntryContent, reason: Option<Reason>) -> EntryVersion {
        let id = format!("mem_ent_{:032x}", (self.numbers)());
        let id = EntryId::parse(id).expect("a prefix and 32 hex digits are an id");
        let version = EntryVersion::first(id, self.version_id(), content);
        self.put(ChangeOp::Add, version, reason)
    }

    fn revise(&mut self, old: &EntryVersion, content: EntryContent, reason: Option<Reason>) -> EntryVersion {
        let version = old.revised(self.version_id(), content);
        self.put(ChangeOp::Revise, version, reason)
    }

    fn retire(&mut self, old: &EntryVersion, reason: Option<Reason>) -> EntryVersion {
        let version = old.retired(self.version_id());
        self.put(ChangeOp::Deactivate, version, reason)
    }

    fn finish(self, lineage_sources: Vec<SourceRef>) -> Result<Option<MemoryPlan>, PlanFault> {
        if self.changes.is_empty() {
            return Ok(None);
        }
        Ok(Some(MemoryPlan {
            expected_head: self.expected_head,
            revision: Revision::after(self.expected_head),
            content: MemoryContent::new(self.manifest.into_values().collect(), self.changes)?,
            new_versions: self.versions,
            lineage_sources,
            lineage_artifacts: Vec::new(),
        }))
    }
}

impl MemoryPlan {
    /// Proves that a plan from another process holds together: the revision follows its head, every hash is that of its
    /// content, and manifest, changes and versions speak of the same entries.
    ///
    /// # Errors
    /// [`PlanFault::Inconsistent`] otherwise.
    pub fn check(&self) -> Result<(), PlanFault> {
        let follows = self.revision == Revision::after(self.expected_head) && !self.new_versions.is_empty();
        let changes = self.content.changes();
        let told = changes.len() == self.new_versions.len()
            && self.new_versions.iter().zip(changes).all(|(version, change)| {
                version.is_intact()
                    && self.content.entry(&version.entry_id) == Some(&ManifestEntry::of(version))
                    && change.entry_id == version.entry_id
                    && change.from_entry_version_id == version.previous
                    && change.to_entry_version_id.as_ref() == Some(&version.version_id)
            });
        if follows && told {
            Ok(())
        } else {
            Err(PlanFault::Inconsistent)
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
