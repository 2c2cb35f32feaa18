//! What is there, from caches that watches keep filled: one watch for each kind and scope.
//!
//! The caches hold only objects with the operator's label. So an object that somebody else made under one of our names is
//! not in them, and before something is made for the first time it is looked up by name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, LogParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt as _};
use powercontext_crds::v1alpha1::PowerContextDeployment;
use serde_json::Value;

use super::build::Objects;
use super::kept::{self, Kept, Text};
use super::rest::Basis;
use super::validate::{Dereferenced, ValidDeployment};
use crate::error::{ReconcileError, Step, at};
use crate::object::{Key, Kind, owner};
use crate::plan::seen::MigrateReport;
use crate::plan::{Facts, Observed, PodSeen};

/// Bytes of a log's end in which the migrator's report is looked for.
const REPORT_BYTES_MAX: i64 = 64 << 10;

/// Filled by watches.
#[derive(Clone, Default)]
pub struct Caches {
    /// Objects by kind. A kind that the cluster does not know has none.
    pub objects: BTreeMap<Kind, Store<Kept<Text>>>,
    /// Pods.
    pub pods: Option<Store<Kept<PodSeen>>>,
    /// Jobs that ended and were removed before anybody could look at them.
    pub departed: Departed,
}

/// Jobs that ended and are gone. Whoever removes a Job as soon as it has ended (a time to live of nothing) would take the
/// only trace of a migration away; what the watch saw last is kept until a status that was made with it is stored.
#[derive(Debug, Clone, Default)]
pub struct Departed(Arc<Mutex<Remembered>>);

/// The Jobs, each with its number, and how many there ever were.
#[derive(Debug, Default)]
struct Remembered {
    count: u64,
    jobs: VecDeque<(u64, Kept<Text>)>,
}

/// Most Jobs that are remembered; the oldest are forgotten.
const DEPARTED_MAX: usize = 256;

impl Departed {
    /// Notes an object that is gone, if it is a Job that had ended.
    pub fn note(&self, object: &Kept<Text>) {
        let value = object.value();
        let conditions = value.pointer("/status/conditions").and_then(Value::as_array);
        let has_ended = conditions.is_some_and(|all| {
            let ends = ["Complete", "Failed"];
            all.iter()
                .any(|one| one["status"] == "True" && ends.iter().any(|end| one["type"] == *end))
        });
        if has_ended {
            let mut departed = self.0.lock().expect("no holder panicked");
            departed.count += 1;
            let number = departed.count;
            departed.jobs.push_back((number, object.clone()));
            if departed.jobs.len() > DEPARTED_MAX {
                departed.jobs.pop_front();
            }
        }
    }

    /// The Jobs of a deployment.
    fn of(&self, namespace: &str, deployment: &str) -> Vec<Kept<Text>> {
        let departed = self.0.lock().expect("no holder panicked");
        let jobs = departed.jobs.iter().map(|(_, job)| job);
        jobs.filter(|job| job.is_of(namespace, deployment)).cloned().collect()
    }

    /// The number of the last one so far.
    pub fn last(&self) -> u64 {
        self.0.lock().expect("no holder panicked").count
    }

    /// Forgets the Jobs of a deployment up to that number: a status that was made with them is stored. Those that went since
    /// were not looked at yet.
    pub fn forget(&self, namespace: &str, deployment: &str, last: u64) {
        let mut departed = self.0.lock().expect("no holder panicked");
        departed
            .jobs
            .retain(|(number, job)| *number > last || !job.is_of(namespace, deployment));
    }
}

/// How the API server names a kind.
pub fn api_resource(kind: Kind) -> ApiResource {
    let (group, version, kind, plural) = kind.names();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Objects of a kind in a namespace.
pub fn api(client: &Client, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(kind))
}

impl Caches {
    /// Everything cached that belongs to a deployment.
    pub fn of(&self, namespace: &str, deployment: &str) -> Observed {
        let mut observed = Observed::default();
        let mut note = |kind: Kind, object: &Kept<Text>| {
            let name = object.name.clone();
            observed.objects.insert(Key { kind, name }, object.value());
        };
        for job in self.departed.of(namespace, deployment) {
            note(Kind::Job, &job);
        }
        for (kind, store) in &self.objects {
            for object in store.state_filter(|object| object.is_of(namespace, deployment)) {
                note(*kind, &object);
            }
        }
        observed.pods = self.pods_of(namespace, deployment);
        observed
    }

    /// What a plan would be made from now.
    pub fn basis(&self, resource: &PowerContextDeployment, read: &Dereferenced, facts: &Facts) -> Basis {
        let namespace = resource.namespace().unwrap_or_default();
        let name = resource.name_any();
        let mut objects = Vec::new();
        for (kind, store) in &self.objects {
            let ours = store.state_filter(|object| object.is_of(&namespace, &name));
            objects.extend(ours.into_iter().map(|object| (*kind, object)));
        }
        objects.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        let departed = self.departed.of(&namespace, &name);
        let texts = objects.iter().map(|(_, object)| &*object.data);
        let texts: Vec<&str> = texts.chain(departed.iter().map(|job| &*job.data)).collect();
        let version = resource.resource_version().unwrap_or_default();
        Basis::of(&version, read, &texts, &self.pods_of(&namespace, &name), facts)
    }

    /// The pods of a deployment.
    pub fn pods_of(&self, namespace: &str, deployment: &str) -> Vec<PodSeen> {
        let Some(pods) = &self.pods else { return Vec::new() };
        let pods = pods.state_filter(|pod| pod.is_of(namespace, deployment));
        let mut seen: Vec<PodSeen> = pods.iter().map(|pod| pod.data.clone()).collect();
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        seen
    }

    /// How many pods a Deployment should have.
    pub fn replicas(&self, namespace: &str, name: &str) -> Option<i64> {
        let deployments = self.objects.get(&Kind::Deployment)?;
        let live = deployments.get(&ObjectRef::new(name).within(namespace))?;
        live.value().pointer("/spec/replicas").and_then(Value::as_i64)
    }

    /// Everything that is there, with what must be looked up: objects under our names that we did not make, and the report
    /// of a migration that has ended.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn observe(
        &self,
        client: &Client,
        deployment: &ValidDeployment,
        objects: &Objects,
    ) -> Result<Observed, ReconcileError> {
        let mut observed = self.of(&deployment.namespace, &deployment.name);
        let wanted = objects.around.iter().chain(objects.roles.values());
        let missing: Vec<&Key> = wanted
            .map(|object| &object.key)
            .filter(|key| !observed.objects.contains_key(key))
            .collect();
        for key in missing {
            if let Some(live) = look_up(client, &deployment.namespace, key).await? {
                observed.objects.insert(key.clone(), live);
            }
        }
        report(client, deployment, objects, &mut observed).await;
        Ok(observed)
    }
}

async fn look_up(client: &Client, namespace: &str, key: &Key) -> Result<Option<Value>, ReconcileError> {
    let found = api(client, namespace, key.kind).get_opt(&key.name).await;
    let found = found.map_err(at(Step::Observe))?;
    Ok(found.map(|object| kept::value(&object, key.kind)))
}

/// The last line of a migrator's log. A log that is gone takes nothing but the report with it.
async fn report(client: &Client, deployment: &ValidDeployment, objects: &Objects, observed: &mut Observed) {
    let jobs: Vec<&str> = [&objects.migrate.key, &objects.plan.key]
        .into_iter()
        .filter(|key| observed.objects.get(key).and_then(owner) == Some(deployment.uid.as_str()))
        .map(|key| key.name.as_str())
        .collect();
    let is_its = |pod: &&mut PodSeen| pod.job.as_deref().is_some_and(|job| jobs.contains(&job));
    let ended = observed.pods.iter_mut().filter(is_its);
    for pod in ended.filter(|pod| pod.exit.is_some() && pod.report.is_none()) {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &deployment.namespace);
        let tail = LogParams {
            tail_lines: Some(1),
            limit_bytes: Some(REPORT_BYTES_MAX),
            ..LogParams::default()
        };
        if let Ok(text) = pods.logs(&pod.name, &tail).await {
            pod.report = MigrateReport::from_log(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, condition: &str) -> Kept<Text> {
        let status = json!({ "status": { "conditions": [{ "type": condition, "status": "True" }] } });
        Kept {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            deployment: Some("pc".to_owned()),
            data: status.to_string().into(),
        }
    }

    #[test]
    fn a_job_that_went_after_the_look_is_remembered_until_the_next_one() {
        let departed = Departed::default();
        departed.note(&job("seen", "Complete"));
        departed.note(&job("at-work", "Suspended"));
        let last = departed.last();
        departed.note(&job("later", "Failed"));
        departed.forget("n", "pc", last);
        let left: Vec<_> = departed.of("n", "pc").into_iter().map(|job| job.name).collect();
        assert_eq!(left, ["later"]);
    }
}
