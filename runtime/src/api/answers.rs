//! JSON bodies of successful answers, exactly as closed as the contract says: official clients refuse a member that they
//! do not know, and miss a nullable one that is left out. Never add a member to an existing object.

use std::collections::BTreeMap;

use powercontext_core::ids::WorkId;
use powercontext_core::memory::{EntryChange, MemoryCitation};
use powercontext_core::refs::{ArtifactRef, Position, SourceRef};
use serde::Serialize;

use super::app::{
    Capabilities, Captured, ChangesView, EntriesView, EntryView, HitView, MutationView, OperationProduct,
    OperationResult, OperationView, RevisionView, SearchMode, SearchView,
};
use super::time::rfc3339;

/// 202 of a capture.
#[derive(Debug, Serialize)]
pub(crate) struct CapturedBody {
    status: &'static str,
    source: SourceRef,
    position: Position,
}

impl From<Captured> for CapturedBody {
    fn from(captured: Captured) -> Self {
        Self {
            status: "accepted",
            source: captured.source,
            position: captured.position,
        }
    }
}

/// 200 of a flush.
#[derive(Debug, Serialize)]
pub(crate) struct FlushedBody {
    status: &'static str,
    previous_cursor: Position,
    current_cursor: Position,
    high_watermark: Position,
    processed_source_count: u64,
    memory: Option<ArtifactRef>,
}

impl FlushedBody {
    /// Nothing lay beyond the cursor.
    pub(crate) fn idle(cursor: Position, memory: Option<ArtifactRef>) -> Self {
        Self {
            status: "idle",
            previous_cursor: cursor,
            current_cursor: cursor,
            high_watermark: cursor,
            processed_source_count: 0,
            memory,
        }
    }

    /// The operation that was waited for succeeded. `None` when its result is not of a Memory.
    pub(crate) fn of_result(result: OperationResult) -> Option<Self> {
        let OperationProduct::Memory(memory) = result.product else {
            return None;
        };
        let moved = result.current_cursor > result.previous_cursor;
        Some(Self {
            status: if moved { "processed" } else { "idle" },
            previous_cursor: result.previous_cursor,
            current_cursor: result.current_cursor,
            high_watermark: result.high_watermark,
            processed_source_count: result.processed_source_count,
            memory,
        })
    }
}

/// 202 of a flush.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptedBody {
    operation_id: WorkId,
    status: &'static str,
    status_url: String,
}

impl AcceptedBody {
    /// The operation goes on.
    pub(crate) fn of(operation: &OperationView) -> Self {
        Self {
            operation_id: operation.id,
            status: operation.status.wire(),
            status_url: format!("/v1/operations/{}", operation.id),
        }
    }

    /// Where to look, relative to the server.
    pub(crate) fn status_url(&self) -> &str {
        &self.status_url
    }
}

/// A Memory entry.
#[derive(Debug, Serialize)]
pub(crate) struct EntryBody {
    citation: MemoryCitation,
    version: u32,
    kind: String,
    text: String,
    state: &'static str,
    source_refs: Vec<SourceRef>,
    artifact_refs: Vec<ArtifactRef>,
}

impl From<EntryView> for EntryBody {
    fn from(view: EntryView) -> Self {
        let citation = MemoryCitation::of(view.revision, &view.entry);
        let entry = view.entry;
        Self {
            citation,
            version: entry.version,
            kind: entry.kind.into(),
            text: entry.text.into(),
            state: entry.state.as_str(),
            source_refs: entry.source_refs,
            artifact_refs: entry.artifact_refs,
        }
    }
}

/// The Memory after a change.
#[derive(Debug, Serialize)]
pub(crate) struct MutationBody {
    memory: ArtifactRef,
    entry: Option<EntryBody>,
}

impl From<MutationView> for MutationBody {
    fn from(view: MutationView) -> Self {
        Self {
            memory: view.memory,
            entry: view.entry.map(Into::into),
        }
    }
}

/// Entries of a scope.
#[derive(Debug, Serialize)]
pub(crate) struct EntriesBody {
    memory: Option<ArtifactRef>,
    entries: Vec<EntryBody>,
}

impl From<EntriesView> for EntriesBody {
    fn from(view: EntriesView) -> Self {
        Self {
            memory: view.memory,
            entries: view.entries.into_iter().map(Into::into).collect(),
        }
    }
}

/// What a search found.
#[derive(Debug, Serialize)]
pub(crate) struct SearchBody {
    memory: Option<ArtifactRef>,
    mode: Option<&'static str>,
    hits: Vec<HitBody>,
}

#[derive(Debug, Serialize)]
struct HitBody {
    citation: MemoryCitation,
    text: String,
    score: f64,
    matched_by: Vec<&'static str>,
}

impl From<SearchView> for SearchBody {
    fn from(view: SearchView) -> Self {
        Self {
            memory: view.memory,
            mode: view.mode.map(SearchMode::wire),
            hits: view.hits.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<HitView> for HitBody {
    fn from(hit: HitView) -> Self {
        Self {
            citation: hit.citation,
            text: hit.text,
            // JSON has no NaN, and clients refuse a score outside the range.
            score: if hit.score.is_nan() {
                0.0
            } else {
                hit.score.clamp(0.0, 1.0)
            },
            matched_by: hit.matched_by.into_iter().map(SearchMode::wire).collect(),
        }
    }
}

/// History of a Memory.
#[derive(Debug, Serialize)]
pub(crate) struct ChangesBody {
    memory: Option<ArtifactRef>,
    revisions: Vec<RevisionBody>,
}

#[derive(Debug, Serialize)]
struct RevisionBody {
    memory_ref: ArtifactRef,
    changes: Vec<EntryChange>,
}

impl From<ChangesView> for ChangesBody {
    fn from(view: ChangesView) -> Self {
        let body = |revision: RevisionView| RevisionBody {
            memory_ref: revision.memory_ref,
            changes: revision.changes,
        };
        Self {
            memory: view.memory,
            revisions: view.revisions.into_iter().map(body).collect(),
        }
    }
}

/// An operation.
#[derive(Debug, Serialize)]
pub(crate) struct OperationBody {
    operation_id: WorkId,
    kind: &'static str,
    scope_id: String,
    status: &'static str,
    attempt_count: u32,
    state_version: u64,
    created_at: String,
    updated_at: String,
    completed_at: Option<String>,
    result: Option<ResultBody>,
    error: Option<ErrorBody>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResultBody {
    MemoryFlush {
        #[serde(flatten)]
        cursors: CursorsBody,
        memory: Option<ArtifactRef>,
    },
    ExperienceIncubation {
        #[serde(flatten)]
        cursors: CursorsBody,
        candidate_count: u64,
    },
}

#[derive(Debug, Serialize)]
struct CursorsBody {
    previous_cursor: Position,
    high_watermark: Position,
    current_cursor: Position,
    processed_source_count: u64,
}

#[derive(Debug, Serialize)]
struct ErrorBody {
    category: &'static str,
    code: &'static str,
}

impl From<OperationView> for OperationBody {
    fn from(view: OperationView) -> Self {
        Self {
            operation_id: view.id,
            kind: view.kind.wire(),
            scope_id: view.scope_id.into(),
            status: view.status.wire(),
            attempt_count: view.attempt_count,
            state_version: view.state_version,
            created_at: rfc3339(view.created_at),
            updated_at: rfc3339(view.updated_at),
            completed_at: view.completed_at.map(rfc3339),
            result: view.result.map(Into::into),
            error: view.error.map(|code| ErrorBody {
                category: code.category(),
                code: code.code(),
            }),
        }
    }
}

impl From<OperationResult> for ResultBody {
    fn from(result: OperationResult) -> Self {
        let cursors = CursorsBody {
            previous_cursor: result.previous_cursor,
            high_watermark: result.high_watermark,
            current_cursor: result.current_cursor,
            processed_source_count: result.processed_source_count,
        };
        match result.product {
            OperationProduct::Memory(memory) => Self::MemoryFlush { cursors, memory },
            OperationProduct::ExperienceCandidates(candidate_count) => Self::ExperienceIncubation {
                cursors,
                candidate_count,
            },
        }
    }
}

/// A page of operations.
#[derive(Debug, Serialize)]
pub(crate) struct OperationsBody {
    items: Vec<OperationBody>,
    next_cursor: Option<String>,
}

impl OperationsBody {
    /// The page and where the next one starts.
    pub(crate) fn new(items: Vec<OperationView>, next_cursor: Option<String>) -> Self {
        Self {
            items: items.into_iter().map(Into::into).collect(),
            next_cursor,
        }
    }
}

/// What a deployment can do.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the contract lists five independent abilities"
)]
#[derive(Debug, Serialize)]
pub(crate) struct CapabilitiesBody {
    source_types: Vec<&'static str>,
    artifact_families: Vec<&'static str>,
    memory_extraction: bool,
    experience_generation: bool,
    managed_skill_generation: bool,
    external_skill_registry: bool,
    handoff_generation: bool,
    search_modes: Vec<&'static str>,
    context_versions: [&'static str; 1],
}

impl From<Capabilities> for CapabilitiesBody {
    fn from(view: Capabilities) -> Self {
        Self {
            source_types: view.source_types,
            artifact_families: view.artifact_families,
            memory_extraction: view.memory_extraction,
            experience_generation: view.experience_generation,
            managed_skill_generation: view.managed_skill_generation,
            external_skill_registry: view.external_skill_registry,
            handoff_generation: view.handoff_generation,
            search_modes: view.search_modes.into_iter().map(SearchMode::wire).collect(),
            context_versions: ["powercontext.prepared-context.v1"],
        }
    }
}

/// Readiness.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(crate) struct ReadinessBody {
    /// `ready`, `degraded` or `not_ready`.
    pub(crate) status: &'static str,
    /// Every check and its state.
    pub(crate) checks: BTreeMap<&'static str, &'static str>,
}
