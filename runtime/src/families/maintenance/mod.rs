//! Maintenance: a family of the system, supervised and run like the others, with one scope and no input of its own.
//!
//! It is the one processor that touches the database itself, because that is all its work is: it always runs in the worker's
//! own process, under the worker's account, and never in a child. A run deletes batch after batch until nothing is left or
//! [`RUN_MAX`] is over; what is left then is due at once. No client sees it.

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::refs::Position;
use powercontext_core::time::Span;
use serde_json::json;

use super::{Cancel, Done, Family, FamilySpec, ProcessorHost, Reached, ResultCode, RunResult};
use crate::inference::Usage;
use crate::ledger::{Cleaned, KindSpec, Upkeep, maintain};
use crate::rt;
use crate::store::Db;

/// Longest run that goes on by itself.
const RUN_MAX: Span = Span::seconds(60);
/// Longest run at all: the last batch may wait for the database.
const TIMEOUT: Span = Span::seconds(180);

/// The one scope of the system's work.
pub fn scope() -> ScopeId {
    ScopeId::parse("system:operations").expect("a constant of the right form")
}

/// What maintenance is to the rest of the server.
pub fn spec() -> FamilySpec {
    FamilySpec {
        work: KindSpec::maintenance(),
        workers_max: std::num::NonZeroU16::new(1),
        timeout: TIMEOUT,
        needs_model: false,
    }
}

/// The processor.
pub struct MaintenanceFamily {
    spec: FamilySpec,
    db: Db,
    upkeep: Upkeep,
}

impl MaintenanceFamily {
    /// A processor that keeps things as long as this says.
    pub fn new(db: Db, upkeep: Upkeep) -> Self {
        Self {
            spec: spec(),
            db,
            upkeep,
        }
    }
}

#[async_trait]
impl Family for MaintenanceFamily {
    fn spec(&self) -> &FamilySpec {
        &self.spec
    }

    async fn run(&self, _host: &dyn ProcessorHost, _scope: &ScopeId, cancel: &Cancel) -> Result<Done, FailCode> {
        let until = rt::now() + RUN_MAX.as_std();
        let (mut cleaned, mut place) = (Cleaned::default(), None);
        let is_clean = loop {
            if cancel.is_raised() {
                return Err(FailCode::CancelRequested);
            }
            let batch = maintain(&self.db, self.upkeep, &mut place).await.map_err(|error| {
                tracing::warn!(error = %error, "rows that are over could not be deleted");
                FailCode::Unhandled
            })?;
            if batch.is_nothing() {
                break true;
            }
            cleaned = cleaned.and(batch);
            if rt::now() >= until {
                break false;
            }
        };
        // What is left keeps the intent dirty, and that makes the next run due.
        let left = u64::from(!is_clean);
        Ok(Done {
            write: None,
            result: RunResult {
                code: ResultCode::Cleaned,
                payload: json!({
                    "operations_deleted": cleaned.operations,
                    "rate_limit_windows_deleted": cleaned.rate_limit_windows,
                    "attempts_deleted": cleaned.attempts,
                    "members_deleted": cleaned.members,
                }),
            },
            reached: Reached {
                cursor: Position::new(0),
                journal_head: Position::new(left),
            },
            usage: Usage::default(),
        })
    }
}
