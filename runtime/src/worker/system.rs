//! Work of the system beside the families' own: it runs in this process, and every other kind where its executor says.

use std::sync::Arc;

use async_trait::async_trait;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkKind};

use crate::families::{Cancel, Done, ProcessorHost};
use crate::worker::executor::{Executor, Inline};

/// An executor beside which the system's own families run inline.
pub struct WithSystem {
    system: Inline,
    others: Arc<dyn Executor>,
}

impl WithSystem {
    /// Runs what `system` knows inline, and everything else by `others`.
    pub fn new(system: Inline, others: Arc<dyn Executor>) -> Self {
        Self { system, others }
    }

    fn of(&self, kind: &WorkKind) -> &dyn Executor {
        if self.system.knows(kind) {
            &self.system
        } else {
            &*self.others
        }
    }
}

#[async_trait]
impl Executor for WithSystem {
    fn knows(&self, kind: &WorkKind) -> bool {
        self.of(kind).knows(kind)
    }

    fn is_elsewhere(&self, kind: &WorkKind) -> bool {
        self.of(kind).is_elsewhere(kind)
    }

    async fn run(
        &self,
        kind: &WorkKind,
        scope: &ScopeId,
        host: Arc<dyn ProcessorHost>,
        cancel: &Cancel,
    ) -> Result<Done, FailCode> {
        self.of(kind).run(kind, scope, host, cancel).await
    }
}
