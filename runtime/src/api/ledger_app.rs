//! The use cases of the HTTP surface over the ledger and the Memory family.
//!
//! Nothing is decided here: a method calls one use case and turns its outcome into a view. Every transaction runs on a
//! task of its own, so a client that goes away in the middle loses nothing that was acknowledged.

mod convert;
mod gauges;
mod health;
mod surroundings;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use powercontext_core::digest::PrincipalKey;
use powercontext_core::ids::{ScopeId, SourceType, WorkId};
use powercontext_core::memory::citation::memory_ref;
use powercontext_core::memory::{Edit, MemoryCitation, Reason};
use powercontext_core::rate::{Decision, HTTP_POLICY, Quota};
use powercontext_core::refs::{Position, Revision, SourceRef};
use serde_json::json;

use crate::api::app::{
    App, AppError, Capabilities, Captured, ChangesView, Check, EntriesView, EntryRetirement, EntryRevision, EntryView,
    FlushStart, HitView, MutationView, NewEntry, NewSource, OperationFilter, OperationPage, OperationStatus,
    OperationView, Principal, RevisionView, Search, SearchMode, SearchView, Waited,
};
use crate::families::memory::{edit, read};
use crate::inference::readiness::Readiness;
use crate::ledger::{self, FlushRequest, Flushed, KindSpec, Ledger, PageRequest, Waiters};
use crate::store::acts::Actor;
use crate::store::rates::{self, Charge};
use crate::store::{TxError, TxName, cursors, sources};
use crate::telemetry::trace::Parent;
use convert::{edit_error, flush_error, operation_view, operator_error, tx_error};

pub use surroundings::{InFlight, Surroundings};

/// The application of a process that holds a ledger.
pub struct LedgerApp {
    ledger: Ledger,
    waiters: Waiters,
    memory: KindSpec,
    provider: Option<Arc<Readiness>>,
    around: Surroundings,
}

impl LedgerApp {
    /// An application; `provider` is the model of this process, `None` where no model is configured.
    pub fn new(
        ledger: Ledger,
        waiters: Waiters,
        memory: KindSpec,
        provider: Option<Arc<Readiness>>,
        around: Surroundings,
    ) -> Self {
        Self {
            ledger,
            waiters,
            memory,
            provider,
            around,
        }
    }

    /// Whether what is captured is extracted: here, or by Workers elsewhere.
    fn extracts(&self) -> bool {
        self.provider.is_some() || self.around.is_distributed()
    }

    /// Cursor and journal head of a scope's Memory.
    async fn pending(&self, scope: &ScopeId) -> Result<(Position, Position), TxError> {
        let key = Arc::new((scope.clone(), self.memory.binding.clone()));
        let pending = self.ledger.db().read_with(TxName::Load, &key, |tx, (scope, binding)| {
            Box::pin(async move {
                let cursor = cursors::get(tx, scope, binding).await?;
                Ok((cursor.sequence, sources::head(tx, scope).await?))
            })
        });
        pending.await
    }

    async fn idle(&self, scope: &ScopeId, cursor: Position) -> Result<FlushStart, AppError> {
        let memory = read::head(self.ledger.db(), scope).await.map_err(tx_error)?;
        Ok(FlushStart::Idle {
            cursor,
            memory: memory.map(memory_ref),
        })
    }

    async fn edit(&self, scope: &ScopeId, edit: Edit, reason: Option<Reason>) -> Result<MutationView, AppError> {
        let changed = edit::edit(self.ledger.db(), scope, edit, reason)
            .await
            .map_err(edit_error)?;
        let entry = EntryView {
            revision: changed.revision,
            entry: changed.entry,
        };
        Ok(MutationView {
            memory: memory_ref(changed.revision),
            entry: Some(entry),
        })
    }
}

/// A client, as its acts are recorded.
fn actor(by: Principal) -> Actor {
    Actor {
        kind: by.kind(),
        id: by.id(),
    }
}

#[async_trait]
impl App for LedgerApp {
    async fn count_request(&self, by: Principal, quota: Quota) -> Result<Decision, AppError> {
        let charge = Charge {
            principal: PrincipalKey::of(by.kind(), by.id()),
            policy: HTTP_POLICY,
            quota,
        };
        rates::charge(self.ledger.db(), charge).await.map_err(tx_error)
    }

    async fn capture(&self, _by: Principal, source: NewSource) -> Result<Captured, AppError> {
        let reference = SourceRef {
            name: SourceType::content(),
            source_id: source.source_id,
        };
        let new = ledger::NewSource::native(source.scope_id, reference.clone(), source.content, source.metadata);
        match ledger::capture(self.ledger.db(), new).await {
            Ok(captured) => {
                self.ledger.signals().pending.notify_waiters();
                Ok(Captured {
                    source: reference,
                    position: captured.position,
                })
            }
            Err(ledger::CaptureError::Conflict) => Err(AppError::SourceConflict),
            Err(ledger::CaptureError::Tx(error)) => Err(tx_error(error)),
        }
    }

    async fn flush_begin(
        &self,
        by: Principal,
        scope_id: &ScopeId,
        parent: Option<Parent>,
    ) -> Result<FlushStart, AppError> {
        if !self.extracts() {
            let (cursor, head) = self.pending(scope_id).await.map_err(tx_error)?;
            return if head <= cursor {
                self.idle(scope_id, cursor).await
            } else {
                Err(AppError::CapabilityNotSupported("extract"))
            };
        }
        let payload = json!({"requester": {"type": by.kind(), "id": by.id()}});
        #[cfg(feature = "next-version")]
        let payload = next_version(payload, self.memory.payload_version);
        let request = FlushRequest {
            kind: self.memory.kind.clone(),
            scope: scope_id.clone(),
            payload,
        };
        match self.ledger.flush_below(request, parent).await.map_err(flush_error)? {
            Flushed::Idle { cursor, .. } => self.idle(scope_id, cursor).await,
            Flushed::Blocked { head } => Ok(FlushStart::Blocked { id: head }),
            Flushed::Accepted { id, .. } => Ok(FlushStart::Admitted { id }),
        }
    }

    async fn wait_operation(&self, id: WorkId, budget: Duration) -> Result<Waited, AppError> {
        match self.waiters.wait(id, budget).await.map_err(tx_error)? {
            None => Err(AppError::OperationNotFound),
            Some(ledger::Waited::HeadFailed { head }) => Ok(Waited::HeadFailed { head }),
            Some(ledger::Waited::Seen(row)) => {
                let view = operation_view(&row)?;
                Ok(if view.status.is_terminal() {
                    Waited::Ended(view)
                } else {
                    Waited::Pending(view)
                })
            }
        }
    }

    async fn operation(&self, id: WorkId) -> Result<OperationView, AppError> {
        let row = self.ledger.operation(id).await.map_err(tx_error)?;
        operation_view(&row.ok_or(AppError::OperationNotFound)?)
    }

    async fn list_operations(
        &self,
        filter: OperationFilter,
        page: OperationPage,
    ) -> Result<Vec<OperationView>, AppError> {
        let request = PageRequest {
            scope: filter.scope_id,
            kind: filter.kind,
            status: filter.status.map(OperationStatus::wire),
            before: page.after.map(|cursor| (cursor.created_at, cursor.id)),
            limit: page.limit,
        };
        let page = self.ledger.operations(request).await.map_err(tx_error)?;
        page.rows.iter().map(operation_view).collect()
    }

    async fn cancel(&self, by: Principal, id: WorkId, expected_version: u64) -> Result<OperationView, AppError> {
        let cancelled = self.ledger.cancel_by(actor(by), id, expected_version).await;
        operation_view(&cancelled.map_err(operator_error)?)
    }

    async fn retry(&self, by: Principal, id: WorkId, expected_version: u64) -> Result<OperationView, AppError> {
        let revived = self.ledger.retry_by(actor(by), id, expected_version).await;
        operation_view(&revived.map_err(operator_error)?)
    }

    async fn remember(&self, _by: Principal, entry: NewEntry) -> Result<MutationView, AppError> {
        let NewEntry {
            scope_id,
            kind,
            text,
            reason,
            expected_revision,
        } = entry;
        self.edit(
            &scope_id,
            Edit::Remember {
                kind,
                text,
                expected: expected_revision,
            },
            reason,
        )
        .await
    }

    async fn search(&self, search: Search) -> Result<SearchView, AppError> {
        let found = read::search(self.ledger.db(), &search.scope_id, &search.query, search.limit).await;
        let found = found.map_err(|error| match error {
            read::SearchError::HeadMoves => AppError::RevisionConflict,
            read::SearchError::Tx(error) => tx_error(error),
        })?;
        let Some(revision) = found.revision else {
            return Ok(SearchView {
                memory: None,
                mode: None,
                hits: Vec::new(),
            });
        };
        match search.mode {
            SearchMode::Auto | SearchMode::Fts => {}
            SearchMode::Vector | SearchMode::Hybrid => {
                return Err(AppError::CapabilityNotSupported(search.mode.wire()));
            }
        }
        let matched_by = |rankings: Vec<read::Ranking>| rankings.iter().map(|_| SearchMode::Fts).collect();
        let hit = |hit: read::Hit| HitView {
            citation: hit.citation,
            text: hit.text,
            score: hit.score,
            matched_by: matched_by(hit.matched_by),
        };
        let hits = found.hits.into_iter().map(hit).collect();
        Ok(SearchView {
            memory: Some(memory_ref(revision)),
            mode: Some(SearchMode::Fts),
            hits,
        })
    }

    async fn list_entries(&self, scope_id: &ScopeId, include_inactive: bool) -> Result<EntriesView, AppError> {
        let found = read::entries(self.ledger.db(), scope_id, include_inactive)
            .await
            .map_err(tx_error)?;
        let entries = match found.revision {
            Some(revision) => found
                .entries
                .into_iter()
                .map(|entry| EntryView { revision, entry })
                .collect(),
            None => Vec::new(),
        };
        Ok(EntriesView {
            memory: found.revision.map(memory_ref),
            entries,
        })
    }

    async fn get_entry(&self, scope_id: &ScopeId, citation: &MemoryCitation) -> Result<EntryView, AppError> {
        let entry = read::entry(self.ledger.db(), scope_id, citation)
            .await
            .map_err(|error| match error {
                read::EntryError::NoMemory => AppError::ArtifactNotFound,
                read::EntryError::NoEntry => AppError::MemoryNotFound,
                read::EntryError::Tx(error) => tx_error(error),
            })?;
        Ok(EntryView {
            revision: citation.memory_ref.revision,
            entry,
        })
    }

    async fn revise(&self, _by: Principal, revision: EntryRevision) -> Result<MutationView, AppError> {
        let EntryRevision {
            scope_id,
            citation,
            kind,
            text,
            reason,
        } = revision;
        self.edit(&scope_id, Edit::Revise { citation, kind, text }, reason)
            .await
    }

    async fn retire(&self, _by: Principal, retirement: EntryRetirement) -> Result<MutationView, AppError> {
        let EntryRetirement {
            scope_id,
            citation,
            reason,
        } = retirement;
        self.edit(&scope_id, Edit::Retire { citation }, reason).await
    }

    async fn changes(&self, scope_id: &ScopeId, since: Option<u64>) -> Result<ChangesView, AppError> {
        let changes = read::changes(self.ledger.db(), scope_id, since.unwrap_or(0))
            .await
            .map_err(|error| match error {
                read::ChangesError::UnknownRevision => AppError::ArtifactNotFound,
                read::ChangesError::Tx(error) => tx_error(error),
            })?;
        let revision = |(at, changes): (Revision, _)| RevisionView {
            memory_ref: memory_ref(at),
            changes,
        };
        let revisions = changes.revisions.into_iter().map(revision).collect();
        Ok(ChangesView {
            memory: changes.revision.map(memory_ref),
            revisions,
        })
    }

    async fn readiness(&self) -> Vec<Check> {
        health::checks(&self.ledger, self.provider.as_deref(), &self.around).await
    }

    async fn refresh_gauges(&self) {
        let Some(metrics) = self.ledger.db().metrics() else {
            return;
        };
        gauges::refresh(&self.ledger, &self.around, metrics).await;
        metrics.set_ready(health::is_ready(&self.ledger, &self.around).await);
    }

    async fn capabilities(&self) -> Result<Capabilities, AppError> {
        Ok(Capabilities {
            source_types: vec!["content"],
            artifact_families: vec!["memory"],
            memory_extraction: self.extracts(),
            experience_generation: false,
            managed_skill_generation: false,
            external_skill_registry: false,
            handoff_generation: false,
            search_modes: vec![SearchMode::Auto, SearchMode::Fts],
        })
    }
}

/// What the next release of the tests writes from its second payload version on.
#[cfg(feature = "next-version")]
fn next_version(mut payload: serde_json::Value, version: u32) -> serde_json::Value {
    if version > 1 {
        payload["origin"] = "api".into();
    }
    payload
}
