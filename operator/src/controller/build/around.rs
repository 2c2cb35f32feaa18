//! What stands around the roles: identity, Service, budgets, policies, scaling, Ingress, monitoring.
//!
//! What the spec turned off is listed as unwanted, so that it is removed if it is there.

use std::collections::BTreeMap;

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
    ResourceMetricSource,
};
use k8s_openapi::api::core::v1::{Service, ServiceAccount, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    ServiceBackendPort,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use powercontext_crds::v1alpha1::ApiAutoscaling;
use serde_json::json;

use super::role::replicas;
use super::{HTTP_PORT, meta};
use crate::controller::validate::ValidDeployment;
use crate::names::Role;
use crate::object::{Key, Kind, Object};

/// Everything around the roles, and what should not be there.
pub(super) fn objects(deployment: &ValidDeployment) -> (Vec<Object>, Vec<Key>) {
    let mut wanted = vec![service_account(deployment), service(deployment)];
    let mut unwanted = Vec::new();
    let mut either = |kind: Kind, name: String, object: Option<Object>| match object {
        Some(object) => wanted.push(object),
        None => unwanted.push(Key { kind, name }),
    };
    for role in Role::ALL {
        let name = deployment.base.role(role);
        either(Kind::PodDisruptionBudget, name.clone(), budget(deployment, role));
        let policy = deployment.spec.network_policy.enabled;
        either(
            Kind::NetworkPolicy,
            name,
            policy.then(|| network_policy(deployment, role)),
        );
    }
    let scaling = deployment.spec.autoscaling.api.as_ref();
    let api = deployment.base.role(Role::Api);
    either(
        Kind::HorizontalPodAutoscaler,
        api.clone(),
        scaling.map(|scaling| autoscaler(deployment, scaling)),
    );
    let ingress = deployment.spec.ingress.as_ref();
    either(Kind::Ingress, api, ingress.map(|spec| self::ingress(deployment, spec)));
    let monitor = deployment.spec.monitoring.pod_monitor;
    let name = deployment.base.as_str().to_owned();
    either(Kind::PodMonitor, name, monitor.then(|| pod_monitor(deployment)));
    (wanted, unwanted)
}

/// Name of the pods' identity. Not the base alone: a deployment may be called `default`.
pub(super) fn service_account_name(deployment: &ValidDeployment) -> String {
    deployment.base.object("runtime")
}

fn service_account(deployment: &ValidDeployment) -> Object {
    let typed = ServiceAccount {
        metadata: meta(deployment, service_account_name(deployment), "deployment"),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    Object::new(Kind::ServiceAccount, &typed)
}

fn service(deployment: &ValidDeployment) -> Object {
    let spec = &deployment.spec.service;
    let mut metadata = meta(deployment, deployment.base.role(Role::Api), Role::Api.as_str());
    metadata.annotations = (!spec.annotations.is_empty()).then(|| spec.annotations.clone());
    let typed = Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(spec.kind.as_str().to_owned()),
            selector: Some(deployment.base.selector(Role::Api.as_str())),
            ports: Some(vec![ServicePort {
                name: Some("http".to_owned()),
                port: spec.port,
                target_port: Some(IntOrString::String("http".to_owned())),
                node_port: spec.node_port,
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    Object::new(Kind::Service, &typed)
}

/// A budget where there is more than one pod; for a single one it would only block the draining of nodes.
fn budget(deployment: &ValidDeployment, role: Role) -> Option<Object> {
    let spec = &deployment.spec.pod_disruption_budget;
    if !spec.enabled || replicas(deployment, role) < 2 {
        return None;
    }
    let typed = PodDisruptionBudget {
        metadata: meta(deployment, deployment.base.role(role), role.as_str()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(spec.max_unavailable.unwrap_or(1))),
            selector: Some(LabelSelector {
                match_labels: Some(deployment.base.selector(role.as_str())),
                match_expressions: None,
            }),
            // A pod that is not ready does no work that a budget could protect.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    };
    Some(Object::new(Kind::PodDisruptionBudget, &typed))
}

/// The API's port is open to the namespaces of the spec, or to all; that of the other roles only to those of the spec. The
/// operator may always read what the roles report of themselves.
fn network_policy(deployment: &ValidDeployment, role: Role) -> Object {
    let namespace = |labels: BTreeMap<String, String>| NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector {
            match_labels: Some(labels),
            match_expressions: None,
        }),
        ..NetworkPolicyPeer::default()
    };
    let from = deployment
        .spec
        .network_policy
        .allow_from_namespaces
        .clone()
        .map(namespace);
    let is_open = role == Role::Api && from.is_none();
    let name = "kubernetes.io/metadata.name".to_owned();
    let operator = deployment.operator_namespace.clone();
    let operator = operator.map(|value| namespace([(name, value)].into()));
    let peers: Vec<_> = from.into_iter().chain(operator).collect();
    let admission = NetworkPolicyIngressRule {
        from: (!is_open).then(|| peers.clone()),
        ports: Some(vec![NetworkPolicyPort {
            port: Some(IntOrString::Int(HTTP_PORT)),
            protocol: Some("TCP".to_owned()),
            end_port: None,
        }]),
    };
    let typed = NetworkPolicy {
        metadata: meta(deployment, deployment.base.role(role), role.as_str()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(deployment.base.selector(role.as_str())),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Ingress".to_owned()]),
            // A rule without a peer lets everybody in; without one to let in there is no rule.
            ingress: (is_open || !peers.is_empty()).then(|| vec![admission]),
            egress: None,
        }),
    };
    Object::new(Kind::NetworkPolicy, &typed)
}

fn autoscaler(deployment: &ValidDeployment, scaling: &ApiAutoscaling) -> Object {
    let name = deployment.base.role(Role::Api);
    let typed = HorizontalPodAutoscaler {
        metadata: meta(deployment, name.clone(), Role::Api.as_str()),
        spec: Some(HorizontalPodAutoscalerSpec {
            min_replicas: Some(scaling.min_replicas),
            max_replicas: scaling.max_replicas,
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_owned()),
                kind: "Deployment".to_owned(),
                name,
            },
            metrics: Some(vec![MetricSpec {
                type_: "Resource".to_owned(),
                resource: Some(ResourceMetricSource {
                    name: "cpu".to_owned(),
                    target: MetricTarget {
                        type_: "Utilization".to_owned(),
                        average_utilization: Some(scaling.target_cpu_percent),
                        ..MetricTarget::default()
                    },
                }),
                ..MetricSpec::default()
            }]),
            behavior: None,
        }),
        status: None,
    };
    Object::new(Kind::HorizontalPodAutoscaler, &typed)
}

fn ingress(deployment: &ValidDeployment, spec: &powercontext_crds::v1alpha1::IngressSpec) -> Object {
    let name = deployment.base.role(Role::Api);
    let mut metadata = meta(deployment, name.clone(), Role::Api.as_str());
    metadata.annotations = (!spec.annotations.is_empty()).then(|| spec.annotations.clone());
    let path = HTTPIngressPath {
        path: Some(spec.path.clone().unwrap_or_else(|| "/".to_owned())),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend {
            service: Some(IngressServiceBackend {
                name,
                port: Some(ServiceBackendPort {
                    name: Some("http".to_owned()),
                    number: None,
                }),
            }),
            resource: None,
        },
    };
    let typed = Ingress {
        metadata,
        spec: Some(IngressSpec {
            ingress_class_name: spec.class_name.clone(),
            rules: Some(vec![IngressRule {
                host: spec.host.clone(),
                http: Some(HTTPIngressRuleValue { paths: vec![path] }),
            }]),
            tls: spec.tls_secret_name.as_ref().map(|secret| {
                vec![IngressTLS {
                    hosts: spec.host.clone().map(|host| vec![host]),
                    secret_name: Some(secret.clone()),
                }]
            }),
            default_backend: None,
        }),
        status: None,
    };
    Object::new(Kind::Ingress, &typed)
}

fn pod_monitor(deployment: &ValidDeployment) -> Object {
    let spec = &deployment.spec.monitoring;
    let mut metadata = meta(deployment, deployment.base.as_str().to_owned(), "deployment");
    let labels: &mut BTreeMap<_, _> = metadata.labels.get_or_insert_default();
    labels.extend(spec.labels.clone().unwrap_or_default());
    let mut endpoint = json!({ "port": "http", "path": "/metrics" });
    if let Some(seconds) = spec.interval_seconds {
        endpoint["interval"] = format!("{seconds}s").into();
    }
    if let Some(token) = &deployment.spec.auth.token_secret_ref {
        let credentials = json!({ "name": token.name, "key": token.key });
        endpoint["authorization"] = json!({ "type": "Bearer", "credentials": credentials });
    }
    let (group, version, kind, _) = Kind::PodMonitor.names();
    let manifest = json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "selector": { "matchLabels": {
                "app.kubernetes.io/name": "powercontext",
                "app.kubernetes.io/instance": deployment.base.as_str(),
            }},
            "podMetricsEndpoints": [endpoint],
        },
    });
    Object::from_manifest(Kind::PodMonitor, manifest)
}
