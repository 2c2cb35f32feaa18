//! Plays the scheduler and the node of one namespace: pods are bound, run, become ready and end as the test's script says.
//!
//! Whatever a pod's fate is, it is told in the pod's status exactly as a kubelet tells it; nothing else of the cluster is
//! pretended. A pod that is asked to end does so when the script lets it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use powercontext_operator::rt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::control_plane::NODE;
use crate::roles::{Roles, component, role};

/// Pause between two looks at pods that nothing happened to.
const LOOK: Duration = Duration::from_millis(500);

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits for a node.
    Pending,
    /// Its image cannot be pulled, as Kubernetes calls it.
    Image(&'static str),
    /// It runs.
    Running {
        /// Whether its readiness probe succeeds.
        ready: bool,
    },
    /// It ended, and this was the end of its output.
    Exit {
        /// Exit code.
        code: i32,
        /// Last line.
        line: String,
    },
    /// It used more memory than it may.
    OutOfMemory,
    /// Its node had no room any more.
    Evicted,
    /// It ends again and again.
    Crash {
        /// Last exit code.
        code: i32,
    },
}

impl Fate {
    /// A migration that found an older schema and brought it to revision 6.
    pub fn migrated() -> Self {
        Self::Exit {
            code: 0,
            line: report(5, 6, 0),
        }
    }
}

/// The last line of a migrator: from which revision, to which, and its exit code.
pub fn report(current: i64, target: i64, code: i32) -> String {
    let step = json!({ "revision": target, "name": "distributed_roles", "additive": true, "statements": 4 });
    json!({ "current": current, "target": target, "steps": [step], "code": code, "payload_version": 1 }).to_string()
}

type Script = Box<dyn Fn(&Pod) -> Fate + Send + Sync>;
type Drain = Box<dyn Fn(&Pod) -> bool + Send + Sync>;

struct Shared {
    client: Client,
    namespace: String,
    roles: Roles,
    script: Mutex<Script>,
    may_end: Mutex<Drain>,
    nudge: Notify,
}

/// A kubelet that ends with the test.
pub struct Kubelet {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Jobs succeed at once and everything else runs and is ready.
fn all_is_well(pod: &Pod) -> Fate {
    match role(pod) {
        Some(_) => Fate::Running { ready: true },
        None => Fate::migrated(),
    }
}

impl Kubelet {
    /// Plays a namespace from now on.
    pub fn start(client: Client, namespace: &str, roles: Roles) -> Self {
        let shared = Arc::new(Shared {
            client,
            namespace: namespace.to_owned(),
            roles,
            script: Mutex::new(Box::new(all_is_well)),
            may_end: Mutex::new(Box::new(|_| true)),
            nudge: Notify::new(),
        });
        let stop = CancellationToken::new();
        let (run, over) = (Arc::clone(&shared), stop.clone());
        rt::spawn(async move { over.run_until_cancelled(run.play(over.clone())).await });
        Self { shared, stop }
    }

    /// From now on pods fare like this.
    pub fn script(&self, script: impl Fn(&Pod) -> Fate + Send + Sync + 'static) {
        *self.shared.script.lock().expect("no holder panicked") = Box::new(script);
        self.shared.nudge.notify_one();
    }

    /// Pods of this component fare like this, all others well.
    pub fn only(&self, of: &'static str, fate: Fate) {
        self.script(move |pod| {
            if component(pod) == of {
                fate.clone()
            } else {
                all_is_well(pod)
            }
        });
    }

    /// From now on everything is well.
    pub fn well(&self) {
        self.script(all_is_well);
    }

    /// Pods that are asked to end do so when this says that they may.
    pub fn may_end(&self, may: impl Fn(&Pod) -> bool + Send + Sync + 'static) {
        *self.shared.may_end.lock().expect("no holder panicked") = Box::new(may);
        self.shared.nudge.notify_one();
    }
}

/// What the kubelet itself knows of a pod.
#[derive(Default)]
struct Known {
    fate: Option<Fate>,
    address: Option<String>,
    serving: CancellationToken,
    bound: bool,
}

impl Shared {
    async fn play(&self, stop: CancellationToken) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut events = watcher(api.clone(), watcher::Config::default())
            .default_backoff()
            .boxed();
        let mut known: BTreeMap<String, Known> = BTreeMap::new();
        loop {
            tokio::select! {
                event = events.try_next() => self.note(event.ok().flatten()),
                () = self.nudge.notified() => {}
                () = rt::sleep(LOOK) => {}
            }
            let pods = self.roles.pods().clone();
            known.retain(|uid, known| {
                let stays = pods.contains_key(uid);
                if !stays {
                    known.serving.cancel();
                }
                stays
            });
            for (uid, pod) in pods {
                let known = known.entry(uid).or_insert_with(|| Known {
                    serving: stop.child_token(),
                    ..Known::default()
                });
                // The pod may have changed or gone meanwhile; the next look sees it as it is.
                let _ = self.tend(&api, &pod, known).await;
            }
        }
    }

    fn note(&self, event: Option<watcher::Event<Pod>>) {
        let mut pods = self.roles.pods();
        match event {
            Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                pods.insert(pod.uid().unwrap_or_default(), Arc::new(pod));
            }
            Some(watcher::Event::Delete(pod)) => {
                pods.remove(&pod.uid().unwrap_or_default());
            }
            Some(watcher::Event::Init) => pods.clear(),
            Some(watcher::Event::InitDone) | None => {}
        }
    }

    async fn tend(&self, api: &Api<Pod>, pod: &Pod, known: &mut Known) -> anyhow::Result<()> {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let may = (self.may_end.lock().expect("no holder panicked"))(pod);
            if may {
                self.roles.member(&name, false);
                end(api, pod).await?;
            }
            return Ok(());
        }
        let fate = (self.script.lock().expect("no holder panicked"))(pod);
        // Nobody else writes a pod's status, so what was told once stays told.
        if fate == Fate::Pending || known.fate.as_ref() == Some(&fate) {
            return Ok(());
        }
        let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if !is_bound && !known.bound {
            let binding = json!({
                "metadata": { "name": name },
                "target": { "apiVersion": "v1", "kind": "Node", "name": NODE },
            });
            let binding: Binding = serde_json::from_value(binding)?;
            let params = PostParams::default();
            let _: Value = api.create_subresource("binding", &name, &params, &binding).await?;
            known.bound = true;
        }
        if matches!(fate, Fate::Running { .. }) && known.address.is_none() && role(pod).is_some() {
            let address = self.roles.serve(&name, known.serving.clone()).await?;
            known.address = Some(address.to_string());
        }
        self.roles.member(&name, fate == Fate::Running { ready: true });
        let patch = json!({ "status": status(pod, &fate, known.address.as_deref()) });
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        known.fate = Some(fate);
        Ok(())
    }
}

async fn end(api: &Api<Pod>, pod: &Pod) -> anyhow::Result<()> {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    api.delete(&pod.name_any(), &params).await?;
    Ok(())
}

/// The status as a kubelet writes it.
fn status(pod: &Pod, fate: &Fate, address: Option<&str>) -> Value {
    let spec = pod.spec.clone().unwrap_or_default();
    let container = spec.containers.first().cloned().unwrap_or_default();
    let ended = |code: i32, reason: &str, message: &str| json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } });
    let (phase, ready, state, last) = match fate {
        Fate::Pending => ("Pending", false, json!({ "waiting": {} }), json!({})),
        Fate::Image(reason) => ("Pending", false, json!({ "waiting": { "reason": reason } }), json!({})),
        Fate::Running { ready } => ("Running", *ready, json!({ "running": {} }), json!({})),
        Fate::Exit { code: 0, line } => ("Succeeded", false, ended(0, "Completed", line), json!({})),
        Fate::Exit { code, line } => ("Failed", false, ended(*code, "Error", line), json!({})),
        Fate::OutOfMemory => ("Failed", false, ended(137, "OOMKilled", ""), json!({})),
        Fate::Evicted => ("Failed", false, ended(137, "Error", ""), json!({})),
        Fate::Crash { code } => (
            "Running",
            false,
            json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            ended(*code, "Error", ""),
        ),
    };
    let told = |holds: bool| if holds { "True" } else { "False" };
    let mut conditions = vec![
        json!({ "type": "PodScheduled", "status": "True" }),
        json!({ "type": "Initialized", "status": "True" }),
        json!({ "type": "ContainersReady", "status": told(ready) }),
        json!({ "type": "Ready", "status": told(ready) }),
    ];
    if *fate == Fate::Evicted {
        conditions.push(json!({ "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet" }));
    }
    let mut status = json!({
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [{
            "name": container.name, "image": container.image, "imageID": "", "ready": ready,
            "restartCount": 0, "started": ready, "state": state, "lastState": last,
        }],
    });
    if let Some(address) = address {
        status["podIP"] = address.into();
        status["podIPs"] = json!([{ "ip": address }]);
    }
    if *fate == Fate::Evicted {
        status["reason"] = "Evicted".into();
    }
    status
}
