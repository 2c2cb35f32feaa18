//! The Jobs: a migration, its plan, and a change of the coordination mode.
//!
//! A Job makes one attempt. Further attempts are the planner's decision, because only it can tell a database that was away
//! from one that refused, and can wait as long as the spec says. No probes: a Job is done or it is not.

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::{env, meta, pod};
use crate::controller::validate::ValidDeployment;
use crate::names::hash;
use crate::object::{Kind, Object};

/// Component of a migration.
pub const MIGRATE: &str = "migrate";
/// Component of a look at what a migration would do.
pub const PLAN: &str = "plan";
/// Component of a change of mode.
pub const SWITCH_MODE: &str = "switch-mode";
/// Longest run of a plan or a change of mode, in seconds.
const SECONDS_MAX: i64 = 300;
/// Seconds from the request to end until the pod is killed: a migrator finishes the statement it is in.
const GRACE_SECONDS: i64 = 60;

/// The Job that migrates to the target.
pub(super) fn migrate(deployment: &ValidDeployment) -> Object {
    let name = deployment.base.job(MIGRATE, &deployment.target_hash);
    job(
        deployment,
        name,
        MIGRATE,
        &["server", "migrate", "--output", "json"],
        None,
    )
}

/// The Job that tells what the migration to the target would do, and changes nothing.
pub(super) fn plan(deployment: &ValidDeployment) -> Object {
    let name = deployment.base.job(PLAN, &deployment.target_hash);
    let args = ["server", "migrate", "--plan", "--output", "json"];
    job(deployment, name, PLAN, &args, Some(SECONDS_MAX))
}

/// The Job that stores the spec's mode.
pub(super) fn switch_mode(deployment: &ValidDeployment) -> Object {
    let mode = deployment.spec.supervisor.mode.as_str();
    let name = deployment
        .base
        .job(SWITCH_MODE, &hash([mode, deployment.target_hash.as_str()]));
    let args = ["server", "switch-mode", "--to", mode];
    job(deployment, name, SWITCH_MODE, &args, Some(SECONDS_MAX))
}

fn job(deployment: &ValidDeployment, name: String, component: &str, args: &[&str], deadline: Option<i64>) -> Object {
    let valid = &deployment.migrator;
    let container = pod::container(deployment, valid, args, env::migrator(deployment));
    let mut template: PodTemplateSpec = pod::template(deployment, valid, component, container, GRACE_SECONDS);
    if let Some(spec) = &mut template.spec {
        spec.restart_policy = Some("Never".to_owned());
        spec.topology_spread_constraints = None;
    }
    let typed = Job {
        metadata: meta(deployment, name, component),
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: deadline,
            template,
            ..JobSpec::default()
        }),
        status: None,
    };
    Object::new(Kind::Job, &typed)
}
