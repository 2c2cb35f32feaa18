//! Workers that die, freeze or are asked to end: their items go on elsewhere, once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::kit::{capture, flush, settled};
use powercontext_tests::wait::until;
use powercontext_tests::{facts, rows};

use crate::rig::{Deployment, SOON, by_member, metric};

/// Of an item here.
const LEASE: Duration = Duration::from_secs(4);
const TAKEN_OVER: [&str; 2] = ["lease_expired_retry", "succeeded"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_a_call_of_the_model_loses_its_item_to_the_other_under_the_next_fence() -> anyhow::Result<()>
{
    let deployment = Deployment::new().await?;
    let six = deployment.all().await?;
    let api = &six.apis[0].client;
    deployment.provider.hold();
    capture(api, "house", 3).await?;
    let operation = flush(api, "house").await?;
    deployment.provider.in_flight(1, SOON).await?;
    let (runs, idle) = by_member(six.workers, &deployment.runner(&operation).await?)?;
    runs.kill().await?;
    deployment.provider.answer();
    api.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&deployment.database, &operation).await?;
    ensure!(outcomes == TAKEN_OVER, "{outcomes:?}");
    let fence = format!("select lease_fence from pc_work_items where work_id = '{operation}'");
    ensure!(
        facts::number(&deployment.database, &fence).await? == 2,
        "the second claim has the second fence"
    );
    settled(&deployment.database, api, "house", 3).await?;
    idle.stop().await
}

/// The rows that a run changes, byte by byte. What its call of the model cost is added up whatever becomes of it.
async fn written(deployment: &Deployment) -> anyhow::Result<BTreeMap<String, String>> {
    const OTHERS: [&str; 3] = ["pc_runtime_members.", "pc_scheduler_leases.", "pc_model_usage_daily."];
    let mut rows = rows::all(&deployment.database).await?;
    rows.retain(|column, _| !OTHERS.iter().any(|table| column.starts_with(table)));
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_inside_its_final_transaction_changes_nothing_when_it_wakes_and_lives_on() -> anyhow::Result<()>
{
    let deployment = Deployment::new().await?;
    let api = deployment.start("api").await?;
    let armed = deployment.database.beside("armed");
    std::fs::write(&armed, "")?;
    let point = format!("finish.before_commit=hold@{}", armed.display());
    let frozen = deployment.role("worker").stopping_at(&point).start().await?;
    capture(&api.client, "house", 3).await?;
    let operation = flush(&api.client, "house").await?;
    frozen.reached("finish.before_commit").await?;
    frozen.freeze()?;
    let since = rt::now();
    let other = deployment.start("worker").await?;
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    ensure!(since.elapsed() <= 2 * LEASE, "taken over after {:?}", since.elapsed());
    let outcomes = facts::outcomes(&deployment.database, &operation).await?;
    ensure!(outcomes == TAKEN_OVER, "{outcomes:?}");
    other.stop().await?;

    // It wakes, sends its commit, and asks what became of it.
    let before = written(&deployment).await?;
    std::fs::remove_file(&armed)?;
    frozen.thaw()?;
    until("its run is over", SOON, async || {
        let runs = metric(&frozen, "powercontext_worker_inflight").await?;
        Ok((runs == 0).then_some(()))
    })
    .await?;
    ensure!(written(&deployment).await? == before, "it has changed a row");
    settled(&deployment.database, &api.client, "house", 3).await?;

    capture(&api.client, "garden", 3).await?;
    let next = flush(&api.client, "garden").await?;
    api.client.operation_is(&next, "succeeded", SOON).await?;
    deployment.holds().await?;
    frozen.stop().await?;
    api.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_rolling_restarts_over_one_long_item_cost_it_no_attempt() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let deployment = deployment
        .with("WORKER_SHUTDOWN_GRACE_SECONDS", "0")
        .with("WORKER_MAX_ATTEMPTS", "1");
    let api = deployment.start("api").await?;
    deployment.provider.hold();
    capture(&api.client, "house", 3).await?;
    let operation = flush(&api.client, "house").await?;
    let mut worker = deployment.start("worker").await?;
    for _ in 0..5 {
        deployment.provider.in_flight(1, SOON).await?;
        worker.stop().await?;
        worker = deployment.start("worker").await?;
    }
    deployment.provider.in_flight(1, SOON).await?;
    deployment.provider.answer();
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&deployment.database, &operation).await?;
    ensure!(
        outcomes == ["released", "released", "released", "released", "released", "succeeded"],
        "{outcomes:?}"
    );
    deployment.holds().await?;
    worker.stop().await?;
    api.stop().await
}
