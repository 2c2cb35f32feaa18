//! Where a run's family code executes.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkKind};

use crate::families::{Cancel, Done, Family, ProcessorHost};

/// Runs family code for one invocation.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Whether this executor knows the kind.
    fn knows(&self, kind: &WorkKind) -> bool;

    /// Whether a run costs a process, so that an item with nothing to do is better ended without one.
    fn is_elsewhere(&self, _kind: &WorkKind) -> bool {
        false
    }

    /// Runs one invocation to its end. Once `cancel` is raised it stops what runs and returns; what it returns then does not
    /// count. It never returns while anything of the run goes on.
    ///
    /// # Errors
    /// Why the run failed.
    async fn run(
        &self,
        kind: &WorkKind,
        scope: &ScopeId,
        host: Arc<dyn ProcessorHost>,
        cancel: &Cancel,
    ) -> Result<Done, FailCode>;
}

/// Runs family code in this process.
pub struct Inline(BTreeMap<WorkKind, Arc<dyn Family>>);

impl Inline {
    /// An executor of these families.
    pub fn new(families: impl IntoIterator<Item = Arc<dyn Family>>) -> Self {
        Self(
            families
                .into_iter()
                .map(|family| (family.spec().work.kind.clone(), family))
                .collect(),
        )
    }
}

#[async_trait]
impl Executor for Inline {
    fn knows(&self, kind: &WorkKind) -> bool {
        self.0.contains_key(kind)
    }

    async fn run(
        &self,
        kind: &WorkKind,
        scope: &ScopeId,
        host: Arc<dyn ProcessorHost>,
        cancel: &Cancel,
    ) -> Result<Done, FailCode> {
        let family = self.0.get(kind).ok_or(FailCode::FamilyUnavailable)?;
        tokio::select! {
            biased;
            () = cancel.raised() => Err(FailCode::CancelRequested),
            result = family.run(&*host, scope, cancel) => result,
        }
    }
}
