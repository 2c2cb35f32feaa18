//! Stories of the migration of a deployment, against the simulated cluster.

use serde_json::json;

use super::simulation::{Cluster, Outcome};
use super::tests::{NEW, no, order, report, yes};
use super::*;
use crate::names::{APPROVE_MIGRATION, RETRY_MIGRATION};
use crate::object::Kind;

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
