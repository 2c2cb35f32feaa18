//! The Deployment of each role, with probes that fit what the role does.
//!
//! Liveness asks whether the process answers and nothing else: a database that is away must not restart pods. Readiness
//! asks whether the role can do its work. The startup probe gives a start its time.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use powercontext_crds::v1alpha1::WorkerSpec;

use super::{env, meta, pod};
use crate::controller::validate::ValidDeployment;
use crate::names::{Role, TEMPLATE_HASH, hash};
use crate::object::{Kind, Object};

/// API pods where neither the spec nor an autoscaler says how many.
const API_REPLICAS: i32 = 2;
/// What a Worker's pod gets beyond grace and heartbeat, in seconds.
const TERMINATION_MARGIN_SECONDS: i64 = 15;
/// Earlier templates that can be gone back to.
const HISTORY: i32 = 3;
/// Seconds after which a roll-out without progress counts as failed.
const PROGRESS_SECONDS: i32 = 600;

/// How patient the probes of a role are.
struct Patience {
    /// Failed checks, two seconds apart, until a start has failed.
    startup: i32,
    /// Failed checks, ten seconds apart, until a process counts as dead.
    liveness: i32,
    /// Failed checks, five seconds apart, until a pod counts as not ready.
    readiness: i32,
}

const fn patience(role: Role) -> Patience {
    match role {
        // Behind a Service: out of rotation quickly, back quickly.
        Role::Api => Patience {
            startup: 30,
            liveness: 3,
            readiness: 2,
        },
        Role::Scheduler => Patience {
            startup: 30,
            liveness: 3,
            readiness: 3,
        },
        // Nobody calls it, and a restart costs what it runs.
        Role::Worker | Role::Background => Patience {
            startup: 60,
            liveness: 6,
            readiness: 3,
        },
    }
}

/// Pods that the role should have, before an autoscaler has its say.
pub fn replicas(deployment: &ValidDeployment, role: Role) -> i32 {
    let spec = &deployment.spec;
    match role {
        Role::Api => match &spec.autoscaling.api {
            Some(scaling) => scaling.min_replicas,
            None => spec.api.replicas.unwrap_or(API_REPLICAS),
        },
        Role::Scheduler => spec.scheduler.replicas,
        Role::Worker => spec.worker.replicas,
        Role::Background => spec.background.replicas,
    }
}

/// Seconds from the request to end until a pod of the role is killed.
fn grace_seconds(deployment: &ValidDeployment, role: Role) -> i64 {
    let spec = &deployment.spec;
    let of = |worker: &WorkerSpec| {
        worker
            .termination_grace_period_seconds
            .unwrap_or(worker.shutdown_grace_seconds + worker.heartbeat_seconds + TERMINATION_MARGIN_SECONDS)
    };
    match role {
        Role::Api => spec.api.termination_grace_period_seconds,
        Role::Scheduler => spec.scheduler.termination_grace_period_seconds,
        Role::Worker => of(&spec.worker),
        Role::Background => of(&spec.background),
    }
}

/// The Deployment of a role.
pub(super) fn deployment(deployment: &ValidDeployment, role: Role) -> Object {
    let valid = &deployment.roles[&role];
    let mut container = pod::container(deployment, valid, &["server", "run"], env::role(deployment, role));
    let patience = patience(role);
    container.ports = Some(vec![pod::http_port()]);
    container.startup_probe = Some(probe("/health/live", 2, 2, patience.startup));
    container.liveness_probe = Some(probe("/health/live", 10, 5, patience.liveness));
    // The dependencies behind readiness answer within two seconds or count as timed out.
    container.readiness_probe = Some(probe("/health/ready", 5, 4, patience.readiness));
    let component = role.as_str();
    let template = pod::template(deployment, valid, component, container, grace_seconds(deployment, role));
    let template_hash = {
        let text = serde_json::to_string(&template).expect("a template is JSON");
        hash([text.as_str()])[..16].to_owned()
    };
    let mut metadata = meta(deployment, deployment.base.role(role), component);
    metadata.annotations = Some([(TEMPLATE_HASH.to_owned(), template_hash)].into());
    let typed = Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(replicas(deployment, role)),
            selector: LabelSelector {
                match_labels: Some(deployment.base.selector(component)),
                match_expressions: None,
            },
            template,
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            revision_history_limit: Some(HISTORY),
            progress_deadline_seconds: Some(PROGRESS_SECONDS),
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    Object::new(Kind::Deployment, &typed)
}

fn probe(path: &str, period_seconds: i32, timeout_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(timeout_seconds),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}
