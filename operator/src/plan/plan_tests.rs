//! Whole stories of a deployment, against the simulated cluster.

use serde_json::json;

use super::seen::{MigrateReport, ReportedStep, Trouble};
use super::simulation::Cluster;
use super::*;
use crate::controller::validate::SecretFault;
use crate::names::Role;
use crate::object::Kind;
use crate::testing::{reference, resource};

pub(super) const NEW: &str = "registry.example/powercontext:0.2.0";

pub(super) fn no(reason: &str) -> (String, String) {
    ("False".to_owned(), reason.to_owned())
}

pub(super) fn yes(reason: &str) -> (String, String) {
    ("True".to_owned(), reason.to_owned())
}

/// The Jobs and Deployments that were touched, in order, without the hashes.
pub(super) fn order(cluster: &Cluster) -> Vec<String> {
    let interesting = cluster
        .history
        .iter()
        .filter(|line| line.contains(" Job ") || line.contains(" Deployment "));
    interesting
        .map(|line| {
            let cut = ["-migrate-", "-plan-", "-switch-mode-"]
                .iter()
                .find_map(|part| line.find(part));
            let end = cut.map_or(line.len(), |at| at + line[at + 1..].rfind('-').unwrap_or_default() + 1);
            line[..end].replace("pc-", "")
        })
        .collect()
}

pub(super) fn report(current: i64, target: i64) -> MigrateReport {
    MigrateReport {
        current,
        target,
        steps: vec![ReportedStep {
            revision: target,
            name: "step".to_owned(),
            additive: true,
        }],
        payload_version: None,
        code: None,
    }
}

#[test]
fn a_new_deployment_migrates_and_then_rolls_out_role_after_role() {
    let mut cluster = Cluster::new(&json!({}));
    cluster.settle();
    let wanted = [
        "Job migrate",
        "Deployment worker",
        "Deployment background",
        "Deployment scheduler",
        "Deployment api",
    ];
    assert_eq!(order(&cluster), wanted.map(|line| format!("apply {line}")));
    for (kind, said) in [
        ("Ready", yes("Complete")),
        ("Progressing", no("Complete")),
        ("Degraded", no("AsExpected")),
        ("Migrated", yes("MigrationSucceeded")),
        ("WorkersReady", yes("Complete")),
        ("SchedulersReady", yes("Complete")),
        ("ApisReady", yes("Complete")),
        ("Paused", no("AsExpected")),
        ("UpgradeBlocked", no("AsExpected")),
    ] {
        assert_eq!(cluster.condition(kind), said, "{kind}");
    }
    assert_eq!(cluster.status.observed_generation, Some(1));
    assert_eq!(
        (cluster.status.roles.worker.desired, cluster.status.roles.worker.ready),
        (2, 2)
    );
}

#[test]
fn planning_again_plans_nothing_and_changes_no_status() {
    let cluster = Cluster::ready(&json!({}));
    let again = cluster.plan();
    assert_eq!(again.actions, []);
    assert_eq!(
        to_write(&cluster.status, &again.status, None, Timestamp::UNIX_EPOCH),
        None
    );
}

#[test]
fn what_an_autoscaler_and_a_restart_did_stays() {
    let mut cluster = Cluster::ready(&json!({
        "autoscaling": { "api": { "maxReplicas": 8 } }, "api": { "resources": { "requests": { "cpu": 1 } } }
    }));
    cluster.deployment(Role::Api)["spec"]["replicas"] = 4.into();
    let restarted = "kubectl.kubernetes.io/restartedAt";
    cluster.deployment(Role::Worker)["spec"]["template"]["metadata"]["annotations"][restarted] = "now".into();
    cluster.kubelet();
    cluster.settle();
    assert_eq!(order(&cluster), Vec::<String>::new());
    assert_eq!(cluster.deployment(Role::Api)["spec"]["replicas"], 4);
    assert_eq!(cluster.status.roles.api.desired, 4);
}

#[test]
fn what_somebody_changed_by_hand_is_put_back() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.deployment(Role::Scheduler)["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
    cluster.settle();
    assert_eq!(order(&cluster), ["apply Deployment scheduler"]);
}

#[test]
fn no_pods_at_all_are_accepted_and_the_migration_still_runs() {
    let zero = json!({ "replicas": 0 });
    let mut cluster = Cluster::new(&json!({ "api": zero, "scheduler": zero, "worker": zero }));
    cluster.settle();
    assert_eq!(cluster.condition("Migrated"), yes("MigrationSucceeded"));
    for kind in ["WorkersReady", "SchedulersReady", "ApisReady"] {
        assert_eq!(cluster.condition(kind), yes("ScaledToZero"), "{kind}");
    }
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn fewer_workers_lose_the_idle_ones_and_costs_are_written_only_then() {
    let mut cluster = Cluster::ready(&json!({ "worker": { "replicas": 3 } }));
    let names: Vec<_> = cluster
        .pods
        .iter()
        .filter(|pod| pod.component == "worker")
        .map(|pod| pod.name.clone())
        .collect();
    cluster.facts.in_flight = [(names[0].clone(), 4), (names[1].clone(), 0)].into();
    assert_eq!(cluster.plan().actions, []);
    cluster.edit(&json!({ "worker": { "replicas": 2 } }));
    cluster.pass();
    assert_eq!(
        cluster.history,
        [
            format!("cost {} 4", names[0]),
            format!("cost {} 1000", names[2]),
            "apply Deployment pc-worker".to_owned()
        ]
    );
    cluster.kubelet();
    cluster.edit(&json!({ "worker": { "replicas": 5 } }));
    cluster.history.clear();
    cluster.settle();
    assert_eq!(cluster.history, ["apply Deployment pc-worker"]);
}

#[test]
fn surplus_workers_that_finish_what_they_hold_are_draining() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.edit(&json!({ "worker": { "replicas": 1 } }));
    cluster.pass();
    cluster.kubelet();
    cluster.pods.push(PodSeen {
        name: "old".to_owned(),
        component: "worker".to_owned(),
        terminating: true,
        ..PodSeen::default()
    });
    cluster.pass();
    assert_eq!(cluster.condition("WorkersReady"), no("Draining"));
}

#[test]
fn a_number_of_pods_waits_for_no_other_role() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.mute.insert(Role::Worker);
    cluster.edit(&json!({ "worker": { "concurrency": 9 } }));
    cluster.edit(&json!({ "supervisor": { "memory": { "maxWorkers": 2 } } }));
    cluster.settle_or_stop();
    cluster.history.clear();
    cluster.edit(&json!({ "api": { "replicas": 5 } }));
    cluster.pass();
    let api = cluster.deployment(Role::Api)["spec"]["replicas"].clone();
    // The API's template changed with the build, so its turn has not come; a role whose template is the same is scaled.
    assert_eq!(api, 2);
    cluster.mute.clear();
    cluster.settle();
    cluster.mute.insert(Role::Worker);
    cluster.edit(&json!({ "worker": { "concurrency": 3 }, "api": { "replicas": 6 } }));
    cluster.facts.members = Some(std::collections::BTreeMap::new());
    cluster.pass();
    assert_eq!(cluster.deployment(Role::Api)["spec"]["replicas"], 6);
}

#[test]
fn a_paused_deployment_is_watched_and_not_changed() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.edit(&json!({ "paused": true, "image": NEW, "worker": { "replicas": 7 } }));
    for _ in 0..5 {
        assert_eq!(cluster.pass(), []);
        cluster.kubelet();
    }
    assert_eq!(cluster.condition("Paused"), yes("Paused"));
    assert_eq!(cluster.condition("Progressing"), no("Paused"));
    assert_eq!(cluster.condition("Ready").0, "False");
    cluster.edit(&json!({ "paused": false }));
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn objects_of_others_are_left_alone_and_named() {
    let mut cluster = Cluster::new(&json!({}));
    let taken = Key {
        kind: Kind::Service,
        name: "pc-api".to_owned(),
    };
    cluster.objects.insert(
        taken.clone(),
        json!({ "metadata": { "name": "pc-api" }, "spec": { "a": 1 } }),
    );
    cluster.settle();
    assert_eq!(cluster.condition("Degraded"), yes("NameTaken"));
    assert!(cluster.message("Degraded").contains("Service pc-api"));
    assert_eq!(cluster.objects[&taken]["spec"], json!({ "a": 1 }));
}

#[test]
fn a_rotated_secret_rolls_only_the_roles_that_use_it() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster
        .read
        .secrets
        .insert(reference("pc-model", "key"), Ok("another".to_owned().into()));
    cluster.settle();
    assert_eq!(
        order(&cluster),
        ["apply Deployment worker", "apply Deployment background"]
    );
}

#[test]
fn what_keeps_pods_from_running_is_told_with_the_pod() {
    for (trouble, reason, part) in [
        (Trouble::Crash { code: 2 }, "ContainerCrashing", "exit 2"),
        (
            Trouble::NotCreated {
                reason: "Unschedulable".to_owned(),
            },
            "PodNotCreated",
            "Unschedulable",
        ),
        (
            Trouble::Image {
                image: "i".to_owned(),
                reason: "ErrImagePull".to_owned(),
            },
            "ImagePullFailed",
            "image i",
        ),
    ] {
        let mut cluster = Cluster::ready(&json!({}));
        let pod = cluster
            .pods
            .iter_mut()
            .find(|pod| pod.component == "api")
            .expect("a pod");
        pod.trouble = Some(trouble);
        let name = pod.name.clone();
        cluster.pass();
        assert_eq!(cluster.condition("Degraded"), yes(reason));
        assert_eq!(cluster.condition("ApisReady"), no(reason));
        assert!(cluster.message("ApisReady").contains(part) && cluster.message("ApisReady").contains(&name));
    }
}

#[test]
fn what_was_turned_off_is_removed() {
    let mut cluster = Cluster::ready(&json!({ "ingress": { "host": "pc.example" } }));
    cluster.edit(&json!({ "ingress": null, "podDisruptionBudget": { "enabled": false } }));
    cluster.settle();
    let deleted: Vec<_> = cluster
        .history
        .iter()
        .filter(|line| line.starts_with("delete"))
        .collect();
    assert_eq!(deleted.len(), 4, "{deleted:?}");
}

#[test]
fn a_spec_that_cannot_be_followed_is_told_and_what_is_known_of_the_roles_stays() {
    let cluster = Cluster::ready(&json!({}));
    let mut resource = resource(&json!({}));
    resource.status = Some(cluster.status.clone());
    let mut read = crate::testing::secrets();
    read.secrets
        .insert(reference("pc-model", "key"), Err(SecretFault::Missing));
    let invalid = crate::controller::validate::validate(&resource, &read).expect_err("invalid");
    let plan = refuse(&resource, &invalid, Timestamp::UNIX_EPOCH);
    assert_eq!((plan.actions, plan.requeue_seconds), (Vec::new(), 5));
    let said = |kind: &str| {
        let one = plan
            .status
            .conditions
            .iter()
            .find(|one| one.type_ == kind)
            .expect("it is there");
        (one.status.clone(), one.reason.clone())
    };
    assert_eq!(said("Degraded"), yes("SecretMissing"));
    assert_eq!(said("Ready"), no("SecretMissing"));
    assert_eq!(said("WorkersReady"), yes("Complete"));
    assert_eq!(plan.status.roles, cluster.status.roles);
}
