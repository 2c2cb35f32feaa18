//! A change of the coordination mode: never two modes alive, whatever happens to the operator meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use powercontext_cluster_tests::kubelet::Fate;
use powercontext_cluster_tests::roles::{component, role};
use powercontext_cluster_tests::stage::{SOON, Stage, spec_with};
use powercontext_cluster_tests::wait::until;
use powercontext_operator::names::Role;
use powercontext_operator::rt;
use serde_json::json;

/// How long an old Scheduler takes to end.
const ENDS_AFTER: Duration = Duration::from_secs(2);

/// What was alive together.
#[derive(Clone, Default)]
struct Modes {
    /// Pods that coordinate, each with its mode.
    alive: Arc<Mutex<BTreeMap<String, String>>>,
    /// Pods that met another mode, and Jobs that met a pod.
    mixed: Arc<Mutex<Vec<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panicked")
}

/// The coordination mode that a pod was started in.
fn mode_of(pod: &Pod) -> Option<String> {
    let env = pod.spec.as_ref()?.containers.first()?.env.as_ref()?;
    let variable = env.iter().find(|one| one.name.ends_with("_SUPERVISOR_MODE"))?;
    variable.value.clone()
}

impl Modes {
    /// Watches the pods of a stage, which take their time to end.
    fn watch(stage: &Stage) -> Self {
        let modes = Self::default();
        let (seen, known) = (modes.clone(), Mutex::new(BTreeSet::new()));
        stage.kubelet.script(move |pod| seen.fate(pod, &mut lock(&known)));
        let (seen, since) = (modes.clone(), Mutex::new(BTreeMap::new()));
        stage.kubelet.may_end(move |pod| {
            let mut since = lock(&since);
            let asked: &mut tokio::time::Instant = since.entry(pod.name_any()).or_insert_with(rt::now);
            let over = asked.elapsed() > ENDS_AFTER;
            if over {
                lock(&seen.alive).remove(&pod.name_any());
            }
            over
        });
        modes
    }

    /// What becomes of a pod; `known` are the Jobs' that were seen before.
    fn fate(&self, pod: &Pod, known: &mut BTreeSet<String>) -> Fate {
        let name = pod.name_any();
        if component(pod) == "switch-mode" {
            if known.insert(name.clone()) && !lock(&self.alive).is_empty() {
                self.met(&name);
            }
            return Fate::Exit {
                code: 0,
                line: String::new(),
            };
        }
        if let Some(mode) = mode_of(pod).filter(|_| role(pod).is_some_and(Role::schedules)) {
            lock(&self.alive).insert(name.clone(), mode.clone());
            if lock(&self.alive).values().any(|other| *other != mode) {
                self.met(&name);
            }
        }
        if role(pod).is_some() {
            Fate::Running { ready: true }
        } else {
            Fate::migrated()
        }
    }

    fn met(&self, name: &str) {
        let told = format!("{name} beside {:?}", lock(&self.alive));
        lock(&self.mixed).push(told);
    }
}

#[tokio::test]
async fn a_change_of_mode_with_a_killed_operator_never_has_two_modes_alive() -> anyhow::Result<()> {
    let stage = Stage::new("mode").await?;
    let setup = stage.setup(false).await?;
    let mut operator = setup.start("operator")?;
    let with_mode = |mode: &str| {
        spec_with(
            &json!({ "scheduler": { "replicas": 2 }, "background": { "replicas": 1 }, "supervisor": { "mode": mode } }),
        )
    };
    stage.apply(&with_mode("global")).await?;
    stage.until_ready().await?;
    let modes = Modes::watch(&stage);
    until("the kubelet knows them", SOON, async || {
        Ok((lock(&modes.alive).len() == 3).then_some(()))
    })
    .await?;
    stage.apply(&with_mode("dedicated")).await?;
    until("the Schedulers go down", SOON, async || {
        let scheduler = stage.deployment(Role::Scheduler).await?.and_then(|one| one.spec);
        Ok(scheduler.filter(|spec| spec.replicas == Some(0)))
    })
    .await?;
    operator.kill()?;
    operator = setup.start("operator")?;
    let made = until("the Job is made", SOON, async || {
        let writes = stage.audit.writes()?;
        let made = writes
            .iter()
            .any(|one| one.resource == "jobs" && one.verb == "create" && one.name.contains("switch-mode"));
        Ok(made.then_some(()))
    });
    stage.explained(made.await).await?;
    operator.kill()?;
    let _operator = setup.start("operator")?;
    stage.until_ready().await?;
    ensure!(lock(&modes.mixed).is_empty(), "{:?}", lock(&modes.mixed));
    ensure!(stage.status().await?.mode.as_deref() == Some("dedicated"));
    let gone = until("the Job is cleaned up", SOON, async || {
        Ok(stage.jobs("switch-mode").await?.is_empty().then_some(()))
    });
    stage.explained(gone.await).await
}
