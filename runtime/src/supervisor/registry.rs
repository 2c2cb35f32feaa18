//! What the Supervisor knows of the families: a binding each, its schedule, where its pending work shows, and its budget.
//!
//! Two registrations that collide, or one that cannot work, are refused at start; nothing is quietly ignored. The digests
//! are what the members of a deployment compare.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use powercontext_core::digest::sha256_hex;
use powercontext_core::ids::ScopeId;
use powercontext_core::schedule::Schedule;
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use serde_json::json;

use crate::ledger::{KindSpec, Wanted};
use crate::store::intents::BINDINGS_MAX;

/// Where a family's pending work shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingWork {
    /// In the dirty marks that captures leave. Marks that were lost are found again by comparing journals with cursors.
    Sources,
    /// In the dirty marks alone, because the family's input is no Source: nothing else tells which marks were lost.
    Marks,
    /// Nowhere: work of the system, due whenever its schedule says so, in this one scope.
    System(ScopeId),
}

/// A family as the Supervisor knows it.
#[derive(Clone)]
pub struct Registration {
    /// Kind, family, binding, retry.
    pub work: KindSpec,
    /// First part of the names of its settings, such as `TOPIC_MEMORY`.
    pub prefix: String,
    /// When it is checked.
    pub schedule: Schedule,
    /// Where its pending work shows.
    pub pending: PendingWork,
    /// Its own condition for a scope; `None` when it wants every dirty one.
    pub wanted: Option<Arc<dyn Wanted>>,
    /// Most runs at once; `None` for no cap.
    pub workers_max: Option<NonZeroU16>,
    /// Longest run.
    pub timeout: Span,
    /// Whether clients may ask for it.
    pub is_triggerable: bool,
}

impl Registration {
    pub(super) fn system_scope(&self) -> Option<&ScopeId> {
        match &self.pending {
            PendingWork::Sources | PendingWork::Marks => None,
            PendingWork::System(scope) => Some(scope),
        }
    }
}

/// Registrations that cannot stand beside each other, or one that cannot stand at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryFault {
    /// A name that must be its own is another's too.
    #[error("two families share the {what} {name}")]
    Shared {
        /// What must differ.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An interval of no length.
    #[error("the schedule of the family {family} has no length")]
    NoInterval {
        /// Whose.
        family: String,
    },
    /// A run of no length.
    #[error("the timeout of the family {family} has no length")]
    NoTimeout {
        /// Whose.
        family: String,
    },
    /// More than one look takes in.
    #[error("there are more than {BINDINGS_MAX} families")]
    TooMany,
}

type NameOf = fn(&Registration) -> &str;

/// Every family of this build and deployment.
#[derive(Clone)]
pub struct Registry(Vec<Arc<Registration>>);

impl Registry {
    /// Takes registrations that fit beside each other.
    ///
    /// # Errors
    /// Every fault; never empty.
    pub fn new(registrations: impl IntoIterator<Item = Registration>) -> Result<Self, Vec<RegistryFault>> {
        let registrations: Vec<_> = registrations.into_iter().map(Arc::new).collect();
        let mut faults = Vec::new();
        let names: [(&'static str, NameOf); 4] = [
            ("binding", |r| r.work.binding.as_str()),
            ("name", |r| r.work.family.as_str()),
            ("kind of work", |r| r.work.kind.as_str()),
            ("prefix", |r| &r.prefix),
        ];
        for (what, name_of) in names {
            let mut seen = BTreeSet::new();
            let twice = registrations
                .iter()
                .map(|r| name_of(r))
                .filter(|name| !seen.insert(*name));
            faults.extend(twice.map(|name| RegistryFault::Shared {
                what,
                name: name.to_owned(),
            }));
        }
        for registration in &registrations {
            let family = registration.work.family.to_string();
            if matches!(registration.schedule, Schedule::Interval(Span::ZERO)) {
                faults.push(RegistryFault::NoInterval { family: family.clone() });
            }
            if registration.timeout == Span::ZERO {
                faults.push(RegistryFault::NoTimeout { family });
            }
        }
        if registrations.len() > BINDINGS_MAX {
            faults.push(RegistryFault::TooMany);
        }
        if faults.is_empty() {
            Ok(Self(registrations))
        } else {
            Err(faults)
        }
    }

    /// The registrations in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Registration>> {
        self.0.iter()
    }

    /// Digest of what the members of a deployment must agree on: bindings, their families and kinds, and which of them
    /// clients may ask for.
    pub fn contract_digest(&self) -> String {
        digest(self.0.iter().map(|r| {
            json!([
                r.work.binding.as_str(),
                r.work.family.as_str(),
                r.work.kind.as_str(),
                r.is_triggerable
            ])
        }))
    }

    /// Digest of what those that lead or work must agree on as well: schedules, budgets, timeouts, retries.
    pub fn execution_digest(&self) -> String {
        digest(self.0.iter().map(|r| {
            json!([
                r.work.binding.as_str(),
                r.schedule.to_string(),
                r.workers_max,
                r.timeout.as_millis(),
                retry(r.work.retry),
            ])
        }))
    }
}

fn retry(policy: RetryPolicy) -> serde_json::Value {
    match policy {
        RetryPolicy::Bounded {
            attempts_max,
            base,
            max,
        } => json!([attempts_max, base.as_millis(), max.as_millis()]),
        RetryPolicy::Unbounded { base, max } => json!([null, base.as_millis(), max.as_millis()]),
    }
}

/// The order of the registrations is no difference.
fn digest(parts: impl Iterator<Item = serde_json::Value>) -> String {
    let mut parts: Vec<String> = parts.map(|part| part.to_string()).collect();
    parts.sort();
    sha256_hex(parts.join("\n").as_bytes())
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
