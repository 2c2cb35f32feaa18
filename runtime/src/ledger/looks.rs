//! How far this process has looked for what is ready of each kind: a claim begins where the last one did not find anything
//! before (`core::work::ready`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use powercontext_core::ids::WorkKind;
use powercontext_core::time::DbTime;
use powercontext_core::work::ready::ReadyFrom;
use tokio::time::Instant;

use crate::ledger::Ledger;

#[derive(Default)]
struct Look {
    from: ReadyFrom,
    /// When all was looked at, by the process's clock.
    whole_at: Option<Instant>,
}

/// Of each kind.
#[derive(Default)]
pub(super) struct Looks(Mutex<BTreeMap<WorkKind, Look>>);

impl Ledger {
    /// From where on to look for a kind; `None` for all of it.
    pub(super) fn look_from(&self, kind: &WorkKind) -> Option<DbTime> {
        // No code panics between two changes under this lock.
        let looks = self.0.looks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let look = looks.get(kind)?;
        look.from.next(look.whole_at.map(|at| at.elapsed()))
    }

    /// Looks that began at `at`: of each kind whether at all of it, and where the next one may begin, if that was told.
    pub(super) fn looked<'a>(
        &self,
        at: Instant,
        looked: impl Iterator<Item = (&'a WorkKind, bool, Option<ReadyFrom>)>,
    ) {
        let mut looks = self.0.looks.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, is_whole, next) in looked {
            let Some(next) = next else { continue };
            let look = looks.entry(kind.clone()).or_default();
            look.from = next;
            if is_whole {
                look.whole_at = Some(at);
            }
        }
    }
}
