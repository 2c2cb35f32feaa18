//! The watches and what they wake, against an API server of a map: a story that no test drives by hand.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::events::{Recorder, Reporter};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::controller::dereference::Asker;
use crate::controller::tests::cluster;
use crate::fake::FakeApi;
use crate::metrics::Metrics;
use crate::rt;

const DEPLOYMENT_PATH: &str = "/apis/powercontext.io/v1alpha1/namespaces/default/powercontextdeployments/pc";
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for a fact about what is stored.
async fn until<T>(fake: &FakeApi, fact: impl Fn(&FakeApi) -> Option<T>) -> T {
    let found = rt::within(DEADLINE, async {
        loop {
            if let Some(found) = fact(fake) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    });
    found.await.expect("the fact comes true in time")
}

fn job(fake: &FakeApi) -> Option<Value> {
    fake.list("/jobs/").into_iter().next()
}

fn path_of(job: &Value) -> String {
    let name = job["metadata"]["name"].as_str().expect("a name");
    format!("/apis/batch/v1/namespaces/default/jobs/{name}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_wake_the_deployment_that_they_belong_to_until_the_shutdown() {
    let fake = cluster();
    let client = fake.client();
    let watches = Watches::new(&client, Some("default"), true);
    let reporter = Reporter {
        controller: "test".to_owned(),
        instance: None,
    };
    let context = Context::new(
        client.clone(),
        watches.caches(),
        Recorder::new(client.clone(), reporter),
        Asker::new().expect("a client"),
        Metrics::new().expect("valid names"),
        None,
    );
    let (stop, filled) = (CancellationToken::new(), CancellationToken::new());
    let announce = filled.clone();
    let working = rt::spawn(watches.run(Arc::new(context), stop.clone().cancelled_owned(), move || {
        announce.cancel();
    }));
    rt::within(DEADLINE, filled.cancelled())
        .await
        .expect("the caches are filled");

    let first = until(&fake, job).await;
    fake.change(
        &path_of(&first),
        &json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } }),
    );
    until(&fake, |fake| {
        fake.get("/apis/apps/v1/namespaces/default/deployments/pc-worker")
    })
    .await;

    // What somebody removed comes back, because its removal wakes the deployment.
    fake.remove("/api/v1/namespaces/default/services/pc-api");
    until(&fake, |fake| fake.get("/api/v1/namespaces/default/services/pc-api")).await;

    // Another image is another target.
    fake.change(
        DEPLOYMENT_PATH,
        &json!({ "metadata": { "generation": 2 }, "spec": { "image": "other" } }),
    );
    let name = first["metadata"]["name"].clone();
    until(&fake, |fake| job(fake).filter(|job| job["metadata"]["name"] != name)).await;

    stop.cancel();
    rt::within(DEADLINE, working)
        .await
        .expect("it ends in time")
        .expect("it ends well");
}
