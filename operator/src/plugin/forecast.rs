//! What the operator would do from here on, in order: its own planner, asked again and again in an imagined cluster where
//! everything that is begun ends well. Pure.
//!
//! Nothing of the planner is repeated here. What is imagined is only what the cluster would do with its actions: a Job succeeds,
//! the pods of a Deployment are replaced and report their build. So the steps come in the order in which the operator takes
//! them, and each says what the next one waits for.

use k8s_openapi::jiff::{Span, Timestamp};
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};
use serde::Serialize;
use serde_json::{Value, json};

use super::steps;
use crate::controller::build::build;
use crate::controller::validate::{Dereferenced, ValidDeployment, validate};
use crate::names::{APPROVE_MIGRATION, BUILD, Role};
use crate::object::{Key, Kind, owner};
use crate::plan::{Action, Facts, Input, Observed, Plan, PodSeen, plan};

/// Most passes of the planner. A roll-out takes a dozen.
const PASSES_MAX: usize = 100;

/// Where the imagination begins.
#[derive(Debug)]
pub(super) struct Scene {
    /// The resource, stored or not.
    pub(super) resource: PowerContextDeployment,
    /// The secrets that it names.
    pub(super) read: Dereferenced,
    /// What is there.
    pub(super) observed: Observed,
    /// What the roles are known to report.
    pub(super) facts: Facts,
    /// Now.
    pub(super) now: Timestamp,
}

/// What would happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Forecast {
    /// In order.
    pub(super) steps: Vec<Step>,
    /// How it ends.
    pub(super) end: End,
    /// What the steps take for granted.
    pub(super) notes: Vec<String>,
}

/// What is done at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    /// What must have come true before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
    /// What is done, in this order.
    pub(super) does: Vec<String>,
}

/// How the steps end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(super) enum End {
    /// Everything is as the spec says.
    Reached,
    /// It goes no further by itself.
    Stuck { reason: String, message: String },
    /// The spec cannot be followed at all.
    Refused { reason: String, message: String },
}

impl Forecast {
    fn refused(reason: Reason, message: String) -> Self {
        Self {
            steps: Vec::new(),
            end: End::Refused {
                reason: reason.to_string(),
                message,
            },
            notes: Vec::new(),
        }
    }
}

/// The imagined cluster.
struct World {
    deployment: ValidDeployment,
    status: Status,
    observed: Observed,
    facts: Facts,
    now: Timestamp,
    objects_made: u32,
}

/// Imagines what would happen.
pub(super) fn forecast(scene: Scene) -> Forecast {
    let mut notes = Vec::new();
    let mut resource = scene.resource;
    if resource.spec.paused {
        notes.push("it is paused: nothing of this happens before `resume`".to_owned());
        resource.spec.paused = false;
    }
    let deployment = match validate(&resource, &scene.read) {
        Ok(deployment) => deployment,
        Err(invalid) => return Forecast::refused(invalid.reason, invalid.message),
    };
    let mut world = World {
        status: resource.status.clone().unwrap_or_default(),
        deployment,
        observed: scene.observed,
        facts: scene.facts,
        now: scene.now,
        objects_made: 0,
    };
    notes.extend(world.takes_for_granted());
    let (steps, end) = world.run();
    if world.goes_back() {
        notes.push(
            "the image is older than the schema: before Workers go back, the operator waits until no work of a newer payload version is left"
                .to_owned(),
        );
    }
    Forecast { steps, end, notes }
}

impl World {
    fn plan(&self) -> Plan {
        let objects = build(&self.deployment);
        plan(Input {
            deployment: &self.deployment,
            objects: &objects,
            status: &self.status,
            observed: &self.observed,
            facts: &self.facts,
            now: self.now,
        })
    }

    /// What cannot be known before it happens.
    fn takes_for_granted(&self) -> Vec<String> {
        let schema = &self.status.schema;
        let target = Some(&self.deployment.target_hash);
        let is_new = schema.completed_hash.as_ref() != target;
        let is_known = schema.target_hash.as_ref() == target && schema.image_revision.is_some();
        if is_new && !is_known && schema.revision.is_some() {
            return vec![format!(
                "only the migrator knows the image's schema; were it older than revision {}, the roles would go back in the other order, \
                 APIs first",
                schema.revision.unwrap_or_default()
            )];
        }
        Vec::new()
    }

    fn goes_back(&self) -> bool {
        let schema = &self.status.schema;
        schema.image_revision.is_some() && schema.revision > schema.image_revision
    }

    /// Passes until there is nothing left to do, or nothing goes on by itself.
    fn run(&mut self) -> (Vec<Step>, End) {
        let mut steps: Vec<Step> = Vec::new();
        let mut after = None;
        let mut was_idle = false;
        for _ in 0..PASSES_MAX {
            let plan = self.plan();
            let does: Vec<String> = plan
                .actions
                .iter()
                .map(|action| steps::describe(action, &self.observed))
                .collect();
            let next = steps::awaited(&plan.actions, &self.observed);
            for action in &plan.actions {
                self.act(action);
            }
            self.status = plan.status;
            if !does.is_empty() {
                steps.push(Step {
                    after: after.take(),
                    does,
                });
                after = next;
                self.settle();
                was_idle = false;
                continue;
            }
            let (reason, message) = self.unmet();
            if reason == Reason::Complete.as_str() {
                return (steps, End::Reached);
            }
            if reason == Reason::ApprovalRequired.as_str() {
                let target = self.deployment.target_hash.clone();
                let does = vec![format!(
                    "wait until somebody approves the migration: kubectl powercontext approve {} --target {target}",
                    self.deployment.name
                )];
                steps.push(Step {
                    after: after.take(),
                    does,
                });
                self.deployment.annotations.insert(APPROVE_MIGRATION.to_owned(), target);
                continue;
            }
            if reason == Reason::MigrationRetrying.as_str() {
                let wait = i64::try_from(plan.requeue_seconds).unwrap_or_default();
                self.now = self.now.checked_add(Span::new().seconds(wait)).unwrap_or(self.now);
                after = Some(format!("the gap after the last attempt is over, in {wait} s"));
                continue;
            }
            if was_idle {
                return (steps, End::Stuck { reason, message });
            }
            // What is under way ends.
            after = after.or(Some(message));
            self.settle();
            was_idle = true;
        }
        let message = "the steps did not come to an end".to_owned();
        let reason = Reason::Waiting.to_string();
        (steps, End::Stuck { reason, message })
    }

    /// Why it is not ready.
    fn unmet(&self) -> (String, String) {
        let ready = self
            .status
            .conditions
            .iter()
            .find(|one| one.type_ == ConditionType::Ready.as_str());
        ready.map_or_else(Default::default, |one| (one.reason.clone(), one.message.clone()))
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Apply(object) => self.apply(&object.key, &object.manifest),
            Action::Delete(key) => {
                self.observed.objects.remove(key);
                self.observed
                    .pods
                    .retain(|pod| key.kind != Kind::Job || pod.job.as_ref() != Some(&key.name));
            }
            Action::DeletionCost { pod, cost } => {
                let pods = self.observed.pods.iter_mut();
                for pod in pods.filter(|one| one.name == *pod) {
                    pod.deletion_cost = Some(*cost);
                }
            }
        }
    }

    fn apply(&mut self, key: &Key, manifest: &Value) {
        self.objects_made += 1;
        let mut new = manifest.clone();
        let old = self.observed.objects.get(key);
        let uid = old.and_then(|old| old.pointer("/metadata/uid")).cloned();
        new["metadata"]["uid"] = uid.unwrap_or_else(|| format!("imagined-{}", self.objects_made).into());
        self.observed.objects.insert(key.clone(), new);
    }

    /// What was begun ends well.
    fn settle(&mut self) {
        let uid = self.deployment.uid.clone();
        let ours: Vec<Key> = self
            .observed
            .objects
            .iter()
            .filter(|(_, live)| owner(live) == Some(uid.as_str()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in ours {
            match key.kind {
                Kind::Deployment => self.roll_out(&key),
                Kind::Job => self.finish(&key),
                _ => {}
            }
        }
        // Nobody could be asked; whether work of a newer version is left is not known.
        self.facts.payload_depth.get_or_insert_default();
    }

    fn roll_out(&mut self, key: &Key) {
        let Some(live) = self.observed.objects.get_mut(key) else {
            return;
        };
        let component = live["metadata"]["labels"]["app.kubernetes.io/component"].as_str();
        let Some(role) = component.and_then(Role::parse) else {
            return;
        };
        let replicas = live["spec"]["replicas"].as_i64().unwrap_or(1);
        let build = live["spec"]["template"]["metadata"]["annotations"][BUILD].as_str();
        let build = build.unwrap_or_default().to_owned();
        live["metadata"]["generation"] = 1.into();
        live["status"] = json!({ "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas });
        self.observed.pods.retain(|pod| pod.component != role.as_str());
        self.observed.pods.extend((0..replicas).map(|number| PodSeen {
            name: format!("{}-{number}", key.name),
            component: role.to_string(),
            build: Some(build.clone()),
            running: true,
            ready: true,
            ..PodSeen::default()
        }));
        let members = self.facts.members.get_or_insert_default();
        members.retain(|(other, _), _| *other != role);
        members.insert((role, build), replicas);
    }

    fn finish(&mut self, key: &Key) {
        let Some(live) = self.observed.objects.get_mut(key) else {
            return;
        };
        let has_ended = live["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["status"] == "True"));
        if !has_ended {
            live["status"] = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
        }
        for pod in self
            .observed
            .pods
            .iter_mut()
            .filter(|pod| pod.job.as_ref() == Some(&key.name))
        {
            pod.running = false;
            pod.trouble = None;
        }
    }
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
