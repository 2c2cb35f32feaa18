//! The pipeline: read, dereference, validate, build, observe, plan, apply, write the status, publish events.
//!
//! A reconcile does what one plan says and ends; what its actions change wakes the next one. Nothing is decided here. A
//! spec that cannot be followed waits for a change, a step that failed is tried again with growing gaps, and no deployment
//! waits for another.

pub mod apply;
pub mod build;
pub mod dereference;
pub mod kept;
pub mod observe;
pub mod rest;
pub mod status;
pub mod validate;
pub mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action as Requeue;
use kube::runtime::events::Recorder;
use kube::{Api, Client, ResourceExt as _};
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};
use tokio::sync::{Semaphore, SemaphorePermit};

use self::build::build;
use self::dereference::Asker;
use self::observe::Caches;
use self::rest::{Basis, is_at_rest};
use self::validate::{Dereferenced, ValidDeployment, validate};
use crate::error::{Fault, ReconcileError, Step, at};
use crate::metrics::{Metrics, Phase};
use crate::names::Role;
use crate::plan::{Facts, Input, Plan, REST_SECONDS, plan, refuse, refused, to_write};
use crate::rt;

/// Gap after the first failure of a deployment; it doubles with each.
const GAP_FIRST: Duration = Duration::from_secs(1);
/// Deployments whose objects are in memory at once. They wait for the API server alone, which all of them share.
const AT_ONCE: usize = 8;
/// Longest gap.
const GAP_MAX: Duration = Duration::from_mins(1);

/// What is remembered of a deployment between two reconciles. Losing it costs a write or a shorter gap.
#[derive(Debug, Clone, Default)]
struct Memory {
    failures: u32,
    written: Option<Timestamp>,
    phase: Option<Phase>,
    /// What the last pass was made from, if it found nothing to do.
    rest: Option<Basis>,
    /// When this process first saw the current migration under way.
    migrating: Option<(String, Timestamp)>,
}

/// What every reconcile needs.
pub struct Context {
    /// Client of the API server.
    pub client: Client,
    /// What is there.
    pub caches: Caches,
    /// Publishes events.
    pub recorder: Recorder,
    /// Asks roles.
    pub asker: Asker,
    /// The operator's metrics.
    pub metrics: Metrics,
    /// Namespace of the operator, where it is known.
    pub operator_namespace: Option<String>,
    memory: Arc<Mutex<BTreeMap<String, Memory>>>,
    places: Arc<Semaphore>,
}

impl Context {
    /// A context that remembers nothing yet.
    pub fn new(
        client: Client,
        caches: Caches,
        recorder: Recorder,
        asker: Asker,
        metrics: Metrics,
        operator_namespace: Option<String>,
    ) -> Self {
        Self {
            client,
            caches,
            recorder,
            asker,
            metrics,
            operator_namespace,
            memory: Arc::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The same with the memory of another scope, so that the metrics count the deployments of all, and with its places.
    #[must_use]
    pub fn sharing(mut self, other: &Self) -> Self {
        self.memory = Arc::clone(&other.memory);
        self.places = Arc::clone(&other.places);
        self
    }

    /// Waits for a place among the deployments whose objects are looked at.
    async fn place(&self) -> SemaphorePermit<'_> {
        self.places.acquire().await.expect("it is never closed")
    }

    fn memory(&self) -> MutexGuard<'_, BTreeMap<String, Memory>> {
        self.memory.lock().expect("no holder panicked")
    }

    fn remember(&self, uid: &str, change: impl FnOnce(&mut Memory)) {
        let mut memory = self.memory();
        change(memory.entry(uid.to_owned()).or_default());
        self.metrics.set_phases(memory.values().filter_map(|one| one.phase));
    }

    fn forget(&self, uid: &str) {
        let mut memory = self.memory();
        memory.remove(uid);
        self.metrics.set_phases(memory.values().filter_map(|one| one.phase));
    }
}

/// One reconcile.
///
/// # Errors
/// The step that failed.
pub async fn reconcile(
    cached: Arc<DeserializeGuard<PowerContextDeployment>>,
    context: Arc<Context>,
) -> Result<Requeue, ReconcileError> {
    let began = rt::now();
    context.metrics.in_flight.inc();
    let uid = cached.uid().unwrap_or_default();
    let result = Box::pin(one(&cached, &context)).await;
    context.metrics.in_flight.dec();
    context.metrics.reconcile_seconds.observe(began.elapsed().as_secs_f64());
    if result.is_ok() {
        context.remember(&uid, |memory| memory.failures = 0);
    }
    result
}

/// What follows a failed reconcile.
pub fn on_error(
    cached: &DeserializeGuard<PowerContextDeployment>,
    error: &ReconcileError,
    context: &Context,
) -> Requeue {
    context.metrics.failed(error.step);
    let uid = cached.uid().unwrap_or_default();
    let mut failures = 0;
    context.remember(&uid, |memory| {
        memory.failures = memory.failures.saturating_add(1);
        failures = memory.failures;
    });
    let gap = gap(failures);
    tracing::warn!(
        namespace = cached.namespace().unwrap_or_default(),
        name = cached.name_any(),
        step = error.step.as_str(),
        fault = %error.fault,
        gap_seconds = gap.as_secs(),
        "reconcile failed"
    );
    Requeue::requeue(gap)
}

fn gap(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    (GAP_FIRST * 2_u32.pow(doublings)).min(GAP_MAX)
}

async fn one(cached: &DeserializeGuard<PowerContextDeployment>, context: &Context) -> Result<Requeue, ReconcileError> {
    let namespace = cached.namespace().unwrap_or_default();
    let name = cached.name_any();
    if let Err(invalid) = &cached.0 {
        // Stored under an older definition. Its parser's message quotes it, so only the place is told.
        let uid = invalid.metadata.uid.clone().unwrap_or_default();
        context.remember(&uid, |memory| memory.phase = Some(Phase::Degraded));
        tracing::error!(
            namespace,
            name,
            "the resource is not what its definition says; it is left alone"
        );
        return Ok(Requeue::await_change());
    }
    let api: Api<PowerContextDeployment> = Api::namespaced(context.client.clone(), &namespace);
    let place = context.place().await;
    // The cache may be older than our own last write of the status, which counts attempts.
    let Some(resource) = api.get_opt(&name).await.map_err(at(Step::Read))? else {
        context.forget(&cached.uid().unwrap_or_default());
        return Ok(Requeue::await_change());
    };
    if resource.metadata.deletion_timestamp.is_some() {
        // Everything is owned by it; the cluster takes it away.
        return Ok(Requeue::await_change());
    }
    let read = Dereferenced {
        operator_namespace: context.operator_namespace.clone(),
        secrets: dereference::secrets(&context.client, &namespace, &resource.spec).await?,
    };
    let valid = validate(&resource, &read);
    // Roles may take their time to answer; nobody waits for those of another deployment.
    drop(place);
    let facts = match &valid {
        Ok(deployment) => ask(context, deployment, &read).await,
        Err(_) => Facts::default(),
    };
    let _place = context.place().await;
    let last = context.caches.departed.last();
    let basis = context.caches.basis(&resource, &read, &facts);
    let uid = resource.uid().unwrap_or_default();
    if context
        .memory()
        .get(&uid)
        .is_some_and(|memory| memory.rest.as_ref() == Some(&basis))
    {
        return Ok(Requeue::requeue(Duration::from_secs(REST_SECONDS)));
    }
    let (plan, fault) = match &valid {
        Err(invalid) => (refuse(&resource, invalid, rt::time_of_day()), None),
        Ok(deployment) => follow(context, &resource, deployment, &facts).await?,
    };
    conclude(context, &api, &resource, &plan, fault.as_ref()).await?;
    let rests = fault.is_none() && valid.is_ok() && is_at_rest(&plan, resource.status.as_ref());
    context.remember(&uid, |memory| memory.rest = rests.then_some(basis));
    if valid.is_ok() {
        context.caches.departed.forget(&namespace, &name, last);
    }
    match fault {
        Some(fault) => Err(ReconcileError {
            step: Step::Apply,
            fault,
        }),
        None => Ok(Requeue::requeue(Duration::from_secs(plan.requeue_seconds))),
    }
}

/// Plans and acts; a refused action ends it and is told with the plan.
async fn follow(
    context: &Context,
    resource: &PowerContextDeployment,
    deployment: &ValidDeployment,
    facts: &Facts,
) -> Result<(Plan, Option<Fault>), ReconcileError> {
    let objects = build(deployment);
    let observed = context.caches.observe(&context.client, deployment, &objects).await?;
    let status = resource.status.clone().unwrap_or_default();
    let plan = plan(Input {
        deployment,
        objects: &objects,
        status: &status,
        observed: &observed,
        facts,
        now: rt::time_of_day(),
    });
    time_migration(context, deployment, &plan.status);
    for action in &plan.actions {
        tracing::info!(namespace = deployment.namespace, name = deployment.name, action = %told(action), "acting");
        if let Err(error) = apply::act(&context.client, &deployment.namespace, &observed, action).await {
            return Ok((plan, Some(error.fault)));
        }
    }
    Ok((plan, None))
}

/// What the roles say. Each Worker is asked what it holds when a Deployment of Workers is about to lose pods.
async fn ask(context: &Context, deployment: &ValidDeployment, read: &Dereferenced) -> Facts {
    let ValidDeployment { namespace, name, .. } = deployment;
    let shrinks = Role::ALL.into_iter().filter(|role| role.works()).any(|role| {
        let replicas = context.caches.replicas(namespace, &deployment.base.role(role));
        replicas.is_some_and(|replicas| replicas > i64::from(build::replicas(deployment, role)))
    });
    let pods = context.caches.pods_of(namespace, name);
    let token = deployment.spec.auth.token_secret_ref.as_ref();
    context.asker.ask(&pods, read, token, shrinks).await
}

fn told(action: &crate::plan::Action) -> String {
    use crate::plan::Action::{Apply, Delete, DeletionCost};
    match action {
        Apply(object) => format!("apply {} {}", object.key.kind.as_str(), object.key.name),
        Delete(key) => format!("delete {} {}", key.kind.as_str(), key.name),
        DeletionCost { pod, cost } => format!("deletion cost of pod {pod} is {cost}"),
    }
}

/// How long a migration took that this process saw from its beginning.
fn time_migration(context: &Context, deployment: &ValidDeployment, status: &Status) {
    let target = &deployment.target_hash;
    let is_done = status.schema.completed_hash.as_ref() == Some(target);
    context.remember(&deployment.uid, |memory| match &memory.migrating {
        Some((seen, since)) if seen == target && is_done => {
            let seconds = rt::time_of_day().as_second() - since.as_second();
            let seconds = u32::try_from(seconds).unwrap_or_default();
            context.metrics.migration_seconds.observe(f64::from(seconds));
            memory.migrating = None;
        }
        Some((seen, _)) if seen == target => {}
        _ if is_done => memory.migrating = None,
        _ => memory.migrating = Some((target.clone(), rt::time_of_day())),
    });
}

/// Writes the status if it has to be written, and tells what changed.
async fn conclude(
    context: &Context,
    api: &Api<PowerContextDeployment>,
    resource: &PowerContextDeployment,
    plan: &Plan,
    fault: Option<&Fault>,
) -> Result<(), ReconcileError> {
    let now = rt::time_of_day();
    let uid = resource.uid().unwrap_or_default();
    let new = match fault {
        None => plan.status.clone(),
        Some(fault) => refused(resource, plan, &fault.to_string(), now),
    };
    let last = context.memory().get(&uid).and_then(|memory| memory.written);
    let old = resource.status.clone().unwrap_or_default();
    context.remember(&uid, |memory| memory.phase = Some(status::phase(&new)));
    let Some(new) = to_write(&old, &new, last, now) else {
        return Ok(());
    };
    status::write(api, resource, new.clone()).await?;
    context.remember(&uid, |memory| memory.written = Some(now));
    status::publish(&context.recorder, resource, &new).await
}

#[cfg(test)]
#[path = "controller/controller_tests.rs"]
pub(crate) mod tests;
