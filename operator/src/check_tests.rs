//! Against an API server of a map, and the operator's own health server.

use std::sync::Mutex;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake::FakeApi;
use crate::health::{self, Pages, Readiness, Token};
use crate::metrics::Metrics;

const GROUP: &str = "/apis/powercontext.io/v1alpha1";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/system/leases/operator";

/// A cluster in which every promise holds, and an operator that is ready.
async fn installed(stop: &CancellationToken) -> (FakeApi, Subject) {
    let fake = FakeApi::default();
    let resource = json!({ "name": "powercontextdeployments", "singularName": "powercontextdeployment", "namespaced": true,
        "kind": "PowerContextDeployment", "verbs": ["list"] });
    let list = json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "powercontext.io/v1alpha1",
        "resources": [resource] });
    fake.put(GROUP, list);
    fake.put(
        LEASE,
        json!({ "metadata": { "name": "operator" }, "spec": { "holderIdentity": "pod_1" } }),
    );
    let listener = health::bind(0).await.expect("a free port");
    let url = format!("http://127.0.0.1:{}", listener.local_addr().expect("an address").port());
    let (ready, token) = (Readiness::default(), SecretString::from("token"));
    ready.set(true);
    let pages = Pages {
        ready,
        metrics: Metrics::new().expect("valid names"),
        token: Token::new(&token),
    };
    rt::spawn(health::serve(listener, pages, stop.clone()));
    let subject = Subject {
        url,
        namespaces: Vec::new(),
        lease: ("system".to_owned(), "operator".to_owned()),
        token: Some(token),
        patience: Duration::ZERO,
    };
    (fake, subject)
}

#[tokio::test]
async fn it_tells_every_promise_of_an_operator_that_works() {
    let stop = CancellationToken::new();
    let (fake, mut subject) = installed(&stop).await;
    for namespaces in [Vec::new(), vec!["a".to_owned(), "b".to_owned()]] {
        subject.namespaces = namespaces;
        let told = Mutex::new(Vec::new());
        let tell = |promise| told.lock().expect("nobody panicked").push(promise);
        check(&fake.client(), &subject, tell).await.expect("all hold");
        assert_eq!(told.into_inner().expect("nobody panicked"), Promise::ALL);
    }
    assert!(fake.take_writes().is_empty());
    stop.cancel();
}

#[tokio::test]
async fn it_names_the_promise_that_does_not_hold() {
    let stop = CancellationToken::new();
    let (fake, subject) = installed(&stop).await;
    let broken = async |fake: &FakeApi, subject: &Subject| {
        let result = check(&fake.client(), subject, |_| {}).await;
        let Err(CheckError::Broken { promise, .. }) = result else {
            panic!("{result:?}")
        };
        promise
    };
    let other = |change: fn(&mut Subject)| {
        let mut other = subject.clone();
        change(&mut other);
        other
    };
    let unmeasured = other(|subject| subject.token = None);
    assert_eq!(broken(&fake, &unmeasured).await, Promise::Measured);
    let unready = other(|subject| subject.url = "http://127.0.0.1:1".to_owned());
    assert_eq!(broken(&fake, &unready).await, Promise::Ready);
    fake.change(LEASE, &json!({ "spec": { "holderIdentity": "" } }));
    assert_eq!(broken(&fake, &subject).await, Promise::Led);
    fake.remove(GROUP);
    assert_eq!(broken(&fake, &subject).await, Promise::Served);
    stop.cancel();
}
