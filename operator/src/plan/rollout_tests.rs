//! Stories of upgrades, roll-backs and changes of mode, against the simulated cluster.

use serde_json::{Value, json};

use super::simulation::{Cluster, Outcome};
use super::tests::{NEW, no, order, report, yes};
use super::*;
use crate::names::Role;

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
