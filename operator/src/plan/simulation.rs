//! A cluster of a few maps: it applies what is planned, and a kubelet of a few lines plays pods and Jobs.
//!
//! It knows the three manners of a real one that the planner must cope with: a status is of an older generation for a
//! while, a Job can never be changed, and pods of an old template live on until they are gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::jiff::Timestamp;
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};
use serde_json::{Value, json};

use super::seen::{Exit, MigrateReport, PodSeen, Trouble};
use super::{Action, Facts, Input, Observed, Plan, plan};
use crate::controller::build::build;
use crate::controller::validate::{Dereferenced, validate};
use crate::names::{BUILD, Role};
use crate::object::{Key, Kind};
use crate::testing::{manifest, merge, secrets};

/// How the pod of a migration will end.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Exit(i32, Option<MigrateReport>),
    Killed,
    NoImage,
    Runs,
}

pub(super) struct Cluster {
    pub(super) resource: Value,
    pub(super) read: Dereferenced,
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) pods: Vec<PodSeen>,
    pub(super) facts: Facts,
    pub(super) status: Status,
    pub(super) now: i64,
    /// Every action that was done, as `verb Kind name`.
    pub(super) history: Vec<String>,
    /// How the next migrations end; then they succeed.
    pub(super) outcomes: VecDeque<Outcome>,
    /// What the migrator will say when it is asked for its plan.
    pub(super) foreseen: Option<MigrateReport>,
    /// Roles whose members do not report the new build yet.
    pub(super) mute: BTreeSet<Role>,
    /// Mode that each living pod of a Scheduler was started in.
    modes: BTreeMap<String, String>,
    serial: u32,
}

impl Cluster {
    pub(super) fn new(spec: &Value) -> Self {
        let mut resource = manifest();
        merge(&mut resource["spec"], spec);
        Self {
            resource,
            read: secrets(),
            objects: BTreeMap::new(),
            pods: Vec::new(),
            facts: Facts {
                members: Some(BTreeMap::new()),
                payload_depth: Some(BTreeMap::new()),
                ..Facts::default()
            },
            status: Status::default(),
            now: 1_000_000,
            history: Vec::new(),
            outcomes: VecDeque::new(),
            foreseen: None,
            mute: BTreeSet::new(),
            modes: BTreeMap::new(),
            serial: 0,
        }
    }

    /// A deployment that is completely rolled out.
    pub(super) fn ready(spec: &Value) -> Self {
        let mut cluster = Self::new(spec);
        cluster.settle();
        assert_eq!(
            cluster.condition("Ready"),
            ("True".to_owned(), "Complete".to_owned()),
            "{:?}",
            cluster.status
        );
        cluster.history.clear();
        cluster
    }

    /// Changes the spec as a person would.
    pub(super) fn edit(&mut self, spec: &Value) {
        merge(&mut self.resource["spec"], spec);
        let generation = self.resource["metadata"]["generation"].as_i64().unwrap_or_default();
        self.resource["metadata"]["generation"] = (generation + 1).into();
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        self.resource["metadata"]["annotations"][key] = value.into();
    }

    pub(super) fn plan(&self) -> Plan {
        let resource: PowerContextDeployment = serde_json::from_value(self.resource.clone()).expect("a resource");
        let deployment = validate(&resource, &self.read).expect("valid");
        let objects = build(&deployment);
        plan(Input {
            deployment: &deployment,
            objects: &objects,
            status: &self.status,
            observed: &Observed {
                objects: self.objects.clone(),
                pods: self.pods.clone(),
            },
            facts: &self.facts,
            now: Timestamp::from_second(self.now).expect("in range"),
        })
    }

    /// One pass: plan, do, store the status.
    pub(super) fn pass(&mut self) -> Vec<Action> {
        let plan = self.plan();
        for action in &plan.actions {
            self.act(action);
        }
        self.status = plan.status;
        plan.actions
    }

    /// One pass of an operator that dies after so many actions, before it stores the status.
    pub(super) fn pass_and_die_after(&mut self, actions: usize) {
        for action in self.plan().actions.iter().take(actions) {
            self.act(action);
        }
    }

    /// Passes and kubelets until nothing is left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..60 {
            let actions = self.pass();
            self.kubelet();
            self.check();
            self.now += 1;
            if actions.is_empty() && self.plan().actions.is_empty() && self.condition("Progressing").0 == "False" {
                return;
            }
        }
        panic!(
            "never at rest: {:#?}\n{:?}",
            self.status.conditions,
            self.plan().actions
        );
    }

    /// A few passes and kubelets, whether it comes to rest or not.
    pub(super) fn settle_or_stop(&mut self) {
        for _ in 0..10 {
            self.pass();
            self.kubelet();
            self.check();
        }
    }

    /// The status and reason of a condition.
    pub(super) fn condition(&self, kind: &str) -> (String, String) {
        let one = self.status.conditions.iter().find(|one| one.type_ == kind);
        one.map_or_else(Default::default, |one| (one.status.clone(), one.reason.clone()))
    }

    pub(super) fn message(&self, kind: &str) -> String {
        let one = self.status.conditions.iter().find(|one| one.type_ == kind);
        one.map_or_else(String::new, |one| one.message.clone())
    }

    pub(super) fn deployment(&mut self, role: Role) -> &mut Value {
        let name = format!("pc-{role}");
        let key = Key {
            kind: Kind::Deployment,
            name,
        };
        self.objects.get_mut(&key).expect("the Deployment is there")
    }

    pub(super) fn jobs(&self) -> Vec<&Key> {
        self.objects.keys().filter(|key| key.kind == Kind::Job).collect()
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Apply(object) => {
                self.history
                    .push(format!("apply {} {}", object.key.kind.as_str(), object.key.name));
                self.apply(&object.key, &object.manifest);
            }
            Action::Delete(key) => {
                self.history.push(format!("delete {} {}", key.kind.as_str(), key.name));
                self.objects.remove(key);
                self.pods.retain(|pod| pod.job.as_ref() != Some(&key.name));
            }
            Action::DeletionCost { pod, cost } => {
                self.history.push(format!("cost {pod} {cost}"));
                let pod = self
                    .pods
                    .iter_mut()
                    .find(|one| one.name == *pod)
                    .expect("the pod is there");
                pod.deletion_cost = Some(*cost);
            }
        }
    }

    fn apply(&mut self, key: &Key, manifest: &Value) {
        self.serial += 1;
        let uid = format!("object-{}", self.serial);
        let Some(live) = self.objects.get_mut(key) else {
            let mut live = manifest.clone();
            live["metadata"]["uid"] = uid.into();
            live["metadata"]["generation"] = 1.into();
            self.objects.insert(key.clone(), live);
            return;
        };
        assert!(key.kind != Kind::Job, "a Job can never be changed: {}", key.name);
        let changed = live["spec"] != manifest["spec"];
        for part in ["labels", "annotations", "ownerReferences"] {
            live["metadata"][part] = manifest["metadata"][part].clone();
        }
        live["spec"] = manifest["spec"].clone();
        if changed {
            let generation = live["metadata"]["generation"].as_i64().unwrap_or_default();
            live["metadata"]["generation"] = (generation + 1).into();
        }
    }

    /// Brings every Deployment and every Job one step on.
    pub(super) fn kubelet(&mut self) {
        let keys: Vec<Key> = self.objects.keys().cloned().collect();
        for key in keys {
            match key.kind {
                Kind::Deployment => self.roll(&key),
                Kind::Job => self.run(&key),
                _ => {}
            }
        }
    }

    fn roll(&mut self, key: &Key) {
        let live = self.objects.get_mut(key).expect("it is there");
        let replicas = live["spec"]["replicas"].as_i64().unwrap_or_default();
        let generation = live["metadata"]["generation"].clone();
        live["status"] = json!({ "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas });
        let template = live["spec"]["template"].clone();
        let component = key.name.trim_start_matches("pc-").to_owned();
        let build = template["metadata"]["annotations"][BUILD]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let mode = template["spec"]["containers"][0]["env"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|one| {
                let is_mode = one["name"]
                    .as_str()
                    .is_some_and(|name| name.ends_with("SUPERVISOR_MODE"));
                is_mode.then(|| one["value"].as_str().unwrap_or_default().to_owned())
            });
        self.pods.retain(|pod| pod.component != component);
        for number in 0..replicas {
            let name = format!("{}-{build}-{number}", key.name);
            if let Some(mode) = &mode {
                self.modes.insert(name.clone(), mode.clone());
            }
            self.pods.push(PodSeen {
                name,
                component: component.clone(),
                build: Some(build.clone()),
                running: true,
                ready: true,
                ..PodSeen::default()
            });
        }
        let role = Role::parse(&component).expect("a role");
        let members = self.facts.members.get_or_insert_default();
        if !self.mute.contains(&role) {
            members.retain(|(other, _), _| *other != role);
            members.insert((role, build), replicas);
        }
    }

    fn run(&mut self, key: &Key) {
        let live = self.objects.get_mut(key).expect("it is there");
        if live["status"]["conditions"].is_array() {
            return;
        }
        let is_migration = key.name.contains("-migrate-");
        let component = live["metadata"]["labels"]["app.kubernetes.io/component"]
            .as_str()
            .map(str::to_owned);
        let outcome = match &self.foreseen {
            Some(report) if key.name.contains("-plan-") => Some(Outcome::Exit(0, Some(report.clone()))),
            _ if is_migration => self.outcomes.front().cloned(),
            _ => None,
        };
        let outcome = outcome.unwrap_or(Outcome::Exit(0, None));
        let mut pod = PodSeen {
            name: format!("{}-pod", key.name),
            component: component.unwrap_or_default(),
            job: Some(key.name.clone()),
            ..PodSeen::default()
        };
        let mut end = |kind: &str| live["status"] = json!({ "conditions": [{ "type": kind, "status": "True" }] });
        match outcome {
            Outcome::Exit(code, report) => {
                end(if code == 0 { "Complete" } else { "Failed" });
                pod.exit = Some(Exit { code, by_system: false });
                pod.report = report;
                if is_migration {
                    self.outcomes.pop_front();
                }
            }
            Outcome::Killed => {
                end("Failed");
                pod.exit = Some(Exit {
                    code: 137,
                    by_system: true,
                });
                self.outcomes.pop_front();
            }
            Outcome::NoImage => {
                let image = live["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
                pod.trouble = Some(Trouble::Image {
                    image: image.unwrap_or_default().to_owned(),
                    reason: "ImagePullBackOff".to_owned(),
                });
            }
            Outcome::Runs => pod.running = true,
        }
        self.pods.retain(|one| one.name != pod.name);
        self.pods.push(pod);
    }

    /// What holds after every pass.
    fn check(&self) {
        let living: BTreeSet<_> = self.pods.iter().filter_map(|pod| self.modes.get(&pod.name)).collect();
        assert!(living.len() <= 1, "two modes live at once: {living:?}");
        assert!(self.jobs().len() <= 2, "{:?}", self.jobs());
        let text = serde_json::to_string(&self.status).expect("JSON");
        assert!(!text.contains("canary"), "a secret is in the status");
    }
}
