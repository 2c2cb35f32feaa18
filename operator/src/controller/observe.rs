//! What is there, from caches that watches keep filled: one watch for each kind and scope.
//!
//! The caches hold only objects with the operator's label. So an object that somebody else made under one of our names is
//! not in them, and before something is made for the first time it is looked up by name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, LogParams};
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use serde_json::Value;

use super::build::Objects;
use super::kept::{self, Kept, Text};
use super::validate::ValidDeployment;
use crate::error::{ReconcileError, Step, at};
use crate::object::{Key, Kind, owner};
use crate::plan::seen::MigrateReport;
use crate::plan::{Observed, PodSeen};

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
pub struct Departed(Arc<Mutex<VecDeque<Kept<Text>>>>);

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
            departed.push_back(object.clone());
            if departed.len() > DEPARTED_MAX {
                departed.pop_front();
            }
        }
    }

    /// The Jobs of a deployment.
    fn of(&self, namespace: &str, deployment: &str) -> Vec<Kept<Text>> {
        let departed = self.0.lock().expect("no holder panicked");
        let its = departed.iter().filter(|job| job.is_of(namespace, deployment));
        its.cloned().collect()
    }

    /// Forgets the Jobs of a deployment: a status that was made with them is stored.
    pub fn forget(&self, namespace: &str, deployment: &str) {
        let mut departed = self.0.lock().expect("no holder panicked");
        departed.retain(|job| !job.is_of(namespace, deployment));
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
        if let Some(pods) = &self.pods {
            let pods = pods.state_filter(|pod| pod.is_of(namespace, deployment));
            observed.pods = pods.iter().map(|pod| pod.data.clone()).collect();
            observed.pods.sort_by(|a, b| a.name.cmp(&b.name));
        }
        observed
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
