//! Pods are admitted where `restricted` is enforced, and do what they are for.

use anyhow::{Context as _, ensure};
use powercontext_cluster_tests::wait::until;

use crate::site::{SOON, Site, beside};

/// Every value that adds something to a pod.
const EVERYTHING: &str = "image.repository=registry.example/powercontext,scope=namespaces,crds.install=false,\
    metrics.tokenSecretRef.name=operator-metrics,metrics.tokenSecretRef.key=token,\
    extraVolumes[0].name=tmp,extraVolumes[0].emptyDir.medium=Memory,\
    extraVolumeMounts[0].name=tmp,extraVolumeMounts[0].mountPath=/tmp";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pod_is_admitted_where_restricted_is_enforced() -> anyhow::Result<()> {
    let _beside = beside().await;
    let site = Site::new("pods").await?;
    // `--wait` ends only when both replicas were admitted, made and became ready.
    site.install_ours(&["--set", EVERYTHING, "--set", &format!("namespaces={{{}}}", site.name)])?;
    let deployment = site.get("deployment", &site.fullname())?.context("it is installed")?;
    ensure!(deployment["status"]["readyReplicas"] == 2, "{}", deployment["status"]);
    let told = site.helm(&["test", &site.name, "--timeout", "60s"])?;
    ensure!(told.contains("Phase:          Succeeded"), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_test_finds_every_promise_kept_by_an_operator_that_works() -> anyhow::Result<()> {
    let _beside = beside().await;
    let site = Site::new("check").await?;
    let scope = format!("namespaces={{{}}}", site.name);
    site.install_ours(&["--set", "scope=namespaces,crds.install=false", "--set", &scope])?;
    let operator = site.operator("one").await?;
    let told = site.check(operator.port()).await?;
    ensure!(
        told.lines().count() == 5 && told.lines().all(|line| line.starts_with("true: ")),
        "{told}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_replica_takes_over_from_a_killed_leader_within_20_seconds() -> anyhow::Result<()> {
    let _beside = beside().await;
    let site = Site::new("leader").await?;
    let scope = format!("namespaces={{{}}}", site.name);
    site.install_ours(&["--set", "scope=namespaces,crds.install=false", "--set", &scope])?;
    let mut first = site.operator("one").await?;
    let holder = async |name: &'static str| {
        until(&format!("{name} leads"), SOON, async || {
            let lease = site.get("lease", &site.fullname())?.unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            Ok(holder.starts_with(name).then_some(()))
        })
        .await
    };
    holder("one").await?;
    let _second = site.operator("two").await?;
    let began = powercontext_operator::rt::now();
    first.kill()?;
    holder("two").await?;
    ensure!(began.elapsed().as_secs() <= 20, "{:?}", began.elapsed());
    Ok(())
}
