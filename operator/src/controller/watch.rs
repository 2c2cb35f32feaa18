//! The watches of one scope (the whole cluster or one namespace): they fill the caches and wake reconciles.
//!
//! There is one watch for each kind. An object wakes the deployment that its label names; what is kept of it says `kept`.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, reflector};
use kube::runtime::{WatchStreamExt as _, controller, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use powercontext_crds::v1alpha1::PowerContextDeployment;
use serde::de::DeserializeOwned;

use super::kept::{self, Kept};
use super::observe::{Caches, api_resource};
use super::{Context, on_error, reconcile};
use crate::names::FIELD_MANAGER;
use crate::object::Kind;
use crate::plan::PodSeen;

/// Changes that come within this span wake a deployment once.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// Objects in a page of a list.
const PAGE: u32 = 50;

type Deployment = DeserializeGuard<PowerContextDeployment>;
type Wake = Result<ObjectRef<Deployment>, watcher::Error>;

/// The watches of a scope, not yet running.
pub struct Watches {
    deployments: Store<Deployment>,
    caches: Caches,
    wakes: SelectAll<BoxStream<'static, Wake>>,
}

impl Watches {
    /// Watches of a namespace, or of the cluster. `with_monitors`: the cluster has the kind PodMonitor.
    pub fn new(client: &Client, namespace: Option<&str>, with_monitors: bool) -> Self {
        let mut wakes = SelectAll::new();
        let writer = Writer::default();
        let deployments = writer.as_reader();
        let api: Api<Deployment> = typed(client, namespace);
        let changes = watcher(api, pages()).default_backoff().modify(|object| {
            object.managed_fields_mut().clear();
        });
        let changes = reflector(writer, changes);
        let of_itself = changes.applied_objects().map_ok(|object| ObjectRef::from_obj(&object));
        wakes.push(of_itself.boxed());
        let mut caches = Caches::default();
        for kind in Kind::ALL {
            if kind == Kind::PodMonitor && !with_monitors {
                continue;
            }
            let resource = api_resource(kind);
            let api = dynamic(client, namespace, &resource);
            let departed = (kind == Kind::Job).then(|| caches.departed.clone());
            let (store, changes) = owned(
                api,
                move |object| kept::text(object, kind),
                move |gone| {
                    if let Some(departed) = &departed {
                        departed.note(gone);
                    }
                },
            );
            caches.objects.insert(kind, store);
            wakes.push(changes);
        }
        let (store, changes) = owned(typed::<Pod>(client, namespace), |pod| PodSeen::from_pod(&pod), |_| {});
        caches.pods = Some(store);
        wakes.push(changes);
        Self {
            deployments,
            caches,
            wakes,
        }
    }

    /// The caches that they fill.
    pub fn caches(&self) -> Caches {
        self.caches.clone()
    }

    /// Reconciles what is woken until the shutdown, then finishes what is in flight. `filled` is called once every cache
    /// has been filled for the first time; nothing is reconciled before.
    pub async fn run(
        self,
        context: Arc<Context>,
        shutdown: impl Future<Output = ()> + Send + 'static,
        filled: impl FnOnce(),
    ) {
        let Self {
            deployments,
            caches,
            wakes,
        } = self;
        let reader = deployments.clone();
        let gate = futures_util::FutureExt::shared(async move { caches.filled(&reader).await });
        let opened = gate.clone();
        let shutdown = futures_util::FutureExt::shared(shutdown);
        let queue = wakes.take_until(shutdown.clone());
        let work = controller::applier(
            move |object, context| {
                let gate = gate.clone();
                Box::pin(async move {
                    gate.await;
                    reconcile(object, context).await
                })
            },
            |object, error, context| on_error(&object, error, &context),
            context,
            deployments,
            queue,
            controller::Config::default().debounce(DEBOUNCE),
        );
        let work = work.for_each(|_| std::future::ready(()));
        let announce = async {
            opened.await;
            filled();
        };
        // All on one task: filling the caches needs the watches to be driven, which the applier does.
        let work = std::pin::pin!(work);
        let announce = std::pin::pin!(announce);
        let begun = futures_util::future::select(announce, shutdown);
        // Asked to end before the caches were filled, nothing is in flight, and the applier would wait for them.
        if let Either::Right((Either::Left(((), _)), work)) = futures_util::future::select(work, begun).await {
            work.await;
        }
    }
}

impl Caches {
    /// Waits until every watch has listed once.
    async fn filled(self, deployments: &Store<Deployment>) {
        // A store whose writer is gone is never filled; then the process is ending.
        let _ = deployments.wait_until_ready().await;
        for store in self.objects.values() {
            let _ = store.wait_until_ready().await;
        }
        if let Some(pods) = &self.pods {
            let _ = pods.wait_until_ready().await;
        }
    }
}

fn typed<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn dynamic(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Lists come in pages, so that a first look at a large cluster needs no more memory than the caches.
fn pages() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// The store of a kind of objects with our label, of which `keep` says what is kept, and the deployments that their changes
/// wake. `gone` is told of each that is deleted, before it leaves the store.
fn owned<K, T>(
    api: Api<K>,
    keep: impl Fn(K) -> T + Send + 'static,
    gone: impl Fn(&Kept<T>) + Send + 'static,
) -> (Store<Kept<T>>, BoxStream<'static, Wake>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    let writer = Writer::default();
    let store = writer.as_reader();
    let ours = pages().labels(&format!("app.kubernetes.io/managed-by={FIELD_MANAGER}"));
    let changes = watcher(api, ours).default_backoff().map_ok(move |event| {
        let event = Kept::in_event(event, &keep);
        if let watcher::Event::Delete(object) = &event {
            gone(object);
        }
        event
    });
    let woken = reflector(writer, changes).touched_objects().try_filter_map(|object| {
        let woken = object
            .deployment
            .as_deref()
            .map(|name| ObjectRef::new(name).within(&object.namespace));
        std::future::ready(Ok(woken))
    });
    (store, woken.boxed())
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
