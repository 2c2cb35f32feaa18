//! What is there: the live objects of a deployment and its pods, reduced to what a decision needs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerState, Pod, PodCondition};
use serde::Deserialize;
use serde_json::Value;

use crate::names::{BUILD, DELETION_COST, DEPLOYMENT};
use crate::object::{Key, owner};

/// Everything that is there.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// Live objects under the names and kinds that the deployment uses.
    pub objects: BTreeMap<Key, Value>,
    /// Live pods of the deployment.
    pub pods: Vec<PodSeen>,
}

/// What the migrator said of itself: the last line of its output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct MigrateReport {
    /// Revision of the database; 0 for an empty one.
    pub current: i64,
    /// Revision that the image works on.
    pub target: i64,
    /// Steps that were to do.
    #[serde(default)]
    pub steps: Vec<ReportedStep>,
    /// Newest payload version that the image can run.
    #[serde(default)]
    pub payload_version: Option<i64>,
    /// Exit code that it was about to end with.
    #[serde(default)]
    pub code: Option<i32>,
}

/// A step of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ReportedStep {
    /// Its revision.
    pub revision: i64,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Whether an older build can still read the schema after it.
    #[serde(default)]
    pub additive: bool,
}

impl MigrateReport {
    /// From the end of a log. Nothing else of the log is looked at.
    pub fn from_log(text: &str) -> Option<Self> {
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        serde_json::from_str(line.trim()).ok()
    }
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// Whether the system ended it: out of memory, eviction, a lost node.
    pub by_system: bool,
}

/// What keeps a pod from running.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// An image cannot be pulled.
    Image {
        /// Which image.
        image: String,
        /// What Kubernetes calls it.
        reason: String,
    },
    /// The container ends again and again.
    Crash {
        /// Its last exit code.
        code: i32,
    },
    /// It cannot be scheduled or created.
    NotCreated {
        /// What Kubernetes calls it.
        reason: String,
    },
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSeen {
    /// Its name.
    pub name: String,
    /// Component label: a role, `migrate` or `switch-mode`.
    pub component: String,
    /// The Job it belongs to.
    pub job: Option<String>,
    /// The build it runs.
    pub build: Option<String>,
    /// Its address.
    pub ip: Option<String>,
    /// Whether its container runs.
    pub running: bool,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// What keeps it from running.
    pub trouble: Option<Trouble>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// What the migrator in it reported.
    pub report: Option<MigrateReport>,
    /// What deleting it costs, as it is annotated.
    pub deletion_cost: Option<i32>,
}

/// Reasons for which a container waits because of its image.
const IMAGE_REASONS: [&str; 5] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
];
/// Reasons for which a container waits because it could not be made.
const CREATE_REASONS: [&str; 3] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

impl PodSeen {
    /// From a live pod.
    pub fn from_pod(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let status = pod.status.clone().unwrap_or_default();
        let by_system = status
            .reason
            .as_deref()
            .is_some_and(|reason| reason != "DeadlineExceeded")
            || has_condition(status.conditions.as_ref(), "DisruptionTarget");
        let container = status.container_statuses.as_ref().and_then(|all| all.first());
        let state = container
            .and_then(|container| container.state.clone())
            .unwrap_or_default();
        let last = container
            .and_then(|container| container.last_state.clone())
            .unwrap_or_default();
        let message = state.terminated.as_ref().and_then(|end| end.message.clone());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            component: label("app.kubernetes.io/component").unwrap_or_default(),
            job: label("batch.kubernetes.io/job-name").or_else(|| label("job-name")),
            build: annotation(BUILD),
            ip: status.pod_ip.clone(),
            running: state.running.is_some(),
            ready: has_condition(status.conditions.as_ref(), "Ready"),
            terminating: meta.deletion_timestamp.is_some(),
            trouble: trouble(pod, &state, &last),
            exit: exit(&state, status.phase.as_deref(), by_system),
            report: message.as_deref().and_then(MigrateReport::from_log),
            deletion_cost: annotation(DELETION_COST).and_then(|cost| cost.parse().ok()),
        }
    }
}

fn has_condition(conditions: Option<&Vec<PodCondition>>, kind: &str) -> bool {
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

fn exit(state: &ContainerState, phase: Option<&str>, by_system: bool) -> Option<Exit> {
    if let Some(end) = &state.terminated {
        let killed = end.reason.as_deref() == Some("OOMKilled") || end.exit_code >= 128;
        return Some(Exit {
            code: end.exit_code,
            by_system: by_system || killed,
        });
    }
    // Evicted before its container ran.
    (phase == Some("Failed")).then_some(Exit {
        code: -1,
        by_system: true,
    })
}

fn trouble(pod: &Pod, state: &ContainerState, last: &ContainerState) -> Option<Trouble> {
    let image = || {
        let spec = pod.spec.as_ref()?;
        spec.containers.first()?.image.clone()
    };
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.clone().unwrap_or_default();
        if IMAGE_REASONS.contains(&reason.as_str()) {
            return Some(Trouble::Image {
                image: image().unwrap_or_default(),
                reason,
            });
        }
        if CREATE_REASONS.contains(&reason.as_str()) {
            return Some(Trouble::NotCreated { reason });
        }
        if reason == "CrashLoopBackOff" {
            let code = last.terminated.as_ref().map_or(-1, |end| end.exit_code);
            return Some(Trouble::Crash { code });
        }
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let unscheduled = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some(Trouble::NotCreated {
        reason: unscheduled.reason.clone().unwrap_or_else(|| "Unschedulable".to_owned()),
    })
}

/// How a Job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobState {
    Active,
    Succeeded,
    Failed,
}

/// A live Job.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobSeen<'a> {
    pub(super) live: &'a Value,
}

impl<'a> JobSeen<'a> {
    pub(super) fn uid(self) -> &'a str {
        self.live
            .pointer("/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(super) fn name(self) -> &'a str {
        self.live
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(super) fn is_leaving(self) -> bool {
        self.live
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(Value::is_string)
    }

    /// Looks at both conditions: a Job that failed is finished too.
    pub(super) fn state(self) -> JobState {
        let conditions = self.live.pointer("/status/conditions").and_then(Value::as_array);
        let holds = |kind: &str| {
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
        };
        if holds("Complete") {
            JobState::Succeeded
        } else if holds("Failed") {
            JobState::Failed
        } else {
            JobState::Active
        }
    }
}

/// A live Deployment.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeploymentSeen<'a> {
    pub(super) live: &'a Value,
}

impl DeploymentSeen<'_> {
    fn number(self, pointer: &str) -> i32 {
        let number = self.live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        i32::try_from(number).unwrap_or(i32::MAX)
    }

    pub(super) fn wanted(self) -> i32 {
        self.number("/spec/replicas")
    }

    pub(super) fn replicas(self) -> i32 {
        self.number("/status/replicas")
    }

    pub(super) fn ready(self) -> i32 {
        self.number("/status/readyReplicas")
    }

    pub(super) fn updated(self) -> i32 {
        self.number("/status/updatedReplicas")
    }

    fn available(self) -> i32 {
        self.number("/status/availableReplicas")
    }

    /// Why no further pod can be made: a quota, admission, a missing account.
    pub(super) fn replica_failure(self) -> Option<String> {
        let conditions = self.live.pointer("/status/conditions")?.as_array()?;
        let failure = conditions
            .iter()
            .find(|one| one["type"] == "ReplicaFailure" && one["status"] == "True")?;
        Some(failure["reason"].as_str().unwrap_or("ReplicaFailure").to_owned())
    }

    /// Whether the status is about the spec that there is; one of an older generation says nothing about it.
    pub(super) fn is_current(self) -> bool {
        let generation = self.live.pointer("/metadata/generation").and_then(Value::as_i64);
        let observed = self.live.pointer("/status/observedGeneration").and_then(Value::as_i64);
        observed >= generation
    }

    /// Whether every pod is of the newest template, ready, and as many as wanted.
    pub(super) fn is_rolled_out(self, replicas: i32) -> bool {
        self.is_current()
            && self.wanted() == replicas
            && [self.replicas(), self.updated(), self.ready(), self.available()] == [replicas; 4]
    }
}

impl Observed {
    /// Pods of a component.
    pub(super) fn pods_of<'a>(&'a self, component: &'a str) -> impl Iterator<Item = &'a PodSeen> {
        self.pods.iter().filter(move |pod| pod.component == component)
    }

    /// Pods of a Job.
    pub(super) fn pods_of_job<'a>(&'a self, job: &'a str) -> impl Iterator<Item = &'a PodSeen> {
        self.pods.iter().filter(move |pod| pod.job.as_deref() == Some(job))
    }

    /// Owned Jobs of a component.
    pub(super) fn jobs<'a>(&'a self, component: &'a str, uid: &'a str) -> impl Iterator<Item = JobSeen<'a>> {
        self.objects
            .iter()
            .filter(|(key, _)| key.kind == crate::object::Kind::Job)
            .map(|(_, live)| live)
            .filter(move |live| owner(live) == Some(uid))
            .filter(move |live| {
                let labels = live.pointer("/metadata/labels");
                labels.is_some_and(|all| all["app.kubernetes.io/component"] == component && all[DEPLOYMENT].is_string())
            })
            .map(|live| JobSeen { live })
    }
}
