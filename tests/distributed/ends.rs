//! A Worker whose heartbeats get through and whose final transactions never do.

use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use powercontext_tests::proxy::{Act, Proxy, Rule};
use powercontext_tests::server::Server;
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON, metric};

/// Of an item here.
const LEASE: Duration = Duration::from_secs(4);
/// What a look for work, and the run of an item that was taken over, may take on a busy machine.
const TURN: Duration = Duration::from_secs(2);
const TAKEN_OVER: [&str; 2] = ["lease_expired_retry", "succeeded"];

/// Breaks every transaction that ends a run, from now on. Recovery and claims pass.
fn break_ends(proxy: &Proxy, act: Act) {
    for statement in ["works.finish_many", "works.save_fenced"] {
        proxy.arm_for_good(Rule::on_commit_of(statement, act));
    }
}

async fn behind(deployment: &Deployment, proxy: &Proxy, concurrency: usize) -> anyhow::Result<Server> {
    let worker = deployment.role("worker").with("DATABASE_URL", proxy.url());
    let worker = worker.with("WORKER_CONCURRENCY", &concurrency.to_string());
    worker.start().await
}

/// Flushes a Source of each scope.
async fn flush_each(api: &Server, scopes: &[String]) -> anyhow::Result<Vec<String>> {
    let mut operations = Vec::new();
    for scope in scopes {
        capture(&api.client, scope, 1).await?;
        operations.push(flush(&api.client, scope).await?);
    }
    Ok(operations)
}

fn scopes(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}-{n}")).collect()
}

/// Waits until all have succeeded, each with one revision, and none in more runs than these.
async fn succeed(
    deployment: &Deployment,
    api: &Server,
    scopes: &[String],
    operations: &[String],
    expected: &[&str],
) -> anyhow::Result<()> {
    for (scope, operation) in scopes.iter().zip(operations) {
        api.client.operation_is(operation, "succeeded", SOON).await?;
        let outcomes = facts::outcomes(&deployment.database, operation).await?;
        ensure!(outcomes == expected, "{scope}: {outcomes:?}");
        let revisions = facts::revisions(&deployment.database, scope).await?;
        ensure!(revisions == 1, "{scope}: {revisions} revisions");
    }
    Ok(())
}

async fn runs_nothing(worker: &Server) -> anyhow::Result<()> {
    until("no run is left", SOON, async || {
        let runs = metric(worker, "powercontext_worker_inflight").await?;
        Ok((runs == 0).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_ends_all_hang_loses_those_items_and_no_other_within_two_leases() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let proxy = Proxy::before(deployment.database.url()).await?;
    let api = deployment.start("api").await?;
    let mute = behind(&deployment, &proxy, 6).await?;
    deployment.provider.hold();
    let (early, late) = (scopes("early", 3), scopes("late", 3));
    let ending = flush_each(&api, &early).await?;
    let running = flush_each(&api, &late).await?;
    deployment.provider.in_flight(6, SOON).await?;
    let other = deployment.start("worker").await?;

    break_ends(&proxy, Act::MuteBefore);
    let begun = rt::now();
    deployment.provider.answer_only("the house of early-");
    let left = "select count(*) from pc_work_items where scope_id like 'early-%' and status <> 'succeeded'";
    let kept = "select count(*) from pc_work_items where scope_id like 'late-%' and status = 'running'
                and attempt_count = 1 and lease_expires_at > utc_timestamp(6)";
    while facts::number(&deployment.database, left).await? > 0 {
        let kept = facts::number(&deployment.database, kept).await?;
        ensure!(kept == 3, "{kept} of 3 leases after {:?}", begun.elapsed());
        ensure!(
            begun.elapsed() < 2 * LEASE + TURN,
            "not taken over:\n{}\n{}",
            mute.log(),
            other.log()
        );
        rt::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "items whose ends hung had ended elsewhere after {:.1?}",
        begun.elapsed()
    );
    succeed(&deployment, &api, &early, &ending, &TAKEN_OVER).await?;
    let warned = mute.log().matches("could not be written for a whole lease").count();
    ensure!((1..=3).contains(&warned), "{warned} warnings:\n{}", mute.log());

    proxy.disarm();
    deployment.provider.answer();
    succeed(&deployment, &api, &late, &running, &["succeeded"]).await?;
    let asked = deployment.provider.asked();
    ensure!(
        asked == 9,
        "{asked} calls of the model: one a run, and one for each that was taken over"
    );
    other.stop().await?;
    let new = scopes("new", 2);
    let operations = flush_each(&api, &new).await?;
    succeed(&deployment, &api, &new, &operations, &["succeeded"]).await?;
    runs_nothing(&mute).await?;
    deployment.holds().await?;
    mute.stop().await?;
    api.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_worker_whose_ends_are_all_reset_stops_claiming_tries_one_and_recovers() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let proxy = Proxy::before(deployment.database.url()).await?;
    let api = deployment.start("api").await?;
    let mute = behind(&deployment, &proxy, 2).await?;
    break_ends(&proxy, Act::CutBefore);
    let begun = rt::now();
    let scopes = scopes("room", 6);
    let operations = flush_each(&api, &scopes).await?;

    // Two slots, and two ends that are being written.
    let tried = 4;
    while deployment.provider.asked() <= tried {
        ensure!(begun.elapsed() < SOON, "it never tried again:\n{}", mute.log());
        rt::sleep(Duration::from_millis(50)).await;
    }
    let silent = begun.elapsed();
    ensure!(silent >= 3 * LEASE, "claimed again after {silent:?}:\n{}", mute.log());
    let outcomes = "select count(*) from pc_work_attempts where outcome = 'lease_expired_retry'";
    ensure!(
        facts::number(&deployment.database, outcomes).await? == 4,
        "each was given up once"
    );
    let acted = proxy.counts().acted;
    until("its end is tried again", SOON, async || {
        Ok((proxy.counts().acted > acted + 10).then_some(()))
    })
    .await?;
    let asked = deployment.provider.asked();
    ensure!(asked == tried + 1, "{asked} calls: one is tried at a time");

    proxy.disarm();
    for (scope, operation) in scopes.iter().zip(&operations) {
        api.client.operation_is(operation, "succeeded", SOON).await?;
        let revisions = facts::revisions(&deployment.database, scope).await?;
        ensure!(revisions == 1, "{scope}: {revisions} revisions");
    }
    let asked = deployment.provider.asked();
    ensure!(asked == 10, "{asked} calls: six runs, and the first four again");
    runs_nothing(&mute).await?;
    deployment.holds().await?;
    mute.stop().await?;
    api.stop().await
}
