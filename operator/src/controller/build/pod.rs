//! What all pods have in common: nothing they do not need. They meet the `restricted` pod security standard.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, LocalObjectReference, PodSecurityContext,
    PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile, SecurityContext, Toleration,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::env::HOME;
use crate::controller::validate::{ValidDeployment, ValidPod};
use crate::names::{BUILD, SECRETS_HASH};

/// Numeric, so that a node can see that it is not root; the same in every image.
const USER: i64 = 65_532;
/// Name of the one container.
pub const CONTAINER: &str = "powercontext";

/// The container without probes and ports.
pub(super) fn container(deployment: &ValidDeployment, pod: &ValidPod, args: &[&str], env: Vec<EnvVar>) -> Container {
    let mut mounts = vec![mount("tmp", "/tmp"), mount("data", HOME)];
    mounts.extend(pod.options.extra_volume_mounts.iter().map(|extra| VolumeMount {
        name: extra.name.clone(),
        mount_path: extra.mount_path.clone(),
        sub_path: extra.sub_path.clone(),
        read_only: Some(extra.read_only),
        ..VolumeMount::default()
    }));
    Container {
        name: CONTAINER.to_owned(),
        image: Some(deployment.spec.image.clone()),
        image_pull_policy: deployment.spec.image_pull_policy.clone(),
        args: Some(args.iter().map(ToString::to_string).collect()),
        env: Some(env),
        resources: resources(pod),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        // The last lines of a container that failed become its message: the migrator's report is the last of them.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// The port of a role's container.
pub(super) fn http_port() -> ContainerPort {
    ContainerPort {
        name: Some("http".to_owned()),
        container_port: super::HTTP_PORT,
        ..ContainerPort::default()
    }
}

/// The template of a component's pods around its container.
pub(super) fn template(
    deployment: &ValidDeployment,
    pod: &ValidPod,
    component: &str,
    container: Container,
    grace_seconds: i64,
) -> PodTemplateSpec {
    let options = &pod.options;
    let mut annotations: BTreeMap<String, String> = options.annotations.clone();
    annotations.insert(SECRETS_HASH.to_owned(), pod.secrets_hash.clone());
    annotations.insert(BUILD.to_owned(), deployment.build.clone());
    let mut volumes = vec![empty("tmp"), empty("data")];
    volumes.extend(pod.volumes.iter().cloned());
    let pull: Vec<_> = deployment.spec.image_pull_secrets.iter().collect();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(deployment.base.labels(component, &deployment.name)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            affinity: pod.affinity.clone(),
            automount_service_account_token: Some(false),
            // Links of Services become variables; one called `powercontext-server` would look like our settings.
            enable_service_links: Some(false),
            image_pull_secrets: (!pull.is_empty()).then(|| {
                pull.into_iter()
                    .map(|secret| LocalObjectReference {
                        name: secret.name.clone(),
                    })
                    .collect()
            }),
            node_selector: (!options.node_selector.is_empty()).then(|| options.node_selector.clone()),
            priority_class_name: options.priority_class_name.clone(),
            security_context: Some(security()),
            service_account_name: Some(super::around::service_account_name(deployment)),
            termination_grace_period_seconds: Some(grace_seconds),
            tolerations: tolerations(pod),
            topology_spread_constraints: Some(spread(deployment, pod, component)),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
    }
}

fn security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

fn resources(pod: &ValidPod) -> Option<ResourceRequirements> {
    let amounts = |amounts: &BTreeMap<String, String>| -> Option<BTreeMap<String, Quantity>> {
        let amounts: BTreeMap<_, _> = amounts
            .iter()
            .map(|(name, amount)| (name.clone(), Quantity(amount.clone())))
            .collect();
        (!amounts.is_empty()).then_some(amounts)
    };
    let (requests, limits) = (amounts(&pod.requests), amounts(&pod.limits));
    (requests.is_some() || limits.is_some()).then_some(ResourceRequirements {
        requests,
        limits,
        claims: None,
    })
}

fn tolerations(pod: &ValidPod) -> Option<Vec<Toleration>> {
    let tolerations = &pod.options.tolerations;
    (!tolerations.is_empty()).then(|| {
        tolerations
            .iter()
            .map(|one| Toleration {
                key: one.key.clone(),
                operator: one.operator.clone(),
                value: one.value.clone(),
                effect: one.effect.clone(),
                toleration_seconds: one.toleration_seconds,
            })
            .collect()
    })
}

/// As the spec says, else over nodes, as well as it can be done.
fn spread(deployment: &ValidDeployment, pod: &ValidPod, component: &str) -> Vec<TopologySpreadConstraint> {
    let constraint = |skew: i32, key: &str, otherwise: &str| TopologySpreadConstraint {
        max_skew: skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: otherwise.to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(deployment.base.selector(component)),
            match_expressions: None,
        }),
        ..TopologySpreadConstraint::default()
    };
    let wanted = &pod.options.topology_spread_constraints;
    if wanted.is_empty() {
        return vec![constraint(1, "kubernetes.io/hostname", "ScheduleAnyway")];
    }
    wanted
        .iter()
        .map(|one| constraint(one.max_skew, &one.topology_key, &one.when_unsatisfiable))
        .collect()
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

fn empty(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}
