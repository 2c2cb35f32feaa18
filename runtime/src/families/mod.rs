//! Artifact families: what each processor does with its input.
//!
//! A family is data ([`FamilySpec`]) and one function ([`Family::run`]). It sees the world only through its
//! [`ProcessorHost`], which is a pipe in a child process and the store in the worker: it never holds a lease, a
//! connection or a clock, and it writes nothing itself. What it wants written it hands back in [`Done`]; the worker
//! commits that in the same fenced transaction that finishes the work item, or not at all (I1, I3).

pub mod host;
pub mod maintenance;
pub mod memory;
#[cfg(feature = "test-families")]
pub mod test_only;

use std::num::NonZeroU16;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::limits::PAYLOAD_BYTES_MAX;
use powercontext_core::refs::Position;
use powercontext_core::time::Span;
use powercontext_core::work::WorkResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::inference::Usage;
use crate::ledger::KindSpec;

pub use host::{Committed, DomainWrite, HostError, Load, Loaded, LoadedSource, ProcessorHost};
pub use host::{Reserve, Reserved, Search, SearchHit};

/// A family as the rest of the server knows it.
#[derive(Debug, Clone)]
pub struct FamilySpec {
    /// What the ledger knows of its work: kind, lane, binding, payload version, retry.
    pub work: KindSpec,
    /// Most runs at once: in one process (`single_node`), or in the deployment; `None` for no cap.
    pub workers_max: Option<NonZeroU16>,
    /// Longest run, from the hand-over to its end.
    pub timeout: Span,
    /// Whether a run calls a language model, so that an outage of the provider holds it back.
    pub needs_model: bool,
}

/// One family's processor.
#[async_trait]
pub trait Family: Send + Sync {
    /// What the family is.
    fn spec(&self) -> &FamilySpec;

    /// Processes one window of a scope and returns what to write. Dropping the future abandons the run without a trace.
    ///
    /// # Errors
    /// A [`FailCode`]; it decides the retry. [`FailCode::CancelRequested`] once `cancel` is raised.
    async fn run(&self, host: &dyn ProcessorHost, scope: &ScopeId, cancel: &Cancel) -> Result<Done, FailCode>;
}

/// Asks a run to end. Clones are the same request.
#[derive(Debug, Clone, Default)]
pub struct Cancel(CancellationToken);

impl Cancel {
    /// A request that nobody has raised yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises it, for good.
    pub fn raise(&self) {
        self.0.cancel();
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is raised.
    pub async fn raised(&self) {
        self.0.cancelled().await;
    }
}

/// Name of a run's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultCode {
    /// The window was consumed.
    Processed,
    /// Nothing was pending: the cursor stood at the journal head already.
    AlreadyCommitted,
    /// Rows that were over are deleted.
    Cleaned,
}

impl ResultCode {
    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::AlreadyCommitted => "already_committed",
            Self::Cleaned => "cleaned",
        }
    }
}

/// What a run leaves for the record: references and numbers, never content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// Its name.
    pub code: ResultCode,
    /// A JSON object of at most 16 KiB once encoded.
    pub payload: Value,
}

impl RunResult {
    /// Whether the payload is an object within [`PAYLOAD_BYTES_MAX`].
    pub fn fits(&self) -> bool {
        self.payload.is_object() && self.payload.to_string().len() <= PAYLOAD_BYTES_MAX
    }
}

impl From<RunResult> for WorkResult {
    fn from(result: RunResult) -> Self {
        Self {
            code: result.code.as_str(),
            payload: result.payload,
        }
    }
}

/// How far a run came. Reaching the head is what lets an intent become clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// Where the cursor stands once the write is committed.
    pub cursor: Position,
    /// The journal head that the run read after its claim.
    pub journal_head: Position,
}

/// A run that succeeded, waiting to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// What the finishing transaction writes; `None` when there is nothing to write.
    pub write: Option<DomainWrite>,
    /// What the work item keeps.
    pub result: RunResult,
    /// How far the run came.
    pub reached: Reached,
    /// What the model cost.
    pub usage: Usage,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_fits_up_to_16_kib_of_an_object() {
        // {"a":"…"} has 8 bytes around the text.
        for (bytes, fits) in [(16 * 1024 - 8, true), (16 * 1024 - 7, false)] {
            let result = RunResult {
                code: ResultCode::Processed,
                payload: json!({"a": "x".repeat(bytes)}),
            };
            assert_eq!(result.fits(), fits, "{bytes}");
        }
        let list = RunResult {
            code: ResultCode::Processed,
            payload: json!([1]),
        };
        assert!(!list.fits());
    }

    #[test]
    fn a_raised_cancel_is_seen_by_every_clone() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        assert!(!clone.is_raised());
        cancel.raise();
        assert!(clone.is_raised());
    }
}
