//! Whole stories of a deployment, against the simulated cluster.

use serde_json::{Value, json};

use super::seen::{MigrateReport, ReportedStep, Trouble};
use super::simulation::{Cluster, Outcome};
use super::*;
use crate::controller::validate::SecretFault;
use crate::names::{APPROVE_MIGRATION, RETRY_MIGRATION, Role};
use crate::object::Kind;
use crate::testing::{reference, resource};

const NEW: &str = "registry.example/powercontext:0.2.0";

fn no(reason: &str) -> (String, String) {
    ("False".to_owned(), reason.to_owned())
}

fn yes(reason: &str) -> (String, String) {
    ("True".to_owned(), reason.to_owned())
}

/// The Jobs and Deployments that were touched, in order, without the hashes.
fn order(cluster: &Cluster) -> Vec<String> {
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

fn report(current: i64, target: i64) -> MigrateReport {
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
fn the_completed_job_may_go_and_is_never_made_again_for_the_same_target() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.objects.retain(|key, _| key.kind != Kind::Job);
    cluster.pods.retain(|pod| pod.job.is_none());
    cluster.settle();
    assert_eq!(order(&cluster), Vec::<String>::new());
}

#[test]
fn a_changed_spec_makes_a_new_job_only_when_the_target_changed() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.edit(&json!({
        "worker": { "resources": { "limits": { "memory": "1Gi" } }, "pod": { "extraEnv": [{ "name": "A", "value": "1" }] } },
        "migration": { "resources": { "limits": { "memory": "1Gi" } }, "pod": { "extraEnv": [{ "name": "A", "value": "1" }] } },
    }));
    cluster.settle();
    assert_eq!(order(&cluster), ["apply Deployment worker"]);
    cluster.edit(&json!({ "image": NEW }));
    cluster.settle();
    assert!(order(&cluster).contains(&"apply Job migrate".to_owned()));
    assert_eq!(cluster.jobs().len(), 1);
}

#[test]
fn a_wrong_image_is_told_and_corrected_at_once() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.outcomes.push_back(Outcome::NoImage);
    cluster.edit(&json!({ "image": "registry.example/powercontext:typo" }));
    cluster.pass();
    cluster.kubelet();
    cluster.pass();
    assert_eq!(cluster.condition("Degraded"), yes("ImagePullFailed"));
    assert_eq!(cluster.condition("Migrated"), no("ImagePullFailed"));
    assert!(cluster.message("Degraded").contains("powercontext:typo"));
    assert!(cluster.message("Degraded").contains("-pod"));
    cluster.edit(&json!({ "image": NEW }));
    cluster.outcomes.clear();
    cluster.history.clear();
    cluster.pass();
    assert_eq!(order(&cluster), ["delete Job migrate", "apply Job migrate"]);
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn a_migration_that_was_refused_or_misconfigured_is_not_repeated() {
    for (code, reason) in [(1, "MigrationRefused"), (2, "MigrationMisconfigured")] {
        let mut cluster = Cluster::new(&json!({}));
        cluster.outcomes.push_back(Outcome::Exit(code, None));
        cluster.settle();
        for _ in 0..50 {
            cluster.now += 3_600;
            assert_eq!(cluster.pass(), []);
        }
        assert_eq!(cluster.condition("Degraded"), yes(reason));
        assert!(cluster.message("Degraded").contains(&format!("exit {code}")));
        assert_eq!(cluster.condition("Ready"), no(reason));
        assert_eq!(cluster.status.schema.attempts, 1);
        assert_eq!(order(&cluster), ["apply Job migrate"]);
    }
}

#[test]
fn an_unreachable_database_is_tried_again_with_growing_gaps_and_no_role_before_success() {
    let mut cluster = Cluster::new(&json!({}));
    cluster.outcomes.extend([3, 3].map(|code| Outcome::Exit(code, None)));
    let mut begun = Vec::new();
    for _ in 0..200 {
        let actions = cluster.pass();
        if actions
            .iter()
            .any(|action| matches!(action, Action::Apply(object) if object.key.kind == Kind::Job))
        {
            begun.push(cluster.now);
        }
        if begun.len() < 3 {
            assert!(cluster.history.iter().all(|line| !line.contains("Deployment")));
        }
        cluster.kubelet();
        cluster.now += 1;
    }
    assert_eq!(begun.len(), 3);
    assert!(begun[1] - begun[0] >= 10 && begun[2] - begun[1] >= 20, "{begun:?}");
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
    assert_eq!(cluster.status.schema.attempts, 0);
}

#[test]
fn attempts_end_and_the_annotation_revives_them() {
    let mut cluster = Cluster::new(&json!({ "migration": { "retries": 2, "backoffSeconds": 1 } }));
    cluster
        .outcomes
        .extend([Outcome::Exit(3, None), Outcome::Killed, Outcome::Exit(9, None)]);
    for _ in 0..40 {
        cluster.pass();
        cluster.kubelet();
        cluster.now += 5;
    }
    assert_eq!(cluster.condition("Degraded"), yes("MigrationFailed"));
    assert_eq!(cluster.status.schema.attempts, 3);
    cluster.annotate(RETRY_MIGRATION, "please");
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
    assert_eq!(cluster.status.schema.retry_token.as_deref(), Some("please"));
}

#[test]
fn a_refused_migration_begins_again_when_its_inputs_change() {
    let mut cluster = Cluster::new(&json!({}));
    cluster.outcomes.push_back(Outcome::Exit(2, None));
    cluster.settle();
    cluster.edit(&json!({ "migration": { "pod": { "extraEnv": [{ "name": "A", "value": "1" }] } } }));
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn a_supervised_migration_tells_its_plan_and_waits_for_the_approval_of_its_target() {
    let mut cluster = Cluster::new(&json!({ "migration": { "policy": "Supervised" } }));
    cluster.foreseen = Some(report(1, 2));
    for _ in 0..4 {
        cluster.pass();
        cluster.kubelet();
    }
    assert_eq!(cluster.condition("Migrated"), no("ApprovalRequired"));
    assert_eq!(cluster.status.schema.plan, ["2 step (additive)"]);
    assert_eq!(order(&cluster), ["apply Job plan", "delete Job plan"]);
    cluster.history.clear();
    cluster.annotate(APPROVE_MIGRATION, "0000000000000000");
    cluster.pass();
    assert_eq!(order(&cluster), Vec::<String>::new());
    let target = cluster.status.schema.target_hash.clone().expect("a target");
    cluster.annotate(APPROVE_MIGRATION, &target);
    cluster.outcomes.push_back(Outcome::Exit(0, Some(report(1, 2))));
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
    cluster.edit(&json!({ "image": NEW }));
    cluster.pass();
    assert_eq!(cluster.condition("Migrated"), no("ApprovalRequired"));
    assert_eq!(cluster.status.schema.plan, Vec::<String>::new());
}

#[test]
fn a_plan_that_cannot_be_made_is_told_and_keeps_nobody_from_approving() {
    let mut cluster = Cluster::new(&json!({ "migration": { "policy": "Supervised" } }));
    for _ in 0..4 {
        cluster.pass();
        cluster.kubelet();
    }
    assert!(cluster.message("Migrated").contains("could not be made"));
    let target = cluster.status.schema.target_hash.clone().expect("a target");
    cluster.annotate(APPROVE_MIGRATION, &target);
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn a_migration_at_work_is_left_to_finish_when_the_target_changes() {
    let mut cluster = Cluster::new(&json!({}));
    cluster.outcomes.push_back(Outcome::Runs);
    cluster.pass();
    cluster.kubelet();
    cluster.edit(&json!({ "image": NEW }));
    assert_eq!(cluster.pass(), []);
    assert_eq!(cluster.condition("Migrated"), no("Migrating"));
    cluster.outcomes.clear();
    cluster.kubelet();
    cluster.settle();
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn an_upgrade_waits_at_each_role_for_members_of_the_new_build() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.edit(&json!({ "image": NEW }));
    cluster.mute.extend([Role::Worker, Role::Scheduler]);
    for _ in 0..10 {
        cluster.pass();
        assert_eq!(cluster.condition("Ready").0, "False");
        cluster.kubelet();
    }
    assert_eq!(
        order(&cluster).last().map(String::as_str),
        Some("apply Deployment background")
    );
    assert_eq!(cluster.condition("WorkersReady"), no("WaitingForMembers"));
    assert_eq!(cluster.condition("SchedulersReady"), no("Waiting"));
    cluster.mute.remove(&Role::Worker);
    for _ in 0..5 {
        cluster.kubelet();
        cluster.pass();
    }
    assert_eq!(cluster.condition("SchedulersReady"), no("WaitingForMembers"));
    assert_eq!(
        order(&cluster).last().map(String::as_str),
        Some("apply Deployment scheduler")
    );
    cluster.mute.clear();
    cluster.settle();
    assert_eq!(order(&cluster).last().map(String::as_str), Some("apply Deployment api"));
}

#[test]
fn members_that_nobody_reports_open_no_gate() {
    let mut cluster = Cluster::new(&json!({}));
    for _ in 0..10 {
        cluster.pass();
        cluster.kubelet();
        cluster.facts.members = None;
    }
    assert_eq!(cluster.condition("WorkersReady"), no("WaitingForMembers"));
    assert_eq!(
        order(&cluster).last().map(String::as_str),
        Some("apply Deployment background")
    );
}

#[test]
fn a_missed_answer_of_the_roles_takes_ready_and_leaders_not_back() {
    let mut cluster = Cluster::ready(&json!({}));
    let scheduler = cluster.pods.iter().find(|pod| pod.component == "scheduler");
    let pod = scheduler.expect("a Scheduler").name.clone();
    cluster
        .facts
        .add(&pod, "powercontext_supervisor_fence{lease=\"global\"} 7\n");
    cluster.pass();
    let before = cluster.status.clone();
    let heard = std::mem::take(&mut cluster.facts);
    assert_eq!(cluster.pass(), []);
    assert_eq!(cluster.status, before);
    cluster.facts = heard;
    cluster.facts.members = Some(std::collections::BTreeMap::new());
    cluster.pass();
    assert_eq!(cluster.condition("Ready"), no("WaitingForMembers"));
}

#[test]
fn a_status_of_an_older_generation_opens_no_gate() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.edit(&json!({ "worker": { "concurrency": 8 }, "scheduler": { "terminationGracePeriodSeconds": 99 } }));
    cluster.pass();
    let stale = cluster.deployment(Role::Worker)["status"].clone();
    assert_eq!(stale["observedGeneration"], 1);
    cluster.pass();
    assert_eq!(order(&cluster), ["apply Deployment worker"]);
    assert_eq!(cluster.condition("WorkersReady"), no("RollingOut"));
}

#[test]
fn a_roll_back_goes_the_other_way_and_workers_wait_for_newer_payloads() {
    let mut cluster = Cluster::new(&json!({ "image": NEW }));
    cluster.outcomes.push_back(Outcome::Exit(0, Some(report(1, 2))));
    cluster.settle();
    assert_eq!(cluster.status.schema.revision, Some(2));
    cluster.history.clear();
    cluster.outcomes.push_back(Outcome::Exit(0, Some(report(2, 1))));
    cluster.facts.payload_depth = Some([(1, 5), (2, 3)].into());
    cluster.edit(&json!({ "image": "registry.example/powercontext:0.1.0" }));
    for _ in 0..10 {
        cluster.pass();
        cluster.kubelet();
    }
    assert_eq!(
        order(&cluster)[2..],
        ["apply Deployment api", "apply Deployment scheduler"]
    );
    assert_eq!(cluster.condition("WorkersReady"), no("NewerPayloadsQueued"));
    cluster.facts.payload_depth = None;
    cluster.pass();
    assert_eq!(cluster.condition("WorkersReady"), no("NewerPayloadsQueued"));
    cluster.facts.payload_depth = Some([(1, 5), (2, 0)].into());
    cluster.settle();
    assert_eq!(
        order(&cluster)[4..],
        ["apply Deployment worker", "apply Deployment background"]
    );
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn an_image_below_the_oldest_reader_is_blocked_and_what_runs_is_untouched() {
    let mut cluster = Cluster::ready(&json!({ "image": NEW }));
    let before = cluster.deployment(Role::Api).clone();
    cluster.outcomes.push_back(Outcome::Exit(1, Some(report(3, 1))));
    cluster.edit(&json!({ "image": "registry.example/powercontext:0.1.0" }));
    cluster.settle();
    assert_eq!(cluster.condition("UpgradeBlocked"), yes("SchemaAhead"));
    assert_eq!(cluster.condition("Migrated"), no("SchemaAhead"));
    assert_eq!(*cluster.deployment(Role::Api), before);
    assert!(order(&cluster).iter().all(|line| !line.contains("Deployment")));
    cluster.edit(&json!({ "image": NEW }));
    cluster.settle();
    assert_eq!(cluster.condition("UpgradeBlocked"), no("AsExpected"));
}

#[test]
fn a_change_of_mode_takes_every_scheduler_down_first() {
    let spec = json!({ "background": { "replicas": 1 } });
    let mut cluster = Cluster::ready(&spec);
    cluster.edit(&json!({ "supervisor": { "mode": "dedicated" } }));
    cluster.pass();
    assert_eq!(
        order(&cluster),
        ["apply Deployment background", "apply Deployment scheduler"]
    );
    assert_eq!(cluster.condition("SchedulersReady"), no("SwitchingMode"));
    // Nothing is stored while one of their pods is still there.
    cluster.pass();
    assert_eq!(order(&cluster).len(), 2);
    cluster.settle();
    assert_eq!(order(&cluster)[2], "apply Job switch-mode");
    assert_eq!(cluster.status.mode.as_deref(), Some("dedicated"));
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
    assert!(
        cluster.jobs().iter().all(|key| !key.name.contains("switch-mode")),
        "{:?}",
        cluster.jobs()
    );
    cluster.edit(&json!({ "supervisor": { "mode": "global" } }));
    cluster.settle();
    assert_eq!(cluster.status.mode.as_deref(), Some("global"));
}

#[test]
fn a_lost_status_does_not_hide_a_change_of_mode() {
    let mut cluster = Cluster::ready(&json!({}));
    cluster.status = Status::default();
    cluster.edit(&json!({ "supervisor": { "mode": "dedicated" } }));
    cluster.settle();
    assert!(order(&cluster).contains(&"apply Job switch-mode".to_owned()));
    assert_eq!(cluster.condition("Ready"), yes("Complete"));
}

#[test]
fn an_operator_killed_after_each_action_reaches_the_same_end() {
    let stories: [&[Value]; 3] = [
        &[json!({})],
        &[json!({}), json!({ "image": NEW })],
        &[
            json!({}),
            json!({ "image": NEW, "supervisor": { "mode": "dedicated" }, "worker": { "replicas": 1 } }),
        ],
    ];
    for story in stories {
        let tell = |deaths: Option<usize>| {
            let mut cluster = Cluster::new(&json!({}));
            for chapter in story {
                cluster.edit(chapter);
                for step in 0..14 {
                    if let Some(after) = deaths {
                        cluster.pass_and_die_after(after);
                        if step % 2 == 0 {
                            cluster.kubelet();
                        }
                    }
                    cluster.pass();
                    cluster.kubelet();
                    cluster.now += 1;
                }
                cluster.settle();
            }
            cluster
        };
        let undisturbed = tell(None);
        assert_eq!(undisturbed.condition("Ready"), yes("Complete"));
        for after in [1, 2, 3, 5, 8] {
            let disturbed = tell(Some(after));
            assert_eq!(disturbed.condition("Ready"), yes("Complete"), "{after}");
            let specs = |cluster: &Cluster| -> Vec<Value> {
                cluster.objects.values().map(|live| live["spec"].clone()).collect()
            };
            assert_eq!(specs(&disturbed), specs(&undisturbed), "killed after {after} actions");
        }
    }
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
