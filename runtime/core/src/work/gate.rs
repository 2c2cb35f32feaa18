//! The provider gate: whether runs that call a model may start.
//!
//! Provider failures of three *different* scopes in a row close it; until a probe succeeds nothing that needs a model is
//! claimed, so an outage costs three items an attempt and not every item all of theirs. One scope alone never closes it,
//! however often it fails: that is a poisoned input, and its own budget ends it. "In a row" is told by when runs began: an
//! answer clears only the failures that its run began after, and a failure of a run that began before the gate last
//! closed tells of the same outage, whenever it arrives.

use crate::fail::FailCode;
use crate::ids::ScopeId;

/// Different scopes whose failures in a row close the gate.
pub const SCOPES_MAX: usize = 3;

/// When a run began, in counted failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// What a provider failure costs its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// An attempt: the retry policy decides what follows.
    Spend,
    /// An attempt, and the gate has closed with it.
    SpendAndClose,
    /// Nothing: the run is given back, because the outage is known.
    Release,
}

/// The gate of one process. Starts open: a provider counts as working until runs say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gate {
    /// Failures counted so far; never goes back.
    counted: u64,
    /// `counted` when the gate last closed; 0 before that.
    closed_at: u64,
    is_closed: bool,
    /// The newest failure of each scope since an answer, oldest first; fewer than [`SCOPES_MAX`].
    failures: Vec<(u64, ScopeId)>,
}

/// Whether a failure says that the provider is out of order, rather than that it did its work badly. A refusal counts: a
/// wrong key or address fails every scope, and each of them for good.
pub const fn is_outage(code: FailCode) -> bool {
    matches!(
        code,
        FailCode::ProviderTimeout | FailCode::ProviderUnavailable | FailCode::ProviderRejected
    )
}

impl Gate {
    /// Whether nothing that needs a model may start.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Lets a run begin; `None` while the gate is closed.
    pub fn begin(&self) -> Option<Ticket> {
        (!self.is_closed).then_some(Ticket(self.counted))
    }

    /// The provider answered a run, whatever the answer was worth.
    pub fn answered(&mut self, run: Ticket) {
        self.failures.retain(|(at, _)| *at > run.0);
    }

    /// The provider failed a run.
    pub fn failed(&mut self, run: Ticket, scope: &ScopeId) -> Verdict {
        if self.is_closed || run.0 < self.closed_at {
            return Verdict::Release;
        }
        self.counted = self.counted.saturating_add(1);
        self.failures.retain(|(_, other)| other != scope);
        self.failures.push((self.counted, scope.clone()));
        if self.failures.len() < SCOPES_MAX {
            return Verdict::Spend;
        }
        self.failures.clear();
        self.closed_at = self.counted;
        self.is_closed = true;
        Verdict::SpendAndClose
    }

    /// A probe succeeded.
    pub fn open(&mut self) {
        self.failures.clear();
        self.is_closed = false;
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
