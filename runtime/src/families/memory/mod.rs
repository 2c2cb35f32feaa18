//! The Memory family: one window of sources becomes the next revision of the scope's Memory.
//!
//! A run loads the window and the Memory's active entries, asks the model once, checks every citation, and plans. It
//! consumes its window whether or not anything new was said, so the cursor always moves by what was read. Where the
//! window ends follows from a budget of bytes as well as of sources: a request that no model can read would fail for
//! ever. Applying the plan is the worker's part.

pub mod commit;
pub mod edit;
mod extract;
pub mod load;
mod prompt;
pub mod read;

use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::memory::citation::memory_ref;
use powercontext_core::memory::plan::plan_candidates;
use powercontext_core::memory::{Candidate, CursorStep, MemoryPlan, MemoryWrite, PlanFault};
use powercontext_core::refs::{Position, Revision};
use powercontext_core::time::Span;
use powercontext_core::window::Window;
use powercontext_core::work::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::host::{LOAD_SOURCES_MAX, SourceUse};
use super::{
    Cancel, DomainWrite, Done, Family, FamilySpec, Load, Loaded, ProcessorHost, Reached, ResultCode, RunResult,
};
use crate::inference::{GenerationRequest, Generator, InferenceError, Usage};
use crate::ledger::KindSpec;
use crate::rt;

pub use extract::Invalid;
pub use prompt::Profile;

/// Name of the processor and of its cursor.
pub const BINDING: &str = "memory-source-window";

/// Share of the model's context window that input may fill, in percent; the rest is for instructions and the answer.
const INPUT_PERCENT: u64 = 80;
/// Bytes that a token takes at least, over the scripts seen; a CJK character is three bytes and about one token.
const BYTES_PER_TOKEN: u64 = 3;

/// What a deployment sets for Memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySettings {
    /// Instructions to use.
    pub profile: Profile,
    /// Most sources of one window, 1 to 100.
    pub window_sources_max: u32,
    /// Context window of the model, in tokens.
    pub context_window_tokens: u64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            profile: Profile::Coding,
            window_sources_max: LOAD_SOURCES_MAX,
            context_window_tokens: 125_000,
        }
    }
}

impl MemorySettings {
    /// Two thirds of the input for evidence, one third for entries.
    fn load(&self) -> Load {
        let bytes = self.context_window_tokens.saturating_mul(INPUT_PERCENT) / 100 * BYTES_PER_TOKEN;
        Load {
            sources_max: self.window_sources_max.clamp(1, LOAD_SOURCES_MAX),
            source_bytes_max: bytes / 3 * 2,
            entry_bytes_max: bytes / 3,
        }
    }
}

/// What Memory is to the rest of the server, before a deployment changes caps, timeout and retry.
pub fn spec() -> FamilySpec {
    FamilySpec {
        work: KindSpec::memory(RetryPolicy::BOUNDED),
        workers_max: None,
        timeout: Span::seconds(600),
        needs_model: true,
    }
}

/// The processor.
pub struct MemoryFamily {
    spec: FamilySpec,
    settings: MemorySettings,
    generator: Arc<dyn Generator>,
}

impl MemoryFamily {
    /// A processor that asks this model.
    pub fn new(spec: FamilySpec, settings: MemorySettings, generator: Arc<dyn Generator>) -> Self {
        Self {
            spec,
            settings,
            generator,
        }
    }

    /// Candidates of the evidence; none, without a model call, when the window holds nothing that a model may see.
    async fn extract(&self, loaded: &Loaded) -> Result<(Vec<Candidate>, Usage), FailCode> {
        let evidence: Vec<_> = loaded
            .sources
            .iter()
            .filter(|s| s.usage == SourceUse::Evidence)
            .collect();
        if evidence.is_empty() {
            return Ok((Vec::new(), Usage::default()));
        }
        let active = loaded.memory.as_ref().map_or(&[][..], |m| m.active.as_slice());
        let sources: Vec<_> = evidence.iter().map(|s| s.source.clone()).collect();
        let input = prompt::input(&evidence, active);
        let read = |value: &serde_json::Value| extract::candidates(value, &sources, active);
        let request = GenerationRequest {
            instructions: prompt::instructions(self.settings.profile),
            schema: prompt::schema(),
            input: &input,
            check: &|value| read(value).map(drop).map_err(Invalid::reason),
        };
        let answer = self
            .generator
            .generate(request)
            .await
            .map_err(InferenceError::fail_code)?;
        let candidates = read(&answer.value).map_err(|_| FailCode::ProviderInvalidOutput)?;
        Ok((candidates, answer.usage))
    }
}

#[async_trait]
impl Family for MemoryFamily {
    fn spec(&self) -> &FamilySpec {
        &self.spec
    }

    async fn run(&self, host: &dyn ProcessorHost, scope: &ScopeId, cancel: &Cancel) -> Result<Done, FailCode> {
        let loaded = host.load(self.settings.load()).await?;
        let Some(window) = loaded.window()? else {
            let revision = loaded.memory.as_ref().map(|m| m.revision);
            return Ok(nothing_pending(loaded.cursor.sequence, loaded.journal_head, revision));
        };
        let (candidates, usage) = tokio::select! {
            biased;
            () = cancel.raised() => return Err(FailCode::CancelRequested),
            extracted = self.extract(&loaded) => extracted?,
        };
        let lineage = loaded.sources.iter().map(|s| s.source.clone()).collect();
        let plan =
            plan_candidates(loaded.memory.as_ref(), candidates, lineage, &mut rt::random_bits).map_err(|fault| {
                match fault {
                    PlanFault::NotActive | PlanFault::RevisedTwice | PlanFault::Entry(_) => {
                        FailCode::ProviderInvalidOutput
                    }
                    PlanFault::Content(_) | PlanFault::Inconsistent => FailCode::Unhandled,
                }
            })?;
        Ok(processed(scope, &loaded, window, plan, usage))
    }
}

/// The end of a run that finds its cursor at the journal head already; `memory` is the head revision, if there is one.
fn nothing_pending(cursor: Position, journal_head: Position, memory: Option<Revision>) -> Done {
    Done {
        write: None,
        result: RunResult {
            code: ResultCode::AlreadyCommitted,
            payload: json!({
                "previous_cursor": cursor,
                "current_cursor": cursor,
                "high_watermark": journal_head.max(cursor),
                "source_count": 0,
                "memory_ref": memory.map(memory_ref),
            }),
        },
        reached: Reached { cursor, journal_head },
        usage: Usage::default(),
    }
}

fn processed(scope: &ScopeId, loaded: &Loaded, window: Window, plan: Option<MemoryPlan>, usage: Usage) -> Done {
    let head = plan.as_ref().map(|p| p.revision);
    let head = head.or(loaded.memory.as_ref().map(|m| m.revision));
    Done {
        result: RunResult {
            code: ResultCode::Processed,
            payload: json!({
                "previous_cursor": window.after,
                "current_cursor": window.through,
                "high_watermark": loaded.journal_head,
                "source_count": window.len(),
                "memory_ref": head.map(memory_ref),
            }),
        },
        reached: Reached {
            cursor: window.through,
            journal_head: loaded.journal_head,
        },
        write: Some(DomainWrite::Memory(MemoryWrite {
            scope: scope.clone(),
            cursor: Some(CursorStep {
                from: loaded.cursor,
                through: window.through,
            }),
            plan,
        })),
        usage,
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
