//! Two replicas of the operator, and what a kill in the middle costs.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use powercontext_cluster_tests::kubelet::Fate;
use powercontext_cluster_tests::stage::{SOON, Stage, spec};
use powercontext_cluster_tests::wait::until;
use powercontext_operator::rt;

const TAKEN_OVER: Duration = Duration::from_secs(20);

/// Who holds the lease.
async fn holder(stage: &Stage) -> anyhow::Result<Option<String>> {
    let lease = stage.api::<Lease>().get_opt("powercontext-operator").await?;
    let holder = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}

#[tokio::test]
async fn a_leader_killed_in_mid_migration_is_followed_within_twenty_seconds_and_one_job() -> anyhow::Result<()> {
    let stage = Stage::new("leader").await?;
    stage.kubelet.only("migrate", Fate::Running { ready: false });
    let setup = stage.setup(true).await?;
    let mut operators = [setup.start("first")?, setup.start("second")?];
    let first = until("a leader", SOON, async || holder(&stage).await).await?;
    stage.apply(&spec()).await?;
    until("a Job", SOON, async || Ok(stage.jobs("migrate").await?.pop())).await?;
    let leading = usize::from(first.starts_with("second"));
    operators[leading].kill()?;
    let killed = rt::now();
    let second = until("another leader", TAKEN_OVER, async || {
        Ok(holder(&stage).await?.filter(|holder| *holder != first))
    });
    let second = stage.explained(second.await).await?;
    ensure!(killed.elapsed() <= TAKEN_OVER, "{:?}", killed.elapsed());
    stage.kubelet.well();
    stage.until_ready().await?;
    let writes = stage.audit.writes()?;
    let jobs: Vec<_> = writes
        .iter()
        .filter(|one| one.resource == "jobs" && one.verb == "create")
        .collect();
    ensure!(jobs.len() == 1, "{jobs:#?}");
    // One that is asked to end gives the lease back at once.
    let ended = operators[1 - leading].end().await?;
    ensure!(ended.success(), "{ended}");
    ensure!(holder(&stage).await?.is_none(), "{second} still holds the lease");
    Ok(())
}

#[tokio::test]
async fn a_replica_that_waits_for_the_lease_is_ready_and_changes_nothing() -> anyhow::Result<()> {
    let stage = Stage::new("waiting").await?;
    let setup = stage.setup(true).await?;
    let _first = setup.start("first")?;
    until("a leader", SOON, async || holder(&stage).await).await?;
    let second = setup.start("second")?;
    until("the second is ready", SOON, async || {
        let answer = tokio::net::TcpStream::connect(("127.0.0.1", second.port())).await.ok();
        Ok(answer.map(drop))
    })
    .await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let said = second.log();
    ensure!(!said.contains("acting"), "{said}");
    let leader = holder(&stage).await?.context("a leader")?;
    ensure!(leader.starts_with("first"), "{leader}");
    Ok(())
}
