//! The environment of each role: the settings it needs and no others, secrets by reference.
//!
//! A Scheduler gets no key of a model, an API gets one only with `inference.apiAccess`, and a migration gets the database
//! alone. The names set here are the ones that the schema refuses among extra variables.

use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, EnvVar, EnvVarSource, ObjectFieldSelector, SecretKeySelector};
use powercontext_crds::v1alpha1::{ExtraEnv, FamilySpec, Provider, Retry, SecretKeyRef, WorkerSpec};

use super::HTTP_PORT;
use crate::controller::validate::{ValidDeployment, ValidPod};
use crate::names::Role;

const PREFIX: &str = "POWERCONTEXT_SERVER_";
/// What nodes need to learn that an API goes, in seconds.
const LEAVE_SECONDS: i64 = 5;
/// Folder in which a role may write.
pub(super) const HOME: &str = "/var/lib/powercontext";

#[derive(Default)]
struct Env(Vec<EnvVar>);

impl Env {
    fn raw(&mut self, name: &str, value: impl Into<String>) {
        self.0.push(EnvVar {
            name: name.to_owned(),
            value: Some(value.into()),
            value_from: None,
        });
    }

    fn set(&mut self, name: &str, value: impl fmt::Display) {
        self.raw(&format!("{PREFIX}{name}"), format!("{value}"));
    }

    fn maybe(&mut self, name: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    fn secret(&mut self, name: &str, from: Option<&SecretKeyRef>) {
        if let Some(from) = from {
            self.0.push(EnvVar {
                name: name.to_owned(),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector {
                        name: from.name.clone(),
                        key: from.key.clone(),
                        optional: None,
                    }),
                    ..EnvVarSource::default()
                }),
            });
        }
    }

    /// What every process has: where it writes, how it logs, its database, the name of its deployment.
    fn common(&mut self, deployment: &ValidDeployment, pod: &ValidPod) {
        self.raw("POWERCONTEXT_HOME", HOME);
        self.set("LOGGING_FORMAT", "json");
        self.set("DATABASE_KIND", "oceanbase");
        self.secret(&format!("{PREFIX}DATABASE_URL"), pod.secrets.database.as_ref());
        self.set("DEPLOYMENT_MODE", "distributed");
        self.set("DEPLOYMENT_ID", format!("{}/{}", deployment.namespace, deployment.name));
        self.set("DEPLOYMENT_BEHAVIOR_REVISION", &deployment.build);
    }
}

/// Of a role.
pub(super) fn role(deployment: &ValidDeployment, role: Role) -> Vec<EnvVar> {
    let pod = &deployment.roles[&role];
    let spec = &deployment.spec;
    let mut env = Env::default();
    env.common(deployment, pod);
    env.set("DEPLOYMENT_ROLE", role);
    // Every address of the pod, whichever families its cluster has.
    env.set("HTTP_HOST", "::");
    env.set("HTTP_PORT", HTTP_PORT);
    env.set("METRICS_ENABLED", true);
    env.set("AUTH_ENABLED", pod.secrets.token.is_some());
    env.secret(&format!("{PREFIX}AUTH_TOKEN"), pod.secrets.token.as_ref());
    if role == Role::Api {
        env.set("HTTP_LEAVE_SECONDS", leave_seconds(deployment));
        if spec.auth.unauthenticated == Some(true) {
            env.set("ALLOW_UNAUTHENTICATED_NON_LOOPBACK", true);
        }
        env.set("OPERATIONS_DEFAULT_WAIT_SECONDS", spec.operations.default_wait_seconds);
        env.set("OPERATIONS_MAXIMUM_WAIT_SECONDS", spec.operations.maximum_wait_seconds);
        env.set("RATE_LIMIT_ENABLED", spec.rate_limit.is_some());
        if let Some(limit) = &spec.rate_limit {
            env.set("RATE_LIMIT_REQUESTS", limit.requests);
            env.set("RATE_LIMIT_WINDOW_SECONDS", limit.window_seconds);
        }
        if spec.inference.api_access {
            env.set("INFERENCE_API_ACCESS", true);
        }
    }
    if role.schedules() {
        env.set("COORDINATION_SCHEDULER_LEASE_SECONDS", spec.scheduler.lease_seconds);
        env.set("COORDINATION_SCHEDULER_RENEW_SECONDS", spec.scheduler.renew_seconds);
        let mode = spec.supervisor.mode.as_str();
        env.set("RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE", mode);
    }
    if role.works() {
        worker(
            &mut env,
            if role == Role::Worker {
                &spec.worker
            } else {
                &spec.background
            },
        );
        env.set("OPERATIONS_RETENTION_DAYS", spec.operations.retention_days);
    }
    if role.works() || role.schedules() {
        families(&mut env, deployment);
    }
    if role.works() || (role == Role::Api && spec.inference.api_access) {
        model(&mut env, deployment, pod);
    }
    extra(&mut env, &pod.options.extra_env);
    env.0
}

/// How long an API that was asked to end still takes connections: nodes learn of its end when it does, and send it new ones until
/// they have. Never most of its grace.
fn leave_seconds(deployment: &ValidDeployment) -> i64 {
    LEAVE_SECONDS.min(deployment.spec.api.termination_grace_period_seconds / 4)
}

/// Of a migration or a change of mode.
pub(super) fn migrator(deployment: &ValidDeployment) -> Vec<EnvVar> {
    let pod = &deployment.migrator;
    let mut env = Env::default();
    env.common(deployment, pod);
    extra(&mut env, &pod.options.extra_env);
    env.0
}

fn worker(env: &mut Env, spec: &WorkerSpec) {
    env.set("WORKER_CONCURRENCY", spec.concurrency);
    env.set("WORKER_LEASE_SECONDS", spec.lease_seconds);
    env.set("WORKER_HEARTBEAT_SECONDS", spec.heartbeat_seconds);
    env.set("WORKER_SHUTDOWN_GRACE_SECONDS", spec.shutdown_grace_seconds);
}

/// Schedules, caps, timeouts and retry: Schedulers and Workers must agree on all of them.
fn families(env: &mut Env, deployment: &ValidDeployment) {
    let supervisor = &deployment.spec.supervisor;
    let plain: [(&str, Option<&FamilySpec>); 3] = [
        ("MEMORY", supervisor.memory.as_ref()),
        ("TOPIC_MEMORY", supervisor.topic_memory.as_ref()),
        ("EXPERIENCE", supervisor.experience.as_ref()),
    ];
    for (name, family) in plain {
        let Some(family) = family else { continue };
        env.maybe(&format!("RUNTIME_{name}_SCHEDULE_SECONDS"), family.schedule_seconds);
        env.maybe(&format!("RUNTIME_{name}_MAX_WORKERS"), family.max_workers);
        env.maybe(
            &format!("RUNTIME_{name}_WORKER_TIMEOUT_SECONDS"),
            family.timeout_seconds,
        );
        env.maybe(&format!("RUNTIME_{name}_RETRY"), family.retry.map(Retry::as_str));
    }
    if let Some(profile) = &supervisor.profile {
        if let Some(cron) = &profile.cron {
            env.set("RUNTIME_PROFILE_SCHEDULE_ENABLED", true);
            env.set("RUNTIME_PROFILE_CRON", cron);
        }
        env.maybe("RUNTIME_PROFILE_TIMEZONE", profile.timezone.as_ref());
        env.maybe("RUNTIME_PROFILE_MAX_WORKERS", profile.max_workers);
        env.maybe("RUNTIME_PROFILE_WORKER_TIMEOUT_SECONDS", profile.timeout_seconds);
        env.maybe("RUNTIME_PROFILE_RETRY", profile.retry.map(Retry::as_str));
    }
}

fn model(env: &mut Env, deployment: &ValidDeployment, pod: &ValidPod) {
    let generation = &deployment.spec.inference.generation;
    let model = format!("{}:{}", generation.provider.as_str(), generation.model);
    env.set("INFERENCE_GENERATION_MODEL", model);
    env.maybe("INFERENCE_GENERATION_BASE_URL", generation.base_url.as_ref());
    env.maybe("INFERENCE_GENERATION_TIMEOUT_SECONDS", generation.timeout_seconds);
    env.maybe("INFERENCE_GENERATION_MAX_REQUESTS", generation.max_requests);
    let key = match generation.provider {
        Provider::OpenAiChat => "OPENAI_API_KEY",
        Provider::Anthropic => "ANTHROPIC_API_KEY",
    };
    env.secret(key, pod.secrets.provider.as_ref());
}

fn extra(env: &mut Env, extra: &[ExtraEnv]) {
    env.0.extend(extra.iter().map(|one| {
        let from = one.value_from.as_ref();
        EnvVar {
            name: one.name.clone(),
            value: one.value.clone(),
            value_from: from.map(|from| EnvVarSource {
                secret_key_ref: from.secret_key_ref.as_ref().map(|key| SecretKeySelector {
                    name: key.name.clone(),
                    key: key.key.clone(),
                    optional: None,
                }),
                config_map_key_ref: from.config_map_key_ref.as_ref().map(|key| ConfigMapKeySelector {
                    name: key.name.clone(),
                    key: key.key.clone(),
                    optional: None,
                }),
                field_ref: from.field_ref.as_ref().map(|field| ObjectFieldSelector {
                    api_version: Some("v1".to_owned()),
                    field_path: field.field_path.clone(),
                }),
                ..EnvVarSource::default()
            }),
        }
    }));
}
