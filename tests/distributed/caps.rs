//! The cap of a family over a whole deployment: whatever its processes do, no more runs of it go on than its slots.

use anyhow::ensure;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON, by_member};
use crate::stage::MOST_AT_ONCE;

const HELD: &str = "select count(work_id) from pc_artifact_processing_slots where family = 'memory'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cap_of_memory_holds_over_all_workers_and_a_dead_one_gives_its_slots_back() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?.with("RUNTIME_MEMORY_MAX_WORKERS", "2");
    let six = deployment.all().await?;
    let api = &six.apis[0].client;
    deployment.provider.hold();
    let mut operations = Vec::new();
    for n in 0..5 {
        let scope = format!("house {n}");
        capture(api, &scope, 1).await?;
        operations.push(flush(api, &scope).await?);
    }
    deployment.provider.in_flight(2, SOON).await?;
    ensure!(
        facts::number(&deployment.database, HELD).await? == 2,
        "two slots, two runs"
    );
    deployment.holds().await?;
    let running = "select work_id from pc_work_items where status = 'running' order by work_id";
    let first = deployment.database.raw().await?.rows(running).await?[0].text(0)?;
    let (dies, lives) = by_member(six.workers, &deployment.runner(&first).await?)?;
    dies.kill().await?;
    // Its lease is over before its slot is free, and then others run in its place.
    until("the slots of the dead are taken again", SOON, async || {
        let lapsed = "select count(*) from pc_work_attempts where outcome like 'lease_expired%'";
        let lapsed = facts::number(&deployment.database, lapsed).await?;
        let held = facts::number(&deployment.database, HELD).await?;
        Ok((lapsed > 0 && held == 2).then_some(()))
    })
    .await?;
    deployment.provider.in_flight(2, SOON).await?;
    deployment.provider.answer();
    for operation in &operations {
        api.operation_is(operation, "succeeded", SOON).await?;
    }
    let most = MOST_AT_ONCE.replace("KIND", "'powercontext.memory.source-window'");
    let most = facts::number(&deployment.database, &most).await?;
    ensure!(most == 2, "{most} runs at once with a cap of 2");
    ensure!(
        facts::number(&deployment.database, HELD).await? == 0,
        "a slot has leaked"
    );
    deployment.holds().await?;
    lives.stop().await
}
