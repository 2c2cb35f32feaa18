//! A person's edit of a Memory: remember, revise or retire one entry. One transaction around the core's decision.
//!
//! An edit may run more than once: when another writer was faster, or when the reply to its commit was lost. Its ids come
//! from one number drawn before the first run, so a later run finds what an earlier one wrote instead of writing it twice
//! (I1). Locks the artifact head; the cursor and the intents have no part in it.

use std::sync::{Arc, OnceLock};

use powercontext_core::fail::FailCode;
use powercontext_core::ids::{EntryVersionId, ScopeId};
use powercontext_core::memory::plan::plan_edit;
use powercontext_core::memory::{
    Edit, EditRefused, Edited, EntryState, EntryVersion, ManifestEntry, MemoryCitation, MemoryHead, MemoryWrite, Reason,
};
use powercontext_core::refs::Revision;

use super::commit::apply;
use super::read::head_content;
use crate::rt;
use crate::store::artifacts::{self, ArtifactKey};
use crate::store::error::corrupt;
use crate::store::{Db, Tx, TxError, TxName, memory_entries};

/// How often an edit is run in all.
const RUNS_MAX: u32 = 4;

/// What an edit led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The current revision afterwards; the one before when the Memory said exactly that already.
    pub revision: Revision,
    /// The entry as it stands there.
    pub entry: EntryVersion,
}

/// An edit that did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The Memory does not allow it.
    #[error(transparent)]
    Refused(#[from] EditRefused),
    /// The database.
    #[error(transparent)]
    Tx(#[from] TxError),
}

struct Job {
    scope: ScopeId,
    edit: Edit,
    reason: Option<Reason>,
    /// Ids of the edit count up from here.
    seed: u128,
    /// The version that an earlier run tried to write.
    tried: OnceLock<EntryVersionId>,
}

/// Makes an edit. It survives being dropped: the transaction goes on and ends on its own task.
///
/// # Errors
/// [`EditError`]; nothing was written, unless the outcome stays [`TxError::Unknown`] run after run.
pub async fn edit(db: &Db, scope: &ScopeId, edit: Edit, reason: Option<Reason>) -> Result<Changed, EditError> {
    let job = Arc::new(Job {
        scope: scope.clone(),
        edit,
        reason,
        seed: rt::random_bits(),
        tried: OnceLock::new(),
    });
    let mut runs = 1;
    loop {
        match db.tx_with(TxName::Edit, &job, |tx, job| Box::pin(run(tx, job))).await {
            Err(TxError::Unknown | TxError::Refused(FailCode::HeadChanged)) if runs < RUNS_MAX => runs += 1,
            Err(error) => return Err(error.into()),
            Ok(changed) => return Ok(changed?),
        }
    }
}

async fn run(tx: &mut Tx, job: &Job) -> Result<Result<Changed, EditRefused>, TxError> {
    // Waits for a commit of an earlier run that may still be on its way.
    artifacts::lock_head(tx, &ArtifactKey::memory(&job.scope)).await?;
    if let Some(changed) = written_before(tx, job).await? {
        return Ok(Ok(changed));
    }
    let head = seen(tx, job).await?;
    let mut next = job.seed;
    let mut numbers = || {
        next = next.wrapping_add(1);
        next
    };
    let edited = match plan_edit(head.as_ref(), job.edit.clone(), job.reason.clone(), &mut numbers) {
        Ok(edited) => edited,
        Err(refused) => return Ok(Err(refused)),
    };
    let Edited { plan, entry, revision } = edited;
    if plan.is_some() {
        job.tried.get_or_init(|| entry.version_id.clone());
        let scope = job.scope.clone();
        let write = MemoryWrite {
            scope,
            cursor: None,
            plan,
        };
        apply(tx, &write).await?;
    }
    Ok(Ok(Changed { revision, entry }))
}

/// What an earlier run of the same edit committed without hearing of it.
async fn written_before(tx: &mut Tx, job: &Job) -> Result<Option<Changed>, TxError> {
    let Some(id) = job.tried.get() else {
        return Ok(None);
    };
    let state = match job.edit {
        Edit::Remember { .. } | Edit::Revise { .. } => EntryState::Active,
        Edit::Retire { .. } => EntryState::Inactive,
    };
    let Some(revision) = memory_entries::written_in(tx, &job.scope, id).await? else {
        return Ok(None);
    };
    let entry = memory_entries::version(tx, &job.scope, id, state).await?;
    Ok(Some(Changed {
        revision,
        entry: entry.ok_or_else(|| corrupt("entry_version_id"))?,
    }))
}

/// The Memory as far as the edit needs it: every entry's place, and the versions that it may touch or repeat.
async fn seen(tx: &mut Tx, job: &Job) -> Result<Option<MemoryHead>, TxError> {
    let Some((revision, content)) = head_content(tx, &job.scope).await? else {
        return Ok(None);
    };
    let active = match &job.edit {
        Edit::Remember { kind, text, .. } => memory_entries::stated(tx, &job.scope, kind, text).await?,
        Edit::Revise { citation, .. } | Edit::Retire { citation } => {
            active_entry(tx, job, content.entry(&citation.entry_id), citation).await?
        }
    };
    Ok(Some(MemoryHead {
        revision,
        manifest: content.manifest().to_vec(),
        active,
    }))
}

async fn active_entry(
    tx: &mut Tx,
    job: &Job,
    place: Option<&ManifestEntry>,
    citation: &MemoryCitation,
) -> Result<Vec<EntryVersion>, TxError> {
    let is_cited = |place: &&ManifestEntry| {
        place.state == EntryState::Active && place.entry_version_id == citation.entry_version_id
    };
    match place.filter(is_cited) {
        None => Ok(Vec::new()),
        Some(place) => {
            let version = memory_entries::version(tx, &job.scope, &place.entry_version_id, place.state).await?;
            Ok(vec![version.ok_or_else(|| corrupt("entry_version_id"))?])
        }
    }
}
