//! Version `v1alpha1` of `PowerContextDeployment`: the spec from the outside in, and its status.
//!
//! Names are those of Kubernetes where it has one. Lengths of time are whole seconds and say so in their names. A field
//! left out means what its description says; nothing depends on whether a default was written by hand.

mod network;
mod pod;
mod roles;
mod settings;
mod status;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use network::{
    ApiAutoscaling, AutoscalingSpec, DisruptionBudgetSpec, IngressSpec, MonitoringSpec, NetworkPolicySpec, ServiceSpec,
    ServiceType,
};
pub use pod::{
    Amount, ConfigMapKeyRef, EnvSource, ExtraEnv, ExtraMount, ExtraVolume, FieldRef, LocalRef, PodOptions,
    ResourceAmounts, Resources, SecretKeyRef, Toleration, TopologySpread,
};
pub use roles::{ApiSpec, SchedulerSpec, WorkerSpec};
pub use settings::{
    AuthSpec, DatabaseRoles, DatabaseSpec, FamilySpec, GenerationSpec, InferenceSpec, MigrationPolicy, MigrationSpec,
    OperationsSpec, ProfileSpec, Provider, RateLimitSpec, Retry, SupervisorMode, SupervisorSpec,
};
pub use status::{Leader, QueueStatus, RoleStatus, RolesStatus, SchemaStatus, Status};

use crate::rules;

/// A PowerContext deployment: one database, its migration, and the Workers, Schedulers and APIs that work on it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "powercontext.io",
    version = "v1alpha1",
    kind = "PowerContextDeployment",
    plural = "powercontextdeployments",
    shortname = "pcd",
    category = "powercontext",
    namespaced,
    status = "Status",
    derive = "PartialEq",
    doc = "A PowerContext deployment: one database, its migration, and the Workers, Schedulers and APIs that work on it.",
    scale(
        spec_replicas_path = ".spec.worker.replicas",
        status_replicas_path = ".status.roles.worker.replicas",
        label_selector_path = ".status.workerSelector"
    ),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"APIs","type":"integer","jsonPath":".status.roles.api.ready","description":"Ready API pods"}"#,
    printcolumn = r#"{"name":"Schedulers","type":"integer","jsonPath":".status.roles.scheduler.ready","description":"Ready Scheduler pods"}"#,
    printcolumn = r#"{"name":"Workers","type":"integer","jsonPath":".status.roles.worker.ready","description":"Ready Worker pods"}"#,
    printcolumn = r#"{"name":"Schema","type":"integer","jsonPath":".status.schema.revision","description":"Schema revision"}"#,
    printcolumn = r#"{"name":"Image","type":"string","jsonPath":".spec.image","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::spec()))]
pub struct PowerContextDeploymentSpec {
    /// Image of the runtime, with tag or digest. A change migrates first, then rolls out Workers, Schedulers and APIs.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[^\s]+$"))]
    pub image: String,

    /// When nodes pull the image. Left out: as Kubernetes decides from the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: Option<String>,

    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Vec<LocalRef>,

    /// The OceanBase database that everything is coordinated through.
    pub database: DatabaseSpec,

    /// Who may call the API.
    pub auth: AuthSpec,

    /// The model. Workers hold its key; APIs only with `apiAccess`.
    pub inference: InferenceSpec,

    /// The processes that serve HTTP, MCP and the console.
    #[serde(default)]
    pub api: ApiSpec,

    /// The processes of which one leads and admits scheduled work.
    #[serde(default)]
    pub scheduler: SchedulerSpec,

    /// The processes that run work.
    #[serde(default)]
    pub worker: WorkerSpec,

    /// Processes that are Scheduler and Worker in one; none unless `replicas` says so.
    #[serde(default = "WorkerSpec::background")]
    pub background: WorkerSpec,

    /// Automatic admission: the coordination mode and the schedule of each family.
    #[serde(default)]
    pub supervisor: SupervisorSpec,

    /// Requests a principal may send. Left out: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimitSpec>,

    /// How long flushes wait and how long ended operations are kept.
    #[serde(default)]
    pub operations: OperationsSpec,

    /// How the schema is brought to what the image needs.
    #[serde(default)]
    pub migration: MigrationSpec,

    /// Automatic scaling. Workers scale through the resource's own scale subresource instead.
    #[serde(default)]
    pub autoscaling: AutoscalingSpec,

    /// The Service in front of the APIs.
    #[serde(default)]
    pub service: ServiceSpec,

    /// An Ingress in front of the Service. Left out: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressSpec>,

    /// A NetworkPolicy for each role.
    #[serde(default)]
    pub network_policy: NetworkPolicySpec,

    /// A PodDisruptionBudget for each role.
    #[serde(default)]
    pub pod_disruption_budget: DisruptionBudgetSpec,

    /// How metrics are collected.
    #[serde(default)]
    pub monitoring: MonitoringSpec,

    /// While true the operator changes nothing and says so; what runs goes on running.
    #[serde(default)]
    pub paused: bool,
}
