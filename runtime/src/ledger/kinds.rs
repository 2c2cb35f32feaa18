//! The kinds of work that this build knows: which lane, which intent, which retry.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use powercontext_core::digest::{LaneKey, LogicalKey};
use powercontext_core::ids::{BindingName, FamilyName, ScopeId, WorkKind};
use powercontext_core::operation::OperationKind;
use powercontext_core::work::retry::RetryPolicy;

/// One kind of work.
#[derive(Debug, Clone)]
pub struct KindSpec {
    /// Stored name.
    pub kind: WorkKind,
    /// Its family: first half of the lane.
    pub family: FamilyName,
    /// Its binding: names the intent and the cursor.
    pub binding: BindingName,
    /// The payload version that this process writes; it reads all of [`PAYLOAD_VERSIONS`](powercontext_core::limits::PAYLOAD_VERSIONS).
    pub payload_version: u32,
    /// How its failures are retried.
    pub retry: RetryPolicy,
    /// Most runs at once over the whole deployment, each with a slot of its own in the database; `None` where the family has
    /// no cap, or its one process counts.
    pub slots_max: Option<NonZeroU16>,
}

impl KindSpec {
    /// Memory: bounded retry, cursor `memory-source-window`.
    pub fn memory(retry: RetryPolicy) -> Self {
        const VALID: &str = "a constant that follows the form of its type";
        Self {
            kind: WorkKind::parse(OperationKind::MemoryFlush.work_kind()).expect(VALID),
            family: FamilyName::memory(),
            binding: BindingName::parse("memory-source-window").expect(VALID),
            payload_version: 1,
            retry,
            slots_max: None,
        }
    }

    /// Maintenance: work of the system, one item at a time, tried for ever.
    pub fn maintenance() -> Self {
        const VALID: &str = "a constant that follows the form of its type";
        Self {
            kind: WorkKind::parse("powercontext.maintenance.operations").expect(VALID),
            family: FamilyName::parse("maintenance").expect(VALID),
            binding: BindingName::parse("maintenance").expect(VALID),
            payload_version: 1,
            retry: RetryPolicy::UNBOUNDED,
            // Its one lane is its cap.
            slots_max: None,
        }
    }

    /// The lane of this kind's work in a scope.
    pub fn lane(&self, scope: &ScopeId) -> LaneKey {
        LaneKey::of(&self.family, scope)
    }

    /// The logical key of this kind's work in a scope.
    pub fn logical_key(&self, scope: &ScopeId) -> LogicalKey {
        LogicalKey::of(&self.kind, scope, &self.binding)
    }
}

/// Every kind, by its stored name.
#[derive(Debug, Clone, Default)]
pub struct Kinds(BTreeMap<WorkKind, KindSpec>);

impl Kinds {
    /// A registry of these kinds; of two with one name the last wins.
    pub fn new(specs: impl IntoIterator<Item = KindSpec>) -> Self {
        Self(specs.into_iter().map(|spec| (spec.kind.clone(), spec)).collect())
    }

    /// The kind of this name.
    pub fn get(&self, kind: &WorkKind) -> Option<&KindSpec> {
        self.0.get(kind)
    }

    /// All of them in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &KindSpec> {
        self.0.values()
    }
}
