//! What stands around the roles: Service, Ingress, policies, budgets, scaling, monitoring.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Kind of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Reachable inside the cluster.
    #[default]
    ClusterIP,
    /// On a port of every node.
    NodePort,
    /// Behind a load balancer of the cluster's provider.
    LoadBalancer,
}

impl ServiceType {
    /// As Kubernetes spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// The Service in front of the APIs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::service()))]
pub struct ServiceSpec {
    /// Its kind.
    #[serde(default, rename = "type")]
    pub kind: ServiceType,
    /// Its port.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// Port on the nodes. Left out: Kubernetes chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub node_port: Option<i32>,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

impl Default for ServiceSpec {
    fn default() -> Self {
        Self {
            kind: ServiceType::default(),
            port: port(),
            node_port: None,
            annotations: BTreeMap::new(),
        }
    }
}

const fn port() -> i32 {
    80
}

/// An Ingress in front of the Service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::ingress()))]
pub struct IngressSpec {
    /// Its class. Left out: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
    /// Host name that it answers to. Left out: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// Path below which everything goes to the APIs. Left out: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// Secret with the certificate of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tls_secret_name: Option<String>,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

/// Who may open connections to the pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::network_policy()))]
pub struct NetworkPolicySpec {
    /// Whether there is one. It lets everybody reach the APIs' port, and nobody anything else. What the pods themselves
    /// open is not restricted: the database and the model may be anywhere.
    #[serde(default)]
    pub enabled: bool,
    /// Namespaces from which the APIs, and the metrics of every role, may be reached, by label. Left out: for the APIs
    /// every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub allow_from_namespaces: Option<BTreeMap<String, String>>,
}

/// How many pods of a role may be moved away at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::disruption_budget()))]
pub struct DisruptionBudgetSpec {
    /// Whether there is a budget for each role with more than one pod. Left out: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Most pods of a role that may be away at once. Left out: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_unavailable: Option<i32>,
}

impl Default for DisruptionBudgetSpec {
    fn default() -> Self {
        Self {
            enabled: yes(),
            max_unavailable: None,
        }
    }
}

const fn yes() -> bool {
    true
}

/// How metrics are collected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::monitoring()))]
pub struct MonitoringSpec {
    /// Whether a `PodMonitor` of the Prometheus operator is made for the roles, with the bearer token by reference.
    #[serde(default)]
    pub pod_monitor: bool,
    /// Seconds between two collections. Left out: as Prometheus is set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: Option<i32>,
    /// Labels by which a Prometheus finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Automatic scaling.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingSpec {
    /// Of the APIs, by CPU. Left out: `api.replicas` says how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiAutoscaling>,
}

/// Automatic scaling of the APIs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::api_autoscaling()))]
pub struct ApiAutoscaling {
    /// Fewest.
    #[serde(default = "min_replicas")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: i32,
    /// Most.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: i32,
    /// Percentage of the requested CPU that is aimed at, on average.
    #[serde(default = "target_cpu")]
    #[schemars(range(min = 1, max = 100))]
    pub target_cpu_percent: i32,
}

const fn min_replicas() -> i32 {
    2
}
const fn target_cpu() -> i32 {
    75
}
