//! The only door of family code: what a run may ask of the world, and the answers.
//!
//! Every argument and answer can be written to a pipe; none may take more than [`MESSAGE_BYTES_MAX`] there. The host
//! knows scope, binding and lease of its run, so a request names none of them and cannot reach another scope. In the
//! worker the host is the store; in a child it is the pipe to that worker.

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::memory::{MemoryCitation, MemoryHead, MemoryWrite};
use powercontext_core::refs::{Cursor, Position, SourceRef};
use powercontext_core::window::Window;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Largest encoded request or answer, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most sources of one load.
pub const LOAD_SOURCES_MAX: u32 = 100;

/// Asks for the next window of the run's scope, and for the artifacts that it would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Most sources, 1 to [`LOAD_SOURCES_MAX`].
    pub sources_max: u32,
    /// Most bytes of encoded source content together. A window ends before the source that would pass it; the first source
    /// is always answered.
    pub source_bytes_max: u64,
    /// Most bytes of active entries' text together. The most recently changed are answered.
    pub entry_bytes_max: u64,
}

/// What a model may do with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceUse {
    /// Shown to the model, and citable.
    Evidence,
    /// Kept for lineage: consumed with its window, never shown.
    LineageOnly,
}

/// One source of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedSource {
    /// Its place in the journal.
    pub position: Position,
    /// What it is called.
    pub source: SourceRef,
    /// What a model may do with it.
    pub usage: SourceUse,
    /// Its content as the model sees it: for a content source `{content, metadata?}`. Null when it is lineage only.
    pub content: Value,
}

/// Answer to [`Load`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// The cursor of the binding; the final write must move exactly this one.
    pub cursor: Cursor,
    /// The journal head, read after the claim.
    pub journal_head: Position,
    /// The next sources behind the cursor, in order, without a hole.
    pub sources: Vec<LoadedSource>,
    /// The scope's Memory, if there is one.
    pub memory: Option<MemoryHead>,
}

impl Loaded {
    /// The window that the sources make; `None` when nothing is pending.
    ///
    /// # Errors
    /// [`FailCode::SourceWindowUnavailable`] when sources that the journal counts are missing or out of order.
    pub fn window(&self) -> Result<Option<Window>, FailCode> {
        let after = self.cursor.sequence;
        if self.journal_head <= after {
            return Ok(None);
        }
        let mut through = after;
        for source in &self.sources {
            if source.position != through.next() {
                return Err(FailCode::SourceWindowUnavailable);
            }
            through = source.position;
        }
        if through == after || through > self.journal_head {
            return Err(FailCode::SourceWindowUnavailable);
        }
        Ok(Some(Window { after, through }))
    }
}

/// Searches the artifacts of the run's scope and family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Free text, 1 to 8192 characters.
    pub query: String,
    /// Most hits, 1 to 50.
    pub limit: u32,
}

/// One hit of a [`Search`], best first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchHit {
    /// What was found.
    pub citation: MemoryCitation,
    /// Its text.
    pub text: String,
    /// 0 to 1; larger is better.
    pub score: f64,
}

/// Books provider spending before it happens. What is booked is never given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// Provider requests.
    pub requests: u32,
    /// Tokens, in and out.
    pub tokens: u64,
}

/// Answer to [`Reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserved {
    /// Booked.
    Granted,
    /// The allowance of this window is spent.
    Exhausted,
}

/// What one transaction writes for a family, fenced by the run's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainWrite {
    /// A step of the memory cursor, with the next Memory revision if there is one.
    Memory(MemoryWrite),
    /// A step of the cursor of a family that only tests have.
    #[cfg(feature = "test-families")]
    TestOnly(crate::families::test_only::Step),
}

/// A window that is committed before the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Committed {
    /// The cursor as it stands now.
    pub cursor: Cursor,
}

/// Why the host did not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum HostError {
    /// Another writer moved the cursor or the head; the window must be planned anew.
    #[error("another writer was faster")]
    Conflict(FailCode),
    /// The answer is no, for good: rows are missing, or the request breaks a limit.
    #[error("refused")]
    Refused(FailCode),
    /// The run no longer holds its item; nothing it writes will count.
    #[error("the lease is lost")]
    LeaseLost,
    /// An operator asked for the end of the run.
    #[error("the run is to end")]
    Cancelled,
    /// The store or the pipe to it does not answer.
    #[error("the store is unavailable")]
    Unavailable,
}

impl HostError {
    /// How a run that cannot go on ends.
    pub const fn fail_code(self) -> FailCode {
        match self {
            Self::Conflict(code) | Self::Refused(code) => code,
            Self::LeaseLost => FailCode::LeaseExpired,
            Self::Cancelled => FailCode::CancelRequested,
            Self::Unavailable => FailCode::Unhandled,
        }
    }
}

impl From<HostError> for FailCode {
    fn from(error: HostError) -> Self {
        error.fail_code()
    }
}

/// What a run can ask for.
#[async_trait]
pub trait ProcessorHost: Send + Sync {
    /// Reads the next window and the artifacts it would change, in one snapshot.
    async fn load(&self, request: Load) -> Result<Loaded, HostError>;

    /// Searches the scope's artifacts of the family.
    async fn search(&self, request: Search) -> Result<Vec<SearchHit>, HostError>;

    /// Books provider spending, durably, before the provider is asked.
    async fn reserve(&self, request: Reserve) -> Result<Reserved, HostError>;

    /// Commits a window that is not the last of its run. The last one goes into [`super::Done`] instead.
    async fn commit_window(&self, write: DomainWrite) -> Result<Committed, HostError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use powercontext_core::ids::{SourceId, SourceType};

    fn loaded(after: u64, head: u64, positions: &[u64]) -> Loaded {
        let source = |at: &u64| LoadedSource {
            position: Position::new(*at),
            source: SourceRef {
                name: SourceType::content(),
                source_id: SourceId::parse(at.to_string()).expect("digits"),
            },
            usage: SourceUse::Evidence,
            content: Value::Null,
        };
        Loaded {
            cursor: Cursor {
                sequence: Position::new(after),
                generation: None,
            },
            journal_head: Position::new(head),
            sources: positions.iter().map(source).collect(),
            memory: None,
        }
    }

    #[test]
    fn a_window_is_what_lies_behind_the_cursor_without_a_hole() {
        for (after, head, positions, expected) in [
            (0, 0, &[][..], Ok(None)),
            (5, 5, &[], Ok(None)),
            (5, 4, &[], Ok(None)),
            (0, 3, &[1, 2, 3], Ok(Some(3))),
            (0, 9, &[1, 2], Ok(Some(2))),
            (4, 9, &[5], Ok(Some(5))),
            (0, 3, &[], Err(FailCode::SourceWindowUnavailable)),
            (0, 3, &[1, 3], Err(FailCode::SourceWindowUnavailable)),
            (0, 3, &[2, 3], Err(FailCode::SourceWindowUnavailable)),
            (0, 3, &[2, 1], Err(FailCode::SourceWindowUnavailable)),
            (0, 3, &[1, 1], Err(FailCode::SourceWindowUnavailable)),
            (0, 1, &[1, 2], Err(FailCode::SourceWindowUnavailable)),
        ] {
            let window = loaded(after, head, positions).window();
            let through = window.map(|w| w.map(|w| w.through.get()));
            assert_eq!(through, expected, "({after}, {head}] {positions:?}");
        }
    }

    #[test]
    fn every_answer_crosses_a_pipe_unchanged() {
        let answer = loaded(4, 9, &[5, 6]);
        let text = serde_json::to_string(&answer).expect("plain data");
        assert_eq!(serde_json::from_str::<Loaded>(&text).expect("same form"), answer);
        for error in [
            HostError::Conflict(FailCode::CursorChanged),
            HostError::Refused(FailCode::SourceWindowUnavailable),
            HostError::LeaseLost,
            HostError::Cancelled,
            HostError::Unavailable,
        ] {
            let text = serde_json::to_string(&error).expect("plain data");
            assert_eq!(serde_json::from_str::<HostError>(&text).expect("same form"), error);
        }
    }
}
