//! The migration: once for each target, tried again where that can help, and before every role.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use powercontext_cluster_tests::audit::Request;
use powercontext_cluster_tests::kubelet::{Fate, report};
use powercontext_cluster_tests::roles::component;
use powercontext_cluster_tests::stage::{NAME, SOON, Stage, spec, spec_with};
use powercontext_cluster_tests::wait::{throughout, until};
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::PowerContextDeployment;
use powercontext_operator::names::{APPROVE_MIGRATION, RETRY_MIGRATION, Role};
use serde_json::json;

const MIGRATE: &str = "migrate";
/// How long nothing may happen before a test believes that nothing will.
const QUIET: Duration = Duration::from_secs(4);

/// The Jobs that were made, in order.
fn made(stage: &Stage) -> anyhow::Result<Vec<Request>> {
    let writes = stage.audit.writes()?;
    let made = writes
        .into_iter()
        .filter(|one| one.resource == "jobs" && one.verb == "create" && one.code == 201);
    Ok(made.collect())
}

async fn annotate(stage: &Stage, key: &str, value: &str) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    let api = stage.api::<PowerContextDeployment>();
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Migrations end one after the other like these, and then well.
fn ending(stage: &Stage, fates: impl IntoIterator<Item = Fate>) {
    let coming = Mutex::new((fates.into_iter().collect::<VecDeque<_>>(), Vec::<(String, Fate)>::new()));
    stage.kubelet.script(move |pod| {
        if component(pod) != MIGRATE {
            return Fate::Running { ready: true };
        }
        let (coming, given) = &mut *coming.lock().expect("no holder panicked");
        let uid = pod.uid().unwrap_or_default();
        if let Some((_, fate)) = given.iter().find(|(one, _)| *one == uid) {
            return fate.clone();
        }
        let fate = coming.pop_front().unwrap_or_else(Fate::migrated);
        given.push((uid, fate.clone()));
        fate
    });
}

fn failed(code: i32) -> Fate {
    Fate::Exit {
        code,
        line: report(5, 6, code),
    }
}

#[tokio::test]
async fn a_completed_job_that_is_deleted_by_hand_is_not_made_again_by_the_next_operator() -> anyhow::Result<()> {
    let stage = Stage::new("by-hand").await?;
    let mut operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    for job in stage.jobs(MIGRATE).await? {
        stage
            .api::<Job>()
            .delete(&job.name_any(), &DeleteParams::background())
            .await?;
    }
    operator.kill()?;
    let _operator = stage.operator().await?;
    let asked = stage.roles.told().asked.len();
    until("the new operator looks", SOON, async || {
        Ok((stage.roles.told().asked.len() > asked).then_some(()))
    })
    .await?;
    throughout(QUIET, async || {
        ensure!(made(&stage)?.len() == 1, "{:?}", made(&stage)?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_that_vanishes_the_moment_it_has_completed_counts_as_completed() -> anyhow::Result<()> {
    let stage = Stage::new("ttl").await?;
    stage.kubelet.only(MIGRATE, Fate::Running { ready: false });
    let mut operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    let job = until("a Job", SOON, async || Ok(stage.jobs(MIGRATE).await?.pop())).await?;
    until("it runs", SOON, async || {
        let pods = stage.pods(MIGRATE).await?;
        let runs = |pod: &Pod| {
            pod.status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Running"))
        };
        Ok(pods.iter().any(runs).then_some(()))
    })
    .await?;
    stage.at_rest().await?;
    // It sees the Job for the first time again when the Job is already gone.
    operator.freeze(true)?;
    let at_once = json!({ "spec": { "ttlSecondsAfterFinished": 0 } });
    let params = PatchParams::default();
    stage
        .api::<Job>()
        .patch(&job.name_any(), &params, &Patch::Merge(at_once))
        .await?;
    stage.kubelet.well();
    until("the Job is gone", SOON, async || {
        Ok(stage.jobs(MIGRATE).await?.is_empty().then_some(()))
    })
    .await?;
    operator.freeze(false)?;
    stage.until_ready().await?;
    operator.kill()?;
    let _operator = stage.operator().await?;
    throughout(QUIET, async || {
        ensure!(made(&stage)?.len() == 1, "{:?}", made(&stage)?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_new_job_is_made_only_for_a_new_target_and_no_change_meets_an_immutable_field() -> anyhow::Result<()> {
    let stage = Stage::new("target").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let resources = json!({ "requests": { "cpu": "100m", "memory": "64Mi" } });
    let env = json!([{ "name": "TZ", "value": "UTC" }]);
    let more = json!({
        "migration": { "resources": resources, "pod": { "extraEnv": env } },
        "worker": { "resources": resources, "pod": { "extraEnv": env } },
    });
    stage.apply(&spec_with(&more)).await?;
    stage.until_ready().await?;
    ensure!(made(&stage)?.len() == 1, "resources and variables are no target");
    let mut next = more.clone();
    next["image"] = "registry.example/powercontext:0.2.0".into();
    stage.apply(&spec_with(&next)).await?;
    stage.until_ready().await?;
    let jobs = made(&stage)?;
    ensure!(jobs.len() == 2, "{jobs:?}");
    let refused: Vec<_> = stage
        .audit
        .requests()?
        .into_iter()
        .filter(|one| one.code == 422)
        .collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_changed_spec_makes_a_job_anew_that_cannot_start() -> anyhow::Result<()> {
    let stage = Stage::new("anew").await?;
    stage.kubelet.only(MIGRATE, Fate::Pending);
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    until("a Job", SOON, async || Ok(stage.jobs(MIGRATE).await?.pop())).await?;
    // Another pod template, which the Job that is there can never have.
    let env = json!({ "migration": { "pod": { "extraEnv": [{ "name": "TZ", "value": "UTC" }] } } });
    stage.apply(&spec_with(&env)).await?;
    until("a second Job", SOON, async || {
        Ok((made(&stage)?.len() == 2).then_some(()))
    })
    .await?;
    stage.kubelet.well();
    stage.until_ready().await?;
    let refused: Vec<_> = stage
        .audit
        .requests()?
        .into_iter()
        .filter(|one| one.code == 422)
        .collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_tag_is_told_with_pod_and_image_and_the_corrected_one_starts_at_once() -> anyhow::Result<()> {
    let stage = Stage::new("tag").await?;
    let wrong = "registry.example/powercontext:wrnog";
    stage.kubelet.script(move |pod| {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        if image.as_deref() == Some(wrong) {
            Fate::Image("ImagePullBackOff")
        } else if component(pod) == MIGRATE {
            Fate::migrated()
        } else {
            Fate::Running { ready: true }
        }
    });
    let _operator = stage.operator().await?;
    stage.apply(&spec_with(&json!({ "image": wrong }))).await?;
    let told = stage
        .until_condition(ConditionType::Degraded, true, Reason::ImagePullFailed, SOON)
        .await?;
    let pod = stage.pods(MIGRATE).await?.pop().context("a pod")?;
    ensure!(
        told.message.contains(wrong) && told.message.contains(&pod.name_any()),
        "{}",
        told.message
    );
    let first = stage.jobs(MIGRATE).await?.pop().context("a Job")?.name_any();
    stage.apply(&spec()).await?;
    let within = Duration::from_secs(5);
    until("the stale Job is gone and a new one is there", within, async || {
        let names: Vec<_> = stage.jobs(MIGRATE).await?.iter().map(ResourceExt::name_any).collect();
        Ok((!names.contains(&first) && made(&stage)?.len() == 2).then_some(()))
    })
    .await?;
    stage.until_ready().await?;
    Ok(())
}

#[tokio::test]
async fn a_refused_migration_is_told_with_its_code_and_not_repeated_until_somebody_asks() -> anyhow::Result<()> {
    for (code, reason) in [(1, Reason::MigrationRefused), (2, Reason::MigrationMisconfigured)] {
        let stage = Stage::new("refused").await?;
        ending(&stage, [failed(code)]);
        let _operator = stage.operator().await?;
        stage
            .apply(&spec_with(&json!({ "migration": { "backoffSeconds": 1 } })))
            .await?;
        let told = stage
            .until_condition(ConditionType::Degraded, true, reason, SOON)
            .await?;
        ensure!(told.message.contains(&format!("exit {code}")), "{}", told.message);
        throughout(QUIET, async || {
            ensure!(made(&stage)?.len() == 1, "{:?}", made(&stage)?);
            ensure!(stage.deployment(Role::Worker).await?.is_none(), "a role before success");
            Ok(())
        })
        .await?;
        annotate(&stage, RETRY_MIGRATION, "please").await?;
        stage.until_ready().await?;
        ensure!(made(&stage)?.len() == 2, "{:?}", made(&stage)?);
    }
    Ok(())
}

#[tokio::test]
async fn an_unreachable_database_is_tried_again_with_growing_gaps_and_no_role_starts_before() -> anyhow::Result<()> {
    let stage = Stage::new("gaps").await?;
    ending(&stage, [failed(3), failed(3)]);
    let _operator = stage.operator().await?;
    stage
        .apply(&spec_with(&json!({ "migration": { "backoffSeconds": 2 } })))
        .await?;
    stage.until_ready().await?;
    let jobs = made(&stage)?;
    ensure!(jobs.len() == 3, "{jobs:?}");
    let gap = |n: usize| jobs[n + 1].received.as_millisecond() - jobs[n].received.as_millisecond();
    // From one beginning to the next: the gap, and however long the cluster takes on a busy machine.
    ensure!(gap(0) >= 1_500 && gap(1) >= 3_500, "{} ms, {} ms", gap(0), gap(1));
    let roles: Vec<_> = stage
        .audit
        .writes()?
        .into_iter()
        .filter(|one| one.resource == "deployments")
        .collect();
    ensure!(roles.iter().all(|role| role.received > jobs[2].received), "{roles:?}");
    ensure!(stage.status().await?.schema.revision == Some(6));
    Ok(())
}

#[tokio::test]
async fn a_migration_without_memory_or_room_is_tried_again_up_to_its_bound() -> anyhow::Result<()> {
    let stage = Stage::new("lost").await?;
    ending(&stage, [Fate::OutOfMemory, Fate::Evicted, Fate::OutOfMemory]);
    let _operator = stage.operator().await?;
    let quick = json!({ "migration": { "backoffSeconds": 1, "backoffMaxSeconds": 1, "retries": 2 } });
    stage.apply(&spec_with(&quick)).await?;
    let told = stage
        .until_condition(ConditionType::Degraded, true, Reason::MigrationFailed, SOON)
        .await?;
    ensure!(told.message.contains("3 attempts"), "{}", told.message);
    ensure!(made(&stage)?.len() == 3);
    annotate(&stage, RETRY_MIGRATION, "1").await?;
    stage.until_ready().await?;
    Ok(())
}

#[tokio::test]
async fn a_supervised_migration_shows_its_plan_and_waits_for_its_approval() -> anyhow::Result<()> {
    let stage = Stage::new("approve").await?;
    let _operator = stage.operator().await?;
    stage
        .apply(&spec_with(&json!({ "migration": { "policy": "Supervised" } })))
        .await?;
    stage
        .until_condition(ConditionType::Migrated, false, Reason::ApprovalRequired, SOON)
        .await?;
    let schema = until("a plan", SOON, async || {
        let schema = stage.status().await?.schema;
        Ok((!schema.plan.is_empty()).then_some(schema))
    });
    let schema = stage.explained(schema.await).await?;
    ensure!(schema.plan == ["6 distributed_roles (additive)"], "{:?}", schema.plan);
    annotate(&stage, APPROVE_MIGRATION, "something else").await?;
    throughout(QUIET, async || {
        ensure!(stage.jobs(MIGRATE).await?.is_empty(), "not approved");
        Ok(())
    })
    .await?;
    annotate(&stage, APPROVE_MIGRATION, &schema.target_hash.context("a target")?).await?;
    stage.until_ready().await?;
    ensure!(stage.jobs("plan").await?.is_empty(), "its plan is not needed any more");
    Ok(())
}

#[tokio::test]
async fn an_image_below_the_oldest_reader_is_blocked_and_running_pods_stay_untouched() -> anyhow::Result<()> {
    let stage = Stage::new("ahead").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let uids = async || -> anyhow::Result<Vec<String>> {
        let mut uids = Vec::new();
        for role in Role::ALL {
            uids.extend(stage.pods(role.as_str()).await?.iter().filter_map(ResourceExt::uid));
        }
        Ok(uids)
    };
    let before = uids().await?;
    stage.kubelet.only(
        MIGRATE,
        Fate::Exit {
            code: 1,
            line: report(6, 3, 1),
        },
    );
    stage
        .apply(&spec_with(&json!({ "image": "registry.example/powercontext:0.0.3" })))
        .await?;
    stage
        .until_condition(ConditionType::UpgradeBlocked, true, Reason::SchemaAhead, SOON)
        .await?;
    throughout(QUIET, async || {
        ensure!(uids().await? == before, "a pod was replaced");
        Ok(())
    })
    .await?;
    // Back to the image that fits: nothing was lost, and nothing is migrated again that was.
    stage.kubelet.well();
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    ensure!(uids().await? == before);
    Ok(())
}
