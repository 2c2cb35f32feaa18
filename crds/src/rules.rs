//! The rules that the API server evaluates when an object is created or changed, each with the sentence it refuses with.
//!
//! Only functions and fields of Kubernetes 1.30 are used. Every list and string that a rule walks over has a limit in
//! the schema, because the API server refuses a definition whose rules could cost too much.

use serde_json::{Value, json};

/// Environment variables that the operator sets itself: names, and beginnings of names, of which an extra variable would
/// either be overridden or undo what the spec says.
pub(crate) const RESERVED_ENV: &[&str] = &[
    "POWERCONTEXT_HOME$",
    "(OPENAI|ANTHROPIC)_API_KEY$",
    "POWERCONTEXT_SERVER_ALLOW_UNAUTHENTICATED_NON_LOOPBACK$",
    "POWERCONTEXT_SERVER_AUTH_",
    "POWERCONTEXT_SERVER_COORDINATION_SCHEDULER_",
    "POWERCONTEXT_SERVER_DATABASE_",
    "POWERCONTEXT_SERVER_DEPLOYMENT_",
    "POWERCONTEXT_SERVER_HTTP_",
    "POWERCONTEXT_SERVER_INFERENCE_API_ACCESS$",
    "POWERCONTEXT_SERVER_INFERENCE_GENERATION_(MODEL|BASE_URL|TIMEOUT_SECONDS|MAX_REQUESTS)$",
    "POWERCONTEXT_SERVER_LOGGING_FORMAT$",
    "POWERCONTEXT_SERVER_METRICS_ENABLED$",
    "POWERCONTEXT_SERVER_OPERATIONS_(DEFAULT_WAIT|MAXIMUM_WAIT|CLEANUP_INTERVAL)_SECONDS$",
    "POWERCONTEXT_SERVER_OPERATIONS_(RETENTION_DAYS|CLEANUP_BATCH_SIZE)$",
    "POWERCONTEXT_SERVER_RATE_LIMIT_",
    "POWERCONTEXT_SERVER_RUNTIME_(ARTIFACT_PROCESSING_(ROLE|SUPERVISOR_MODE)|SCHEDULE_SECONDS|PROFILE_(CRON|TIMEZONE|SCHEDULE_ENABLED))$",
    "POWERCONTEXT_SERVER_RUNTIME_(MEMORY|TOPIC_MEMORY|EXPERIENCE|PROFILE)_(SCHEDULE_SECONDS|MAX_WORKERS|WORKER_TIMEOUT_SECONDS|RETRY)$",
    "POWERCONTEXT_SERVER_WORKER_(CONCURRENCY|LEASE_SECONDS|HEARTBEAT_SECONDS|SHUTDOWN_GRACE_SECONDS)$",
];

/// One entry of `x-kubernetes-validations`.
fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// On the object itself: only its name is visible here.
pub(crate) fn root() -> Value {
    json!([rule(
        "size(self.metadata.name) <= 63",
        "the name is written into labels and may have at most 63 characters"
    )])
}

/// On one extra variable.
pub(crate) fn extra_env() -> Value {
    json!([
        rule(
            &format!("!self.name.matches('^({})')", RESERVED_ENV.join("|")),
            "the operator sets this variable itself; use the field of the spec it comes from"
        ),
        rule(
            "!(has(self.value) && has(self.valueFrom))",
            "value and valueFrom exclude each other"
        ),
    ])
}

/// On the source of a variable.
pub(crate) fn env_source() -> Value {
    json!([rule(
        "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
        "exactly one source of a variable must be named"
    )])
}

/// On the pod fields of a role.
pub(crate) fn pod() -> Value {
    json!([
        rule(
            "!has(self.extraVolumeMounts) || (has(self.extraVolumes) && self.extraVolumeMounts.all(m, self.extraVolumes.exists(v, v.name == m.name)))",
            "every extra mount must name one of extraVolumes"
        ),
        rule(
            "!has(self.extraVolumes) || self.extraVolumes.all(v, !(v.name in ['tmp', 'data']))",
            "the volumes tmp and data are the operator's own"
        ),
        rule(
            "!has(self.annotations) || self.annotations.all(k, !k.startsWith('powercontext.io/'))",
            "annotations under powercontext.io/ are the operator's own"
        ),
    ])
}

/// On `worker` and `background`: the relations that a running item's lease depends on.
pub(crate) fn worker() -> Value {
    json!([
        rule(
            "3 * self.heartbeatSeconds < self.leaseSeconds",
            "three heartbeats must fit into the lease: 3 * heartbeatSeconds < leaseSeconds"
        ),
        rule(
            "self.shutdownGraceSeconds < self.leaseSeconds",
            "a draining Worker must not outlive its leases: shutdownGraceSeconds < leaseSeconds"
        ),
        rule(
            "!has(self.terminationGracePeriodSeconds) || self.terminationGracePeriodSeconds > self.shutdownGraceSeconds + self.heartbeatSeconds",
            "the pod must outlive its drain: terminationGracePeriodSeconds > shutdownGraceSeconds + heartbeatSeconds"
        ),
    ])
}

/// On `scheduler`.
pub(crate) fn scheduler() -> Value {
    json!([rule(
        "3 * self.renewSeconds <= self.leaseSeconds",
        "three renewals must fit into the lease: 3 * renewSeconds <= leaseSeconds"
    )])
}

/// On `database`.
pub(crate) fn database() -> Value {
    json!([rule(
        "self.identity == oldSelf.identity",
        "another database is another deployment: make a new PowerContextDeployment instead of changing database.identity"
    )])
}

/// On `auth`.
pub(crate) fn auth() -> Value {
    json!([rule(
        "has(self.tokenSecretRef) != (has(self.unauthenticated) && self.unauthenticated)",
        "either tokenSecretRef or unauthenticated: true, and not both"
    )])
}

/// On the Profile family.
pub(crate) fn profile() -> Value {
    json!([rule(
        "!has(self.timezone) || has(self.cron)",
        "timezone means nothing without cron"
    )])
}

/// On `operations`.
pub(crate) fn operations() -> Value {
    json!([rule(
        "self.defaultWaitSeconds <= self.maximumWaitSeconds",
        "defaultWaitSeconds may not exceed maximumWaitSeconds"
    )])
}

/// On `migration`.
pub(crate) fn migration() -> Value {
    json!([rule(
        "self.backoffSeconds <= self.backoffMaxSeconds",
        "backoffSeconds may not exceed backoffMaxSeconds"
    )])
}

/// On `autoscaling.api`.
pub(crate) fn api_autoscaling() -> Value {
    json!([rule(
        "self.minReplicas <= self.maxReplicas",
        "minReplicas may not exceed maxReplicas"
    )])
}

/// On `service`.
pub(crate) fn service() -> Value {
    json!([rule(
        "!has(self.nodePort) || self.type != 'ClusterIP'",
        "nodePort means nothing for a Service of type ClusterIP"
    )])
}

/// On `ingress`.
pub(crate) fn ingress() -> Value {
    json!([rule(
        "!has(self.tlsSecretName) || has(self.host)",
        "tlsSecretName means nothing without host"
    )])
}

/// On `networkPolicy`.
pub(crate) fn network_policy() -> Value {
    json!([rule(
        "self.enabled || !has(self.allowFromNamespaces)",
        "allowFromNamespaces means nothing while the policy is not enabled"
    )])
}

/// On `podDisruptionBudget`.
pub(crate) fn disruption_budget() -> Value {
    json!([rule(
        "self.enabled || !has(self.maxUnavailable)",
        "maxUnavailable means nothing while the budget is not enabled"
    )])
}

/// On `monitoring`.
pub(crate) fn monitoring() -> Value {
    json!([rule(
        "self.podMonitor || (!has(self.intervalSeconds) && !has(self.labels))",
        "intervalSeconds and labels mean nothing without podMonitor: true"
    )])
}

/// On the whole spec: what two of its parts say about each other.
pub(crate) fn spec() -> Value {
    json!([
        rule(
            "!(has(self.autoscaling) && has(self.autoscaling.api) && has(self.api.replicas))",
            "api.replicas means nothing while autoscaling.api decides; remove one of them"
        ),
        rule(
            "!(has(self.autoscaling) && has(self.autoscaling.api)) || (has(self.api.resources) && has(self.api.resources.requests) && has(self.api.resources.requests.cpu))",
            "autoscaling.api scales by CPU and needs api.resources.requests.cpu"
        ),
    ])
}
