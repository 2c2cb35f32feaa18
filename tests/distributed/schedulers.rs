//! Schedulers: one leads, another takes over under a higher fence, and a leader of the past admits nothing.

use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::facts;
use powercontext_tests::kit::capture;
use powercontext_tests::wait::until;

use crate::rig::{Deployment, GLOBAL, SOON, by_member, checks, metric};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_is_followed_by_the_standby_within_a_lease() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let six = deployment.all().await?;
    let (leader, fence) = deployment.led_above(0).await?;
    let (leads, standby) = by_member(six.schedulers, &leader)?;
    leads.kill().await?;
    let killed = rt::now();
    let (successor, higher) = deployment.led_above(fence).await?;
    let took = killed.elapsed();
    ensure!(successor != leader && higher > fence, "{successor} under {higher}");
    ensure!(took <= Duration::from_secs(4), "lease 3 s and 1 s: {took:?}");
    capture(&six.apis[0].client, "house", 3).await?;
    until("the successor admits", SOON, async || {
        let sql = "select count(*) from pc_work_items where status = 'succeeded' and kind = 'powercontext.memory.source-window'";
        Ok((facts::number(&deployment.database, sql).await? == 1).then_some(()))
    })
    .await?;
    deployment.holds().await?;
    standby.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_ends_in_order_is_followed_at_once() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    // Longer than anybody waits here.
    let deployment = deployment.with("COORDINATION_SCHEDULER_LEASE_SECONDS", "600");
    let schedulers = [
        deployment.start("scheduler").await?,
        deployment.start("scheduler").await?,
    ];
    let (leader, fence) = deployment.led_above(0).await?;
    let (leads, standby) = by_member(schedulers, &leader)?;
    ensure!(metric(&standby, GLOBAL).await? == 0);
    ensure!(checks(&standby).await?["status"] == "ready", "a standby is ready");
    leads.stop().await?;
    let (_, higher) = deployment.led_above(fence).await?;
    ensure!(higher == fence + 1, "{fence}, then {higher}");
    standby.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_does_not_change_without_a_fault() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let schedulers = [
        deployment.start("scheduler").await?,
        deployment.start("scheduler").await?,
    ];
    let first = deployment.led_above(0).await?;
    let until = rt::now() + Duration::from_secs(10);
    while rt::now() < until {
        let now = deployment.leader().await?;
        ensure!(now.as_ref() == Some(&first), "{first:?}, then {now:?}");
        rt::sleep(Duration::from_millis(200)).await;
    }
    for scheduler in schedulers {
        scheduler.stop().await?;
    }
    Ok(())
}
