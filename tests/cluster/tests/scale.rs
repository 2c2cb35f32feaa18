//! How many pods: by the spec, by an autoscaler, by people.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use powercontext_cluster_tests::stage::{SOON, Stage, spec, spec_with};
use powercontext_cluster_tests::wait::until;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_operator::names::{DELETION_COST, Role};
use serde_json::{Value, json};

async fn replicas(stage: &Stage, role: Role) -> anyhow::Result<Option<i32>> {
    let deployment = stage.deployment(role).await?;
    Ok(deployment.and_then(|one| one.spec).and_then(|spec| spec.replicas))
}

#[tokio::test]
async fn the_number_of_an_autoscaler_stays_and_so_does_a_restart_by_kubectl() -> anyhow::Result<()> {
    let stage = Stage::new("hpa").await?;
    let _operator = stage.operator().await?;
    let scaled = |image: &str| {
        spec_with(&json!({
            "image": image,
            "api": { "replicas": null, "resources": { "requests": { "cpu": "100m" } } },
            "autoscaling": { "api": { "minReplicas": 2, "maxReplicas": 5 } },
        }))
    };
    stage.apply(&scaled("registry.example/powercontext:0.1.0")).await?;
    stage.until_ready().await?;
    ensure!(replicas(&stage, Role::Api).await? == Some(2));
    // As its controller does it: through the scale subresource of the Deployment.
    stage.kubectl().run(&["scale", "deployment/pc-api", "--replicas=4"])?;
    stage.kubectl().run(&["rollout", "restart", "deployment/pc-api"])?;
    stage.until_ready().await?;
    stage.apply(&scaled("registry.example/powercontext:0.2.0")).await?;
    stage.until_ready().await?;
    ensure!(replicas(&stage, Role::Api).await? == Some(4));
    let deployment = stage.deployment(Role::Api).await?.context("it is there")?;
    let template = serde_json::to_value(deployment.spec.context("a spec")?.template)?;
    let restarted = &template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
    ensure!(restarted.is_string(), "the restart was taken back: {template}");
    Ok(())
}

#[tokio::test]
async fn workers_scale_through_the_resource_and_the_idle_ones_go_first() -> anyhow::Result<()> {
    let stage = Stage::new("workers").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    stage.kubectl().run(&["scale", "pcd/pc", "--replicas=3"])?;
    until("three Workers", SOON, async || {
        Ok((replicas(&stage, Role::Worker).await? == Some(3)).then_some(()))
    })
    .await?;
    stage.until_ready().await?;
    let pods = stage.pods("worker").await?;
    ensure!(
        pods.iter().all(|pod| !pod.annotations().contains_key(DELETION_COST)),
        "a cost without a reason"
    );
    // The oldest and the newest would be the ones to go; the busy one is neither.
    let mut names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    names.sort();
    let busy = names[1].clone();
    stage.roles.told().in_flight = [(busy.clone(), 3)].into();
    // A Worker takes its time to drain.
    let may_end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let may = std::sync::Arc::clone(&may_end);
    stage
        .kubelet
        .may_end(move |_| may.load(std::sync::atomic::Ordering::Relaxed));
    stage.kubectl().run(&["scale", "pcd/pc", "--replicas=1"])?;
    stage
        .until_condition(ConditionType::WorkersReady, false, Reason::Draining, SOON)
        .await?;
    may_end.store(true, std::sync::atomic::Ordering::Relaxed);
    stage.kubelet.may_end(|_| true);
    stage.until_ready().await?;
    let left: BTreeSet<_> = stage.pods("worker").await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left == [busy.clone()].into(), "{busy} was busy, {left:?} is left");
    let scale = stage
        .kubectl()
        .run(&["get", "pcd/pc", "--subresource=scale", "-o", "json"])?;
    let scale: Value = serde_json::from_str(&scale)?;
    ensure!(scale["status"]["replicas"] == 1, "{scale}");
    let selector = scale["status"]["selector"].as_str().context("a selector")?;
    let chosen = stage
        .api::<Pod>()
        .list(&kube::api::ListParams::default().labels(selector))
        .await?;
    ensure!(chosen.items.len() == 1, "{selector}");
    Ok(())
}

#[tokio::test]
async fn no_pod_of_any_role_is_fine_and_the_migration_still_runs() -> anyhow::Result<()> {
    let stage = Stage::new("zero").await?;
    let _operator = stage.operator().await?;
    let none = json!({ "replicas": 0 });
    stage
        .apply(&spec_with(
            &json!({ "api": none, "scheduler": none, "worker": none, "background": none }),
        ))
        .await?;
    stage.until_ready().await?;
    for kind in [
        ConditionType::WorkersReady,
        ConditionType::SchedulersReady,
        ConditionType::ApisReady,
    ] {
        let condition = stage.condition(kind).await?.context("it is told")?;
        ensure!(condition.reason == Reason::ScaledToZero.as_str(), "{condition:?}");
    }
    ensure!(stage.jobs("migrate").await?.len() == 1);
    ensure!(stage.status().await?.schema.completed_hash.is_some());
    Ok(())
}
