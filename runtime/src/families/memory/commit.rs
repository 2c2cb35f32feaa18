//! Writing what a run or a person decided about a Memory: revision, lineage, entry versions, their heads and the cursor,
//! inside a transaction of the caller.
//!
//! Nothing here decides. The cursor is compared with exactly what the window was read behind and the head with exactly
//! what the plan was made on (I1, I6); either one moved means that nothing is written. Locks cursor -> artifact head.

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::memory::{CursorStep, MemoryPlan, MemoryWrite};
use powercontext_core::refs::{Cursor, Position, Revision};

use crate::ledger::DomainWrite;
use crate::store::artifacts::{self, ArtifactKey};
use crate::store::error::corrupt;
use crate::store::{Tx, TxError, cursors, memory_entries, standing};

/// What a write left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The cursor as it stands now; `None` for a write without a step.
    pub cursor: Option<Cursor>,
    /// The revision that was made; `None` when only the cursor moved.
    pub revision: Option<Revision>,
}

/// Applies a write. It may come from another process, so its parts are proven to belong together first.
///
/// # Errors
/// [`TxError::Refused`] with `CursorChanged` or `HeadChanged` when somebody else was faster, with `Unhandled` when the
/// write contradicts itself or the journal; other [`TxError`]s of the database.
pub async fn apply(tx: &mut Tx, write: &MemoryWrite) -> Result<Applied, TxError> {
    lock(tx, write).await?;
    if let Some(plan) = &write.plan {
        write_plan(tx, &write.scope, plan).await?;
    }
    let cursor = match &write.cursor {
        None => None,
        Some(step) => Some(cursors::save(tx, &write.scope, &binding(), step.from, step.through).await?),
    };
    Ok(Applied {
        cursor,
        revision: write.plan.as_ref().map(|plan| plan.revision),
    })
}

pub(super) fn binding() -> BindingName {
    BindingName::parse(super::BINDING).expect("a constant of the right form")
}

/// Locks what the write changes and proves that nothing of it has moved.
async fn lock(tx: &mut Tx, write: &MemoryWrite) -> Result<(), TxError> {
    let memory = ArtifactKey::memory(&write.scope);
    match (&write.cursor, &write.plan) {
        (Some(step), Some(plan)) => {
            let standing = standing::lock(tx, &binding(), &memory).await?;
            check_cursor(step, standing.cursor, standing.journal_head)?;
            check_head(plan, standing.revision)
        }
        (Some(step), None) => {
            let (cursor, journal_head) = standing::lock_cursor(tx, &write.scope, &binding()).await?;
            check_cursor(step, cursor, journal_head)
        }
        (None, Some(plan)) => check_head(plan, artifacts::lock_head(tx, &memory).await?),
        (None, None) => Ok(()),
    }
}

fn check_cursor(step: &CursorStep, cursor: Cursor, journal_head: Position) -> Result<(), TxError> {
    if cursor != step.from {
        return Err(TxError::Refused(FailCode::CursorChanged));
    }
    // Never back, and never past what was captured: a source that comes later must be read.
    if step.through < step.from.sequence || step.through > journal_head {
        return Err(TxError::Refused(FailCode::Unhandled));
    }
    Ok(())
}

fn check_head(plan: &MemoryPlan, head: Option<Revision>) -> Result<(), TxError> {
    plan.check().map_err(|_| TxError::Refused(FailCode::Unhandled))?;
    if head == plan.expected_head {
        Ok(())
    } else {
        Err(TxError::Refused(FailCode::HeadChanged))
    }
}

async fn write_plan(tx: &mut Tx, scope: &ScopeId, plan: &MemoryPlan) -> Result<(), TxError> {
    let key = ArtifactKey::memory(scope);
    artifacts::insert(tx, &key, plan.revision, &plan.content.encode()).await?;
    artifacts::add_lineage(tx, &key, plan.revision, &plan.lineage_sources, &plan.lineage_artifacts).await?;
    memory_entries::put(tx, scope, plan.revision, &plan.new_versions).await?;
    artifacts::move_head(tx, &key, plan.expected_head, plan.revision).await
}

/// The last write of a run, in the transaction that ends it.
#[async_trait]
impl DomainWrite for MemoryWrite {
    async fn apply(&self, tx: &mut Tx) -> Result<Position, TxError> {
        let applied = apply(tx, self).await?;
        applied
            .cursor
            .map(|cursor| cursor.sequence)
            .ok_or_else(|| corrupt("cursor step"))
    }
}
