//! What goes in and out of the use cases: plain values, without HTTP and without rows.
//!
//! Requests are already checked when they get here; views hold everything a response shows and nothing more.

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, SourceId, WorkId};
use powercontext_core::memory::{EntryChange, EntryKind, EntryText, EntryVersion, MemoryCitation, Reason};
use powercontext_core::operation::OperationKind;
use powercontext_core::refs::{ArtifactRef, Position, Revision, SourceRef};
use powercontext_core::time::DbTime;
use serde_json::{Map, Value};

/// A source to store.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSource {
    /// The scope.
    pub scope_id: ScopeId,
    /// Its id.
    pub source_id: SourceId,
    /// 1 to 200,000 characters.
    pub content: String,
    /// Any JSON object; `None` differs from an empty one.
    pub metadata: Option<Map<String, Value>>,
}

/// A stored source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The source.
    pub source: SourceRef,
    /// Its place in the scope's journal.
    pub position: Position,
}

/// What a flush request led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlushStart {
    /// No source lies beyond the cursor.
    Idle {
        /// The cursor, which is the journal's head too.
        cursor: Position,
        /// The Memory's head, if there is one.
        memory: Option<ArtifactRef>,
    },
    /// A failed operation holds the lane; nothing was changed.
    Blocked {
        /// The failed operation.
        id: WorkId,
    },
    /// The operation that will cover the pending sources.
    Admitted {
        /// Its id.
        id: WorkId,
    },
}

/// How waiting for an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The operation is terminal.
    Ended(OperationView),
    /// The budget is over and the operation is not.
    Pending(OperationView),
    /// The operation waits behind one that has failed; it runs after an operator acts.
    HeadFailed {
        /// The failed operation.
        head: WorkId,
    },
}

/// Public state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationStatus {
    /// Waits for its first attempt.
    Queued,
    /// A worker holds it.
    Running,
    /// Waits for another attempt.
    RetryWait,
    /// A worker holds it and its end was asked for.
    Cancelling,
    /// Committed.
    Succeeded,
    /// Holds its lane until an operator acts.
    Failed,
    /// Ended by an operator.
    Cancelled,
}

impl OperationStatus {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::RetryWait,
        Self::Cancelling,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name on the wire and in rows.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::RetryWait => "retry_wait",
            Self::Cancelling => "cancelling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the wire name.
    pub fn from_wire(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.wire() == name)
    }

    /// Whether nothing but an operator changes it any more.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A public operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationView {
    /// Its id.
    pub id: WorkId,
    /// What it does.
    pub kind: OperationKind,
    /// Whose sources it reads.
    pub scope_id: ScopeId,
    /// Its state.
    pub status: OperationStatus,
    /// Attempts so far.
    pub attempt_count: u32,
    /// The value for `expected_version`.
    pub state_version: u64,
    /// When it was created.
    pub created_at: DbTime,
    /// When its state last changed.
    pub updated_at: DbTime,
    /// When it became terminal.
    pub completed_at: Option<DbTime>,
    /// What it did; `None` until success.
    pub result: Option<OperationResult>,
    /// Why it failed or waits.
    pub error: Option<FailCode>,
}

/// What a successful operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationResult {
    /// Cursor before.
    pub previous_cursor: Position,
    /// Journal head that the run read.
    pub high_watermark: Position,
    /// Cursor after.
    pub current_cursor: Position,
    /// Sources between the two cursors.
    pub processed_source_count: u64,
    /// The part that depends on the kind.
    pub product: OperationProduct,
}

/// What an operation produced, by kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationProduct {
    /// The Memory's head after the run, if there is one.
    Memory(Option<ArtifactRef>),
    /// Number of Experience candidates proposed.
    ExperienceCandidates(u64),
}

/// Which operations to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationFilter {
    /// Of one scope.
    pub scope_id: Option<ScopeId>,
    /// Of one kind; `None` is every public kind.
    pub kind: Option<OperationKind>,
    /// In one state.
    pub status: Option<OperationStatus>,
}

/// Which stretch of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationPage {
    /// Items strictly after this one; `None` starts with the newest.
    pub after: Option<OperationCursor>,
    /// Most items, 1 to 100.
    pub limit: u32,
}

/// Place of an operation in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationCursor {
    /// Its creation.
    pub created_at: DbTime,
    /// Its id.
    pub id: WorkId,
}

/// An entry to add by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    /// The scope.
    pub scope_id: ScopeId,
    /// Its kind.
    pub kind: EntryKind,
    /// Its text, normalised.
    pub text: EntryText,
    /// Why.
    pub reason: Option<Reason>,
    /// Revision that must be the head.
    pub expected_revision: Option<Revision>,
}

/// New kind and text of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRevision {
    /// The scope.
    pub scope_id: ScopeId,
    /// The version to replace.
    pub citation: MemoryCitation,
    /// Its kind.
    pub kind: EntryKind,
    /// Its text, normalised.
    pub text: EntryText,
    /// Why.
    pub reason: Option<Reason>,
}

/// An entry to make inactive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRetirement {
    /// The scope.
    pub scope_id: ScopeId,
    /// The version to retire.
    pub citation: MemoryCitation,
    /// Why.
    pub reason: Option<Reason>,
}

/// An entry version as it stands at a revision of the Memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryView {
    /// The revision.
    pub revision: Revision,
    /// The version.
    pub entry: EntryVersion,
}

/// The Memory after a change, and the changed entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutationView {
    /// The new head.
    pub memory: ArtifactRef,
    /// The entry; `None` when the change left none.
    pub entry: Option<EntryView>,
}

/// Entries of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntriesView {
    /// The head; `None` without Memory.
    pub memory: Option<ArtifactRef>,
    /// The entries.
    pub entries: Vec<EntryView>,
}

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SearchMode {
    /// The best this deployment has.
    Auto,
    /// Words.
    Fts,
    /// Embeddings.
    Vector,
    /// Both.
    Hybrid,
}

impl SearchMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Fts, Self::Vector, Self::Hybrid];

    /// The name on the wire.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fts => "fts",
            Self::Vector => "vector",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A search in one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// The scope.
    pub scope_id: ScopeId,
    /// 1 to 8192 characters.
    pub query: String,
    /// Most hits, 1 to 50.
    pub limit: u32,
    /// How.
    pub mode: SearchMode,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchView {
    /// The revision that was searched; `None` without Memory.
    pub memory: Option<ArtifactRef>,
    /// The mode that was used, never `Auto`; `None` without Memory.
    pub mode: Option<SearchMode>,
    /// Best first.
    pub hits: Vec<HitView>,
}

/// One hit.
#[derive(Debug, Clone, PartialEq)]
pub struct HitView {
    /// The entry version.
    pub citation: MemoryCitation,
    /// Its text.
    pub text: String,
    /// 0 to 1.
    pub score: f64,
    /// Which rankings held it: `Fts`, `Vector`.
    pub matched_by: Vec<SearchMode>,
}

/// History of a Memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangesView {
    /// The head; `None` without Memory.
    pub memory: Option<ArtifactRef>,
    /// Oldest first.
    pub revisions: Vec<RevisionView>,
}

/// One revision and what it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionView {
    /// The revision.
    pub memory_ref: ArtifactRef,
    /// Its changes.
    pub changes: Vec<EntryChange>,
}

/// One readiness check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Its name, such as `database` or `inference.generation`.
    pub name: &'static str,
    /// What was found.
    pub state: CheckState,
    /// Whether the process is useless while it is not ready; else it is degraded.
    pub blocking: bool,
}

/// Result of a readiness check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckState {
    /// Works.
    Ready,
    /// Does not answer or answers with an error.
    Unavailable,
    /// Did not answer in time.
    Timeout,
    /// Works but does not fit this deployment.
    Misconfigured,
    /// Not opened yet, or closed.
    NotReady,
}

impl CheckState {
    /// The name on the wire.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Misconfigured => "misconfigured",
            Self::NotReady => "not_ready",
        }
    }
}

/// What a deployment can do.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the contract lists five independent abilities"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Source types that can be captured.
    pub source_types: Vec<&'static str>,
    /// Families that it knows.
    pub artifact_families: Vec<&'static str>,
    /// Whether a flush can be processed.
    pub memory_extraction: bool,
    /// Whether Experience can be generated on request.
    pub experience_generation: bool,
    /// Whether Skills can be generated on request.
    pub managed_skill_generation: bool,
    /// Whether host-local Skills are registered.
    pub external_skill_registry: bool,
    /// Whether Handoffs can be generated on request.
    pub handoff_generation: bool,
    /// Search modes.
    pub search_modes: Vec<SearchMode>,
}
