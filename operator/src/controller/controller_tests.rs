//! The pipeline against an API server of a map. What it sends is shown here; what a real API server makes of it is not.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use kube::runtime::events::Reporter;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use serde_json::{Value, json};

use super::kept::{self, Kept, Text};
use super::*;
use crate::fake::FakeApi;
use crate::object::Kind;
use crate::testing::{URL, manifest};

const PATH: &str = "/apis/powercontext.io/v1alpha1/namespaces/default/powercontextdeployments/pc";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs/";
const WORKER: &str = "/apis/apps/v1/namespaces/default/deployments/pc-worker";

/// A fake server with one deployment and its secrets.
pub(crate) fn cluster() -> FakeApi {
    let fake = FakeApi::default();
    fake.put(PATH, manifest());
    for (name, key, value) in [
        ("pc-database", "url", URL),
        ("pc-auth", "token", "canary-token"),
        ("pc-model", "key", "canary-key"),
    ] {
        Rig::secret(&fake, name, key, value);
    }
    fake
}

/// A fake server with one deployment, and an operator's context beside it.
struct Rig {
    fake: FakeApi,
    writers: BTreeMap<Kind, Writer<Kept<Text>>>,
    context: Arc<Context>,
}

impl Rig {
    fn new() -> Self {
        let fake = cluster();
        let mut writers = BTreeMap::new();
        let mut caches = Caches::default();
        for kind in Kind::ALL {
            let writer = Writer::default();
            caches.objects.insert(kind, writer.as_reader());
            writers.insert(kind, writer);
        }
        let client = fake.client();
        let reporter = Reporter {
            controller: "test".to_owned(),
            instance: None,
        };
        let context = Context::new(
            client.clone(),
            caches,
            Recorder::new(client, reporter),
            Asker::new().expect("a client"),
            Metrics::new().expect("valid names"),
            None,
        );
        Self {
            fake,
            writers,
            context: Arc::new(context),
        }
    }

    fn secret(fake: &FakeApi, name: &str, key: &str, value: &str) {
        use k8s_openapi::ByteString;
        let data = json!({ key: serde_json::to_value(ByteString(value.as_bytes().to_vec())).expect("JSON") });
        let path = format!("/api/v1/namespaces/default/secrets/{name}");
        fake.put(
            &path,
            json!({ "metadata": { "name": name, "namespace": "default" }, "data": data }),
        );
    }

    /// Fills the caches as watches would, then reconciles once.
    async fn reconcile(&mut self) -> Result<Requeue, ReconcileError> {
        for (kind, writer) in &mut self.writers {
            let (.., plural) = kind.names();
            writer.apply_watcher_event(&watcher::Event::Init);
            for live in self.fake.list(&format!("/namespaces/default/{plural}/")) {
                let object: DynamicObject = serde_json::from_value(live).expect("an object");
                let event = watcher::Event::InitApply(object);
                writer.apply_watcher_event(&Kept::in_event(event, |object| kept::text(object, *kind)));
            }
            writer.apply_watcher_event(&watcher::Event::InitDone);
        }
        let stored = self.fake.get(PATH).expect("the resource");
        let cached = serde_json::from_value(stored).expect("a resource");
        reconcile(Arc::new(cached), Arc::clone(&self.context)).await
    }

    fn resource(&self) -> PowerContextDeployment {
        serde_json::from_value(self.fake.get(PATH).expect("the resource")).expect("a resource")
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.resource().status.unwrap_or_default().conditions;
        let one = conditions.iter().find(|one| one.type_ == kind);
        one.map_or_else(Default::default, |one| (one.status.clone(), one.reason.clone()))
    }

    fn job(&self) -> String {
        let name = self.resource().status.unwrap_or_default().schema.job_name;
        format!("{JOBS}{}", name.expect("a Job is named"))
    }

    fn finish_job(&self) {
        let done = json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } });
        self.fake.change(&self.job(), &done);
    }

    fn edit(&self, spec: &Value) {
        let generation = self.resource().metadata.generation.unwrap_or_default();
        self.fake.change(
            PATH,
            &json!({ "metadata": { "generation": generation + 1 }, "spec": spec }),
        );
    }
}

#[tokio::test]
async fn it_makes_what_stands_around_and_the_job_and_no_role_before_the_job_is_done() {
    let mut rig = Rig::new();
    rig.reconcile().await.expect("it reconciles");
    assert!(rig.fake.get(&rig.job()).is_some());
    assert!(rig.fake.get("/api/v1/namespaces/default/services/pc-api").is_some());
    assert!(rig.fake.get(WORKER).is_none());
    assert_eq!(rig.condition("Migrated"), ("False".to_owned(), "Migrating".to_owned()));
    rig.finish_job();
    rig.reconcile().await.expect("it reconciles");
    assert!(rig.fake.get(WORKER).is_some());
    assert_eq!(rig.condition("Migrated").0, "True");
    assert!(
        rig.resource()
            .status
            .and_then(|status| status.schema.completed_hash)
            .is_some()
    );
}

#[tokio::test]
async fn at_rest_it_writes_nothing() {
    let mut rig = Rig::new();
    rig.reconcile().await.expect("it reconciles");
    rig.reconcile().await.expect("it reconciles");
    rig.fake.take_writes();
    for _ in 0..10 {
        rig.reconcile().await.expect("it reconciles");
    }
    assert_eq!(rig.fake.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn each_transition_is_told_once_as_an_event() {
    let mut rig = Rig::new();
    rig.reconcile().await.expect("it reconciles");
    let told: BTreeSet<_> = rig
        .fake
        .list("/events/")
        .iter()
        .map(|event| event["note"].to_string())
        .collect();
    assert!(told.iter().any(|note| note.contains("Migrated is false")), "{told:?}");
    let before = rig.fake.list("/events/").len();
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(rig.fake.list("/events/").len(), before);
}

#[tokio::test]
async fn a_missing_secret_is_told_and_the_deployment_goes_on_when_it_comes() {
    let mut rig = Rig::new();
    rig.fake.remove("/api/v1/namespaces/default/secrets/pc-model");
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(
        rig.condition("Degraded"),
        ("True".to_owned(), "SecretMissing".to_owned())
    );
    assert!(rig.fake.list(JOBS).is_empty());
    Rig::secret(&rig.fake, "pc-model", "wrong", "canary-key");
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(
        rig.condition("Degraded"),
        ("True".to_owned(), "SecretKeyMissing".to_owned())
    );
    Rig::secret(&rig.fake, "pc-model", "key", "canary-key");
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(rig.condition("Degraded").0, "False");
    assert_eq!(rig.fake.list(JOBS).len(), 1);
}

#[tokio::test]
async fn a_refused_object_is_told_without_what_was_sent_and_tried_again() {
    let mut rig = Rig::new();
    rig.fake.refuse("/services/", 422);
    let error = rig.reconcile().await.expect_err("refused");
    assert_eq!((error.step, error.fault.code), (Step::Apply, 422));
    assert_eq!(rig.condition("Degraded"), ("True".to_owned(), "ApplyFailed".to_owned()));
    rig.fake.accept();
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(rig.condition("Degraded").0, "False");
}

#[tokio::test]
async fn a_service_of_somebody_else_is_left_as_it_is() {
    let mut rig = Rig::new();
    let path = "/api/v1/namespaces/default/services/pc-api";
    let theirs = json!({ "metadata": { "name": "pc-api", "namespace": "default" }, "spec": { "a": 1 } });
    rig.fake.put(path, theirs);
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(rig.condition("Degraded"), ("True".to_owned(), "NameTaken".to_owned()));
    assert_eq!(rig.fake.get(path).expect("it is there")["spec"], json!({ "a": 1 }));
}

#[tokio::test]
async fn a_job_is_created_and_never_changed() {
    let mut rig = Rig::new();
    rig.reconcile().await.expect("it reconciles");
    let version = |rig: &Rig| rig.fake.get(&rig.job()).expect("a Job")["metadata"]["resourceVersion"].clone();
    let before = version(&rig);
    rig.finish_job();
    rig.reconcile().await.expect("it reconciles");
    rig.edit(&json!({ "migration": { "resources": { "limits": { "memory": "2Gi" } } } }));
    let finished = version(&rig);
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(version(&rig), finished);
    assert_ne!(before, finished);
    assert!(
        rig.fake
            .take_writes()
            .iter()
            .all(|line| !line.starts_with("PATCH") || !line.contains("/jobs/"))
    );
}

#[tokio::test]
async fn a_status_that_somebody_changed_meanwhile_is_not_overwritten() {
    let rig = Rig::new();
    let api: Api<PowerContextDeployment> = Api::namespaced(rig.fake.client(), "default");
    let stale = rig.resource();
    // Labels and the spec are none of it.
    rig.edit(&json!({ "paused": true }));
    status::write(&api, &stale, Status::default())
        .await
        .expect("no conflict");
    rig.fake
        .change(PATH, &json!({ "status": { "schema": { "attempts": 3 } } }));
    let error = status::write(&api, &stale, Status::default())
        .await
        .expect_err("a conflict");
    assert_eq!((error.step, error.fault.code), (Step::Status, 409));
}

#[tokio::test]
async fn a_deployment_that_is_being_deleted_is_left_to_the_cluster() {
    let mut rig = Rig::new();
    rig.fake.change(
        PATH,
        &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    );
    rig.fake.take_writes();
    rig.reconcile().await.expect("it reconciles");
    assert_eq!(rig.fake.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_resource_that_cannot_be_read_harms_no_other() {
    let mut rig = Rig::new();
    rig.fake
        .change(PATH, &json!({ "spec": { "worker": { "replicas": "canary-5b1c" } } }));
    let requeue = rig.reconcile().await.expect("it is no error");
    assert_eq!(requeue, Requeue::await_change());
}

#[tokio::test]
async fn no_secret_reaches_status_events_or_objects() {
    let mut rig = Rig::new();
    rig.reconcile().await.expect("it reconciles");
    rig.finish_job();
    rig.reconcile().await.expect("it reconciles");
    for object in rig.fake.list("") {
        if object["data"].is_null() {
            assert!(!object.to_string().contains("canary"), "{object}");
        }
    }
}

#[test]
fn gaps_after_failures_double_up_to_a_minute() {
    let gaps: Vec<_> = (1..=8).map(|failures| gap(failures).as_secs()).collect();
    assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(gap(u32::MAX), GAP_MAX);
}
