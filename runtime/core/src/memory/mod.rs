//! What a Memory is, and every decision about one: entries, revisions, plans, search tokens.
//!
//! A scope has one Memory artifact. Its revisions are immutable; each names every entry with the exact version it
//! stands at ([`manifest`]), and what changed since the revision before. [`plan`] turns candidates of a model or an edit
//! of a person into the next revision, or finds that nothing changes. Nothing here reads a database or a clock, so the
//! same plan can be made in a child process and checked by the worker that commits it.

pub mod analyzer;
pub mod canonical;
pub mod citation;
pub mod entry;
pub mod manifest;
pub mod plan;

pub use citation::MemoryCitation;
pub use entry::{ContentHash, EntryContent, EntryFault, EntryKind, EntryState, EntryText, EntryVersion, Reason};
pub use manifest::{ChangeOp, ContentFault, EntryChange, ManifestEntry, MemoryContent};
pub use plan::{Candidate, CursorStep, Edit, EditRefused, Edited, MemoryHead, MemoryPlan, MemoryWrite, PlanFault};
