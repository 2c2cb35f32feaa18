//! One connection that hangs, and a pool without a free one: what the other runs of a Worker notice of it, which is nothing.

use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use powercontext_tests::proxy::{Act, At, Proxy, Rule};
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON};

/// Pause between two looks at leases.
const LOOK: Duration = Duration::from_millis(100);

/// A Worker behind a proxy with this many runs, each in a call of the model.
async fn with_runs(
    deployment: &Deployment,
    api: &Server,
    worker: Setup,
    proxy: &Proxy,
    runs: u32,
) -> anyhow::Result<(Server, Vec<String>)> {
    let worker = worker
        .with("DATABASE_URL", proxy.url())
        .with("WORKER_CONCURRENCY", &runs.to_string());
    let worker = worker.start().await?;
    deployment.provider.hold();
    let mut operations = Vec::new();
    for n in 0..runs {
        let scope = scope(n);
        capture(&api.client, &scope, 1).await?;
        operations.push(flush(&api.client, &scope).await?);
    }
    deployment.provider.in_flight(u64::from(runs), SOON).await?;
    Ok((worker, operations))
}

fn scope(n: u32) -> String {
    format!("room-{n:02}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_hangs_in_a_final_transaction_costs_the_other_fifteen_leases_nothing() -> anyhow::Result<()> {
    const LEASE: Duration = Duration::from_secs(12);
    let deployment = Deployment::new().await?;
    let proxy = Proxy::before(deployment.database.url()).await?;
    let api = deployment.start("api").await?;
    let worker = deployment
        .role("worker")
        .with("WORKER_LEASE_SECONDS", "12")
        .with("WORKER_HEARTBEAT_SECONDS", "3")
        .with("COORDINATION_SCHEDULER_LEASE_SECONDS", "12");
    let (worker, operations) = with_runs(&deployment, &api, worker, &proxy, 16).await?;
    let other = deployment.start("worker").await?;

    // The server has done everything but the commit, and keeps the rows locked.
    proxy.arm(Rule::on_commit_of("attempts.close", Act::MuteBefore));
    deployment.provider.answer_only("the house of room-07.");
    until("a final transaction hangs", SOON, async || {
        Ok(proxy.is_disarmed().then_some(()))
    })
    .await?;
    let hung = rt::now();
    let stuck = &operations[7];
    while api.client.operation(stuck).await?["status"] != "succeeded" {
        let others = deployment.held(stuck).await?;
        ensure!(others == 15, "{others} of 15 after {:?}", hung.elapsed());
        ensure!(hung.elapsed() < 2 * LEASE, "nobody ended it within two leases");
        rt::sleep(LOOK).await;
    }
    println!("a run whose final transaction hung ended after {:.1?}", hung.elapsed());

    deployment.provider.answer();
    for (n, operation) in (0..).zip(&operations) {
        api.client.operation_is(operation, "succeeded", SOON).await?;
        let outcomes = facts::outcomes(&deployment.database, operation).await?;
        ensure!(operation == stuck || outcomes == ["succeeded"], "{n}: {outcomes:?}");
        ensure!(
            facts::revisions(&deployment.database, &scope(n)).await? == 1,
            "{n}: one revision"
        );
    }
    deployment.holds().await?;
    for server in [api, worker, other] {
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_go_out_while_both_connections_of_a_pool_of_two_are_held_for_two_leases() -> anyhow::Result<()> {
    const LEASE: Duration = Duration::from_secs(4);
    let deployment = Deployment::new().await?;
    let proxy = Proxy::before(deployment.database.url()).await?;
    let api = deployment.start("api").await?;
    let worker = deployment.role("worker").with("DATABASE_POOL_SIZE", "2");
    let (worker, operations) = with_runs(&deployment, &api, worker, &proxy, 4).await?;

    for _ in 0..2 {
        proxy.arm(Rule {
            at: At::Statement("works.depths"),
            act: Act::MuteBefore,
            skip: 0,
        });
    }
    let scrapes = [(); 2].map(|()| {
        let client = worker.client.clone();
        rt::spawn(async move { client.get("/metrics").await })
    });
    until("two transactions hang", SOON, async || {
        Ok(proxy.is_disarmed().then_some(()))
    })
    .await?;
    let hung = rt::now();
    while hung.elapsed() < 2 * LEASE {
        let leases = deployment.held("").await?;
        ensure!(leases == 4, "{leases} of 4 after {:?}", hung.elapsed());
        let ready = worker.client.ready().await?;
        ensure!(
            hung.elapsed() > 2 * LEASE || ready.body["checks"]["database"] != "ready",
            "a connection was free: {ready:?}"
        );
    }
    for scrape in scrapes {
        scrape.await??.expect(200)?;
    }
    deployment.provider.answer();
    for operation in &operations {
        api.client.operation_is(operation, "succeeded", SOON).await?;
        let outcomes = facts::outcomes(&deployment.database, operation).await?;
        ensure!(outcomes == ["succeeded"], "{outcomes:?}");
    }
    deployment.holds().await?;
    worker.stop().await?;
    api.stop().await
}
