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
use crate::store::{Tx, TxError, cursors, memory_entries, sources};

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
    if let Some(step) = &write.cursor {
        lock_cursor(tx, &write.scope, step).await?;
    }
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

async fn lock_cursor(tx: &mut Tx, scope: &ScopeId, step: &CursorStep) -> Result<(), TxError> {
    if cursors::lock(tx, scope, &binding()).await? != step.from {
        return Err(TxError::Refused(FailCode::CursorChanged));
    }
    // Never back, and never past what was captured: a source that comes later must be read.
    if step.through < step.from.sequence || step.through > sources::head(tx, scope).await? {
        return Err(TxError::Refused(FailCode::Unhandled));
    }
    Ok(())
}

async fn write_plan(tx: &mut Tx, scope: &ScopeId, plan: &MemoryPlan) -> Result<(), TxError> {
    plan.check().map_err(|_| TxError::Refused(FailCode::Unhandled))?;
    let key = ArtifactKey::memory(scope);
    if artifacts::lock_head(tx, &key).await? != plan.expected_head {
        return Err(TxError::Refused(FailCode::HeadChanged));
    }
    artifacts::insert(tx, &key, plan.revision, &plan.content.encode()).await?;
    artifacts::add_lineage(tx, &key, plan.revision, &plan.lineage_sources, &plan.lineage_artifacts).await?;
    for version in &plan.new_versions {
        memory_entries::put(tx, scope, plan.revision, version).await?;
    }
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
