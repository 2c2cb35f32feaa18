//! Workers whose clocks disagree: leases are the database's, whatever a process believes.

use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush, settled};
use powercontext_tests::preload::shifted;

use crate::rig::{Deployment, SOON, by_member};

const LEASE: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(100);
const HALF_AN_HOUR: i64 = 1800;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_whose_clocks_are_an_hour_apart_keep_their_leases_and_take_over_only_what_has_expired()
-> anyhow::Result<()> {
    let deployment = Deployment::new().await?.with("WORKER_CONCURRENCY", "1");
    let api = deployment.start("api").await?;
    let (role, database) = (deployment.role("worker"), &deployment.database);
    let workers = [
        shifted(&role, database, HALF_AN_HOUR)?.start().await?,
        shifted(&role, database, -HALF_AN_HOUR)?.start().await?,
    ];
    deployment.provider.hold();
    let mut operations = Vec::new();
    for scope in ["house", "garden"] {
        capture(&api.client, scope, 3).await?;
        operations.push(flush(&api.client, scope).await?);
    }
    deployment.provider.in_flight(2, SOON).await?;
    let since = rt::now();
    while since.elapsed() < 2 * LEASE {
        let held = deployment.held("").await?;
        ensure!(held == 2, "{held} of 2 leases after {:?}", since.elapsed());
        rt::sleep(LOOK).await;
    }

    let (dies, lives) = by_member(workers, &deployment.runner(&operations[0]).await?)?;
    dies.kill().await?;
    let expires = format!(
        "select cast(lease_expires_at as char) from pc_work_items where work_id = '{}'",
        operations[0]
    );
    let rows = database.raw().await?.rows(&expires).await?;
    let expires = rows.first().context("no such operation")?.text(0)?;
    deployment.provider.answer();
    for operation in &operations {
        api.client.operation_is(operation, "succeeded", SOON).await?;
    }
    let outcomes = facts::outcomes(database, &operations[0]).await?;
    ensure!(outcomes == ["lease_expired_retry", "succeeded"], "{outcomes:?}");
    ensure!(facts::outcomes(database, &operations[1]).await? == ["succeeded"]);
    let early = format!(
        "select count(*) from pc_work_attempts
         where work_id = '{}' and attempt_no = 2 and started_at < '{expires}'",
        operations[0]
    );
    ensure!(
        facts::number(database, &early).await? == 0,
        "it was taken over before {expires}"
    );
    for scope in ["house", "garden"] {
        settled(database, &api.client, scope, 3).await?;
    }
    lives.stop().await?;
    api.stop().await
}
