//! The planner: from what is wanted, what is there, what the roles report and the time, to the next actions and the status.
//!
//! It is pure. An action is only planned when everything it depends on is already there, so an operator that is killed
//! between two actions finds the same situation again and goes on. Planning again after the actions were done plans nothing.
//! The order is: what stands around the roles, the migration, the coordination mode, then role after role.

mod conditions;
pub mod facts;
mod migrate;
mod mode;
mod rollout;
mod scale;
pub mod seen;

use k8s_openapi::jiff::Timestamp;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};

pub use conditions::{Transition, to_write, transitions};
pub use facts::Facts;
pub use seen::{Observed, PodSeen};

use crate::controller::build::Objects;
use crate::controller::validate::{Invalid, ValidDeployment};
use crate::object::{Key, Object, owner};
use conditions::{Conditions, Verdict};

/// Seconds until the roles are asked again while something is under way.
const BUSY_SECONDS: u64 = 5;
/// Seconds until secrets and roles are read again at rest.
pub(crate) const REST_SECONDS: u64 = 30;

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// What is wanted.
    pub deployment: &'a ValidDeployment,
    /// The objects that it consists of.
    pub objects: &'a Objects,
    /// The status that is stored.
    pub status: &'a Status,
    /// What is there.
    pub observed: &'a Observed,
    /// What the roles report.
    pub facts: &'a Facts,
    /// Now.
    pub now: Timestamp,
}

/// One change of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create the object, or make it as it should be.
    Apply(Box<Object>),
    /// Delete the object and what it owns.
    Delete(Key),
    /// Say what deleting a pod costs, so that the cheapest go first.
    DeletionCost {
        /// The pod.
        pod: String,
        /// Its cost.
        cost: i32,
    },
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In this order; a failed one ends the pass.
    pub actions: Vec<Action>,
    /// The status as it should be stored after them.
    pub status: Status,
    /// Seconds until the next look, if nothing changes before.
    pub requeue_seconds: u64,
}

/// Whether the next step may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gate {
    Open,
    Closed(Reason, String),
}

/// A plan being made.
struct Draft<'a> {
    input: Input<'a>,
    actions: Vec<Action>,
    status: Status,
    conditions: Conditions,
    /// What does not go away by waiting; the first counts.
    trouble: Option<(Reason, String)>,
    /// Seconds until something is due.
    due: Option<u64>,
}

impl<'a> Draft<'a> {
    fn live(&self, key: &Key) -> Option<&'a serde_json::Value> {
        self.input.observed.objects.get(key)
    }

    fn is_ours(&self, live: &serde_json::Value) -> bool {
        owner(live) == Some(self.input.deployment.uid.as_str())
    }

    fn trouble(&mut self, reason: Reason, message: impl Into<String>) {
        if self.trouble.is_none() {
            self.trouble = Some((reason, message.into()));
        }
    }

    /// An object of that name belongs to somebody else and is left alone.
    fn taken(&mut self, key: &Key) {
        let message = format!("{} {} exists and belongs to somebody else", key.kind.as_str(), key.name);
        self.trouble(Reason::NameTaken, message);
    }

    fn due_in(&mut self, seconds: i64) {
        let seconds = u64::try_from(seconds).unwrap_or_default().max(1);
        self.due = Some(self.due.map_or(seconds, |due| due.min(seconds)));
    }

    /// Applies an object unless it is already so; whether it had to.
    fn ensure(&mut self, object: &Object) -> bool {
        match self.live(&object.key) {
            Some(live) if !self.is_ours(live) => {
                self.taken(&object.key);
                true
            }
            Some(live) if object.is_in(live) => false,
            _ => {
                self.actions.push(Action::Apply(Box::new(object.clone())));
                true
            }
        }
    }

    /// Identity, Service, policies and the like: they wait for nothing.
    fn around(&mut self) {
        let objects = self.input.objects;
        for object in &objects.around {
            self.ensure(object);
        }
        for key in &objects.unwanted {
            if self.live(key).is_some_and(|live| self.is_ours(live)) {
                self.actions.push(Action::Delete(key.clone()));
            }
        }
    }
}

/// Plans the next step of a valid deployment.
pub fn plan(input: Input<'_>) -> Plan {
    let mut draft = Draft {
        input,
        actions: Vec::new(),
        status: Status {
            observed_generation: Some(input.deployment.generation),
            ..input.status.clone()
        },
        conditions: Conditions::default(),
        trouble: None,
        due: None,
    };
    draft.around();
    // What a database is at is known best by who works on it; a migrator's report may be lost or old.
    let schema = &mut draft.status.schema;
    schema.revision = schema.revision.max(input.facts.schema_revision);
    let migrated = migrate::step(&mut draft);
    let moded = mode::step(&mut draft, &migrated);
    rollout::step(&mut draft, &migrated, &moded);
    let lives = |name: &str| input.observed.pods.iter().any(|pod| pod.name == name);
    draft.status.leaders = input.facts.leaders_after(&input.status.leaders, lives);
    if input.facts.queue.is_some() {
        draft.status.queue.clone_from(&input.facts.queue);
    }
    finish(draft)
}

/// The last word: what the conditions of the whole say, and nothing at all is done while paused.
fn finish(mut draft: Draft<'_>) -> Plan {
    let spec = &draft.input.deployment.spec;
    let role_conditions = [
        ConditionType::Migrated,
        ConditionType::WorkersReady,
        ConditionType::SchedulersReady,
        ConditionType::ApisReady,
    ];
    let unmet = role_conditions
        .into_iter()
        .find_map(|kind| draft.conditions.unmet(kind));
    let is_done = draft.actions.is_empty() && unmet.is_none() && draft.trouble.is_none();
    let under_way = unmet.unwrap_or((Reason::RollingOut, "objects are being applied".to_owned()));
    let why = draft.trouble.clone().unwrap_or_else(|| under_way.clone());
    let paused = spec.paused;
    let ready = if is_done {
        Verdict::yes(Reason::Complete, "everything is rolled out and ready")
    } else {
        Verdict::no(why.0, &why.1)
    };
    let progressing = if paused {
        Verdict::no(Reason::Paused, "spec.paused is true")
    } else if is_done {
        Verdict::no(Reason::Complete, "everything is rolled out")
    } else if let Some((reason, message)) = &draft.trouble {
        Verdict::no(*reason, message)
    } else {
        Verdict::yes(under_way.0, &under_way.1)
    };
    let degraded = match &draft.trouble {
        Some((reason, message)) => Verdict::yes(*reason, message),
        None => Verdict::no(Reason::AsExpected, ""),
    };
    let pause = if paused {
        Verdict::yes(Reason::Paused, "spec.paused is true: nothing is changed")
    } else {
        Verdict::no(Reason::AsExpected, "")
    };
    draft.conditions.set(ConditionType::Ready, ready);
    draft.conditions.set(ConditionType::Progressing, progressing);
    draft.conditions.set(ConditionType::Degraded, degraded);
    draft.conditions.set(ConditionType::Paused, pause);
    if paused {
        draft.actions.clear();
    }
    let Input {
        status,
        now,
        deployment,
        ..
    } = draft.input;
    draft.status.conditions = draft.conditions.written(&status.conditions, deployment.generation, now);
    let rest = if is_done { REST_SECONDS } else { BUSY_SECONDS };
    Plan {
        actions: draft.actions,
        status: draft.status,
        requeue_seconds: draft.due.map_or(rest, |due| due.min(rest)),
    }
}

/// The plan for a spec that cannot be followed: what runs is left alone and the reason is told.
pub fn refuse(resource: &PowerContextDeployment, invalid: &Invalid, now: Timestamp) -> Plan {
    let old = resource.status.clone().unwrap_or_default();
    let generation = resource.metadata.generation.unwrap_or_default();
    let mut conditions = Conditions::default();
    let Invalid { reason, message } = invalid;
    for kind in ConditionType::ALL {
        let verdict = match kind {
            ConditionType::Degraded => Verdict::yes(*reason, message),
            ConditionType::Ready | ConditionType::Progressing => Verdict::no(*reason, message),
            ConditionType::Paused | ConditionType::UpgradeBlocked => Verdict::no(Reason::AsExpected, ""),
            // What was known of the roles stays as it was; it is about them and not about this spec.
            _ => conditions::kept(&old.conditions, kind)
                .unwrap_or_else(|| Verdict::no(Reason::Waiting, "the spec cannot be followed")),
        };
        conditions.set(kind, verdict);
    }
    let waits_for_secret = matches!(
        reason,
        Reason::SecretMissing | Reason::SecretKeyMissing | Reason::SecretInvalid
    );
    Plan {
        actions: Vec::new(),
        status: Status {
            observed_generation: Some(generation),
            conditions: conditions.written(&old.conditions, generation, now),
            ..old
        },
        requeue_seconds: if waits_for_secret { BUSY_SECONDS } else { REST_SECONDS },
    }
}

/// The status after an action that the API server refused.
pub fn refused(resource: &PowerContextDeployment, plan: &Plan, message: &str, now: Timestamp) -> Status {
    let old = resource.status.clone().unwrap_or_default();
    let mut conditions = Conditions::default();
    for kind in ConditionType::ALL {
        let verdict = match kind {
            ConditionType::Degraded => Verdict::yes(Reason::ApplyFailed, message),
            ConditionType::Ready | ConditionType::Progressing => Verdict::no(Reason::ApplyFailed, message),
            _ => conditions::kept(&plan.status.conditions, kind).unwrap_or_else(|| Verdict::no(Reason::Waiting, "")),
        };
        conditions.set(kind, verdict);
    }
    let generation = resource.metadata.generation.unwrap_or_default();
    Status {
        conditions: conditions.written(&old.conditions, generation, now),
        ..plan.status.clone()
    }
}

#[cfg(test)]
#[path = "simulation.rs"]
mod simulation;

#[cfg(test)]
mod migrate_tests;
#[cfg(test)]
mod rollout_tests;

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
