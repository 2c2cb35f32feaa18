//! The seam between HTTP and the use cases: one method a use case, plain views out, closed errors.
//!
//! Handlers know this trait and nothing of the ledger or the store; whoever implements it knows nothing of HTTP. Every
//! method must survive being dropped half-way, because a client that goes away drops its handler: a transaction runs
//! on a task of its own (`Db::tx`) and ends there.

use std::time::Duration;

use crate::telemetry::trace::Parent;
use async_trait::async_trait;
use powercontext_core::ids::{ScopeId, WorkId};
use powercontext_core::memory::MemoryCitation;
use powercontext_core::rate::{Decision, Quota};

mod views;

pub use views::{
    Capabilities, Captured, ChangesView, Check, CheckState, EntriesView, EntryRetirement, EntryRevision, EntryView,
    FlushStart, HitView, MutationView, NewEntry, NewSource, OperationCursor, OperationFilter, OperationPage,
    OperationProduct, OperationResult, OperationStatus, OperationView, RevisionView, Search, SearchMode, SearchView,
    Waited,
};

/// The use cases that the HTTP surface offers.
#[async_trait]
pub trait App: Send + Sync + 'static {
    /// Counts a request of `by` against its quota, or says how long there is no room for it. The count is that of the whole
    /// deployment, and its windows are those of the database's clock.
    async fn count_request(&self, by: Principal, quota: Quota) -> Result<Decision, AppError>;

    /// Stores one source and marks the families that will read it. A replay of the same source answers its position.
    async fn capture(&self, by: Principal, source: NewSource) -> Result<Captured, AppError>;

    /// Asks for the pending sources of a scope to be processed: creates the work item, joins a live one, or says why
    /// there is none. `parent` is the client's span.
    async fn flush_begin(
        &self,
        by: Principal,
        scope_id: &ScopeId,
        parent: Option<Parent>,
    ) -> Result<FlushStart, AppError>;

    /// Waits until the operation ends or `budget` is over. Looks once even when the budget is zero.
    async fn wait_operation(&self, id: WorkId, budget: Duration) -> Result<Waited, AppError>;

    /// One public operation. Internal kinds answer [`AppError::OperationNotFound`].
    async fn operation(&self, id: WorkId) -> Result<OperationView, AppError>;

    /// Public operations, newest first by (creation, id), at most `page.limit` of them.
    async fn list_operations(
        &self,
        filter: OperationFilter,
        page: OperationPage,
    ) -> Result<Vec<OperationView>, AppError>;

    /// Cancels an operation that still has the version its client saw.
    async fn cancel(&self, by: Principal, id: WorkId, expected_version: u64) -> Result<OperationView, AppError>;

    /// Queues a failed operation again, if it still has the version its client saw.
    async fn retry(&self, by: Principal, id: WorkId, expected_version: u64) -> Result<OperationView, AppError>;

    /// Adds a memory entry by hand.
    async fn remember(&self, by: Principal, entry: NewEntry) -> Result<MutationView, AppError>;

    /// Finds active entries.
    async fn search(&self, search: Search) -> Result<SearchView, AppError>;

    /// Every entry of a scope's Memory at its head; an unknown scope is empty.
    async fn list_entries(&self, scope_id: &ScopeId, include_inactive: bool) -> Result<EntriesView, AppError>;

    /// One exact entry version.
    async fn get_entry(&self, scope_id: &ScopeId, citation: &MemoryCitation) -> Result<EntryView, AppError>;

    /// Replaces kind and text of an entry; the citation must name the head revision.
    async fn revise(&self, by: Principal, revision: EntryRevision) -> Result<MutationView, AppError>;

    /// Makes an entry inactive; the citation must name the head revision.
    async fn retire(&self, by: Principal, retirement: EntryRetirement) -> Result<MutationView, AppError>;

    /// Revisions after `since` (exclusive, 0 and `None` are all), oldest first, each with its changes.
    async fn changes(&self, scope_id: &ScopeId, since: Option<u64>) -> Result<ChangesView, AppError>;

    /// The state of what this process needs. Answers within a few seconds whatever hangs.
    async fn readiness(&self) -> Vec<Check>;

    /// What this deployment can do.
    async fn capabilities(&self) -> Result<Capabilities, AppError>;

    /// Brings gauges up to date that are read only when somebody scrapes.
    async fn refresh_gauges(&self) {}
}

/// Who asks. Decided by the server alone; no header names a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Authentication is off.
    Local,
    /// The holder of the server's static token.
    ServerToken,
}

impl Principal {
    /// The bounded class, as stored.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::ServerToken => "service",
        }
    }

    /// The id inside the class, as stored.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::ServerToken => "server-token",
        }
    }
}

/// Why a use case did not happen. Carries nothing that a client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    /// No public operation has the id.
    #[error("no such operation")]
    OperationNotFound,
    /// The scope has no such artifact or revision.
    #[error("no such artifact or revision")]
    ArtifactNotFound,
    /// The Memory has no such entry or version.
    #[error("no such memory entry or version")]
    MemoryNotFound,
    /// The source id exists with other content or metadata.
    #[error("the source id is taken by other content")]
    SourceConflict,
    /// The citation or the expected revision is not the head.
    #[error("the revision is not the head")]
    RevisionConflict,
    /// The entry is inactive.
    #[error("the memory entry is inactive")]
    EntryInactive,
    /// The operation has another version, or its state does not allow the act.
    #[error("the operation's state or version does not allow this")]
    OperationConflict {
        /// The operation.
        id: WorkId,
        /// Its state now.
        status: OperationStatus,
        /// Its version now.
        actual_version: u64,
    },
    /// This deployment cannot do it.
    #[error("not supported by this deployment: {0}")]
    CapabilityNotSupported(&'static str),
    /// A member of the request breaks a rule that only the domain knows.
    #[error("{field}: {reason}")]
    Invalid {
        /// Name of the request member.
        field: &'static str,
        /// The rule, in words without the value.
        reason: &'static str,
    },
    /// Nothing is bound yet, or no more, or the database is away.
    #[error("not ready")]
    Unavailable,
    /// Too busy to try; the caller may come again.
    #[error("busy")]
    Busy {
        /// Whole seconds until another try makes sense, at least 1.
        retry_after_seconds: u32,
    },
    /// Anything unforeseen. Whoever returns it has logged the cause.
    #[error("internal error")]
    Internal,
}
