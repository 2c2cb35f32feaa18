//! What every role's pods may be given: resources, placement, extra variables and volumes.
//!
//! Affinity and the sources of volumes are Kubernetes' own objects and are checked by the API server when the operator
//! applies them; repeating their schemas here would make the definition too large for `kubectl apply`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rules;

/// An amount of a resource, such as `500m`, `1`, or `1536Mi`.
pub type Amount = IntOrString;

/// A key of a Secret in the deployment's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// A key of a ConfigMap in the deployment's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// An object in the deployment's namespace, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A field of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    /// Path of the field, such as `status.hostIP`.
    #[schemars(length(min = 1, max = 253))]
    pub field_path: String,
}

/// Where a variable's value comes from. Exactly one source must be named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::env_source()))]
pub struct EnvSource {
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,
    /// A field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
}

/// An environment variable beside the operator's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::extra_env()))]
pub struct ExtraEnv {
    /// Its name. Variables that the operator sets itself are refused, and so is the same name twice.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Its value. For secrets use `valueFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// Where its value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// A volume beside the operator's own: a name and one source of Kubernetes' `Volume`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ExtraVolume {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Its source, such as `configMap` or `emptyDir`.
    #[serde(flatten)]
    #[schemars(skip)]
    pub source: Map<String, Value>,
}

/// Where an extra volume is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraMount {
    /// Name of the volume.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it appears in the container.
    #[schemars(length(min = 1, max = 512), regex(pattern = "^/[^:]*$"))]
    pub mount_path: String,
    /// Path inside the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub sub_path: Option<String>,
    /// Whether it can only be read. Left out: true.
    #[serde(default = "yes")]
    pub read_only: bool,
}

const fn yes() -> bool {
    true
}

/// Amounts of resources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceAmounts {
    /// Processor time, in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount")]
    pub cpu: Option<Amount>,
    /// Memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount")]
    pub memory: Option<Amount>,
    /// Local disk, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "ephemeral-storage")]
    #[schemars(schema_with = "amount")]
    pub ephemeral_storage: Option<Amount>,
}

fn amount(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "description": "A quantity such as 500m, 1 or 1536Mi.",
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "x-kubernetes-int-or-string": true,
        "pattern": r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$",
    })
}

/// What a container asks for and may use at most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// What it is guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceAmounts>,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceAmounts>,
}

/// A taint of nodes that the pods put up with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint. Left out, with operator `Exists`: every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// How the value is compared. Left out: `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Exists", "Equal"]))]
    pub operator: Option<String>,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint. Left out: every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute"]))]
    pub effect: Option<String>,
    /// How long, in seconds, a pod stays on a node that gets a `NoExecute` taint. Left out: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How the pods of a role spread over the cluster. The operator adds the role's own selector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpread {
    /// Largest difference in pods between two domains.
    #[schemars(range(min = 1, max = 1000))]
    pub max_skew: i32,
    /// Label of nodes whose values are the domains, such as `topology.kubernetes.io/zone`.
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// What happens to a pod that would spread them worse.
    #[schemars(extend("enum" = ["DoNotSchedule", "ScheduleAnyway"]))]
    pub when_unsatisfiable: String,
}

/// What the pods of one role are given beside what the operator gives them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::pod()))]
pub struct PodOptions {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// Kubernetes' `Affinity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "opaque")]
    pub affinity: Option<Map<String, Value>>,
    /// Taints of nodes that the pods put up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// How the pods spread. Left out: over nodes, as well as it can be done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub topology_spread_constraints: Vec<TopologySpread>,
    /// Priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// Annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
    /// Environment variables beside the operator's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_env: Vec<ExtraEnv>,
    /// Volumes beside the operator's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_volumes: Vec<ExtraVolume>,
    /// Where those volumes are mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub extra_volume_mounts: Vec<ExtraMount>,
}

fn opaque(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "description": "Kubernetes' own Affinity object, checked when the operator applies it.",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
