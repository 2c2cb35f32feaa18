//! The one-version window: this build beside the next release, which knows one schema step and one payload version more.

use anyhow::ensure;
use powercontext_core::limits::PAYLOAD_VERSION_MAX;
use powercontext_tests::client::Client;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush, settled};
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON};

/// Sources of each scope here.
const SOURCES: u32 = 2;

/// Processes of a role in the next release that write payloads of this version.
fn next(deployment: &Deployment, role: &str, emits: u32) -> Setup {
    let setup = deployment.role(role).of_next_release();
    setup.with("COORDINATION_EMIT_PAYLOAD_VERSION", &emits.to_string())
}

/// Adds the next release's step to the schema.
async fn migrate_to_next(deployment: &Deployment) -> anyhow::Result<()> {
    let migrated = next(deployment, "api", 1).run(&["server", "migrate"]).await?;
    ensure!(migrated.status.success(), "{migrated:?}");
    Ok(())
}

async fn queued(client: &Client, scope: &str) -> anyhow::Result<String> {
    capture(client, scope, SOURCES).await?;
    flush(client, scope).await
}

async fn check_is(client: &Client, check: &str, wanted: &str) -> anyhow::Result<()> {
    until(&format!("{check} is {wanted}"), SOON, async || {
        let ready = client.ready().await?;
        Ok((ready.body["checks"][check] == wanted).then_some(()))
    })
    .await
}

/// Each operation has succeeded, and its scope holds one revision of all its sources.
async fn all_succeed(deployment: &Deployment, api: &Client, operations: &[(String, String)]) -> anyhow::Result<()> {
    for (_, operation) in operations {
        api.operation_is(operation, "succeeded", SOON).await?;
    }
    // Nothing moves any more: the rules are read row by row.
    for (scope, _) in operations {
        settled(&deployment.database, api, scope, SOURCES.into()).await?;
    }
    deployment.holds().await
}

/// Items of a payload version that have not ended.
async fn open(deployment: &Deployment, version: u32) -> anyhow::Result<i64> {
    let sql = format!(
        "select count(*) from pc_work_items where payload_version = {version} and status not in ('succeeded', 'failed', 'cancelled')"
    );
    facts::number(&deployment.database, &sql).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_worker_leaves_newer_items_alone_and_says_so_while_other_lanes_flow() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    migrate_to_next(&deployment).await?;
    let old = deployment.start("worker").await?;
    let (now, then) = (
        deployment.start("api").await?,
        next(&deployment, "api", 2).start().await?,
    );
    let newer = queued(&then.client, "newer").await?;
    check_is(&old.client, "worker.handlers", "misconfigured").await?;
    let older = queued(&now.client, "older").await?;
    now.client.operation_is(&older, "succeeded", SOON).await?;
    let left = now.client.operation(&newer).await?;
    ensure!(left["status"] == "queued", "{left}");
    let attempts = facts::outcomes(&deployment.database, &newer).await?;
    ensure!(attempts.is_empty(), "{attempts:?}");
    // What can read it ends it, and what is written in the older version as well.
    let able = next(&deployment, "worker", 1).start().await?;
    now.client.operation_is(&newer, "succeeded", SOON).await?;
    check_is(&old.client, "worker.handlers", "ready").await?;
    old.stop().await?;
    let last = queued(&now.client, "last").await?;
    let ended = [("newer", newer), ("older", older), ("last", last)];
    let ended = ended.map(|(scope, operation)| (scope.to_owned(), operation));
    all_succeed(&deployment, &now.client, &ended).await?;
    for server in [able, now, then] {
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_processes_start_again_on_the_next_schema() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let api = deployment.start("api").await?;
    let roles = ["worker", "scheduler", "api"];
    let mut before = Vec::new();
    for role in roles {
        before.push(deployment.start(role).await?);
    }
    deployment.provider.hold();
    let first = queued(&api.client, "first").await?;
    deployment.provider.in_flight(1, SOON).await?;
    migrate_to_next(&deployment).await?;
    let tables = "select count(*) from information_schema.tables
                  where table_schema = database() and table_name = 'pc_work_origins'";
    ensure!(
        facts::number(&deployment.database, tables).await? == 1,
        "the step was taken"
    );
    for server in before {
        server.kill().await?;
    }
    deployment.provider.answer();
    let mut after = Vec::new();
    for role in roles {
        after.push(deployment.start(role).await?);
    }
    let second = queued(&api.client, "second").await?;
    let ended = [("first".to_owned(), first), ("second".to_owned(), second)];
    all_succeed(&deployment, &api.client, &ended).await?;
    // Its own migrator has nothing to do there, and says so.
    let again = deployment.role("api").run(&["server", "migrate"]).await?;
    ensure!(again.status.success(), "{again:?}");
    for server in after {
        server.stop().await?;
    }
    api.stop().await
}

/// Gives work to an API, and remembers its scopes and operations.
async fn give(given: &mut Vec<(String, String)>, api: &Server, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        let scope = format!("scope {}", given.len());
        let operation = queued(&api.client, &scope).await?;
        given.push((scope, operation));
    }
    Ok(())
}

/// One process after the other, the new one first.
async fn replace(was: Server, by: &Setup) -> anyhow::Result<Server> {
    let server = by.start().await?;
    was.stop().await?;
    Ok(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roll_out_that_is_rolled_back_halfway_loses_nothing() -> anyhow::Result<()> {
    ensure!(PAYLOAD_VERSION_MAX == 1, "this is the older of the two builds");
    let deployment = Deployment::new().await?;
    let mut given = Vec::new();
    let (old, new) = (|role| deployment.role(role), |role| next(&deployment, role, 2));
    let mut worker = old("worker").start().await?;
    let mut scheduler = old("scheduler").start().await?;
    let mut api = old("api").start().await?;
    give(&mut given, &api, 4).await?;
    // Forward: schema, Workers, Schedulers, APIs.
    migrate_to_next(&deployment).await?;
    worker = replace(worker, &new("worker")).await?;
    give(&mut given, &api, 4).await?;
    scheduler = replace(scheduler, &new("scheduler")).await?;
    api = replace(api, &new("api")).await?;
    deployment.provider.hold();
    give(&mut given, &api, 8).await?;
    ensure!(open(&deployment, 2).await? == 8, "the new API writes the new version");
    // Back in reverse; Workers last, and only when no item of the newer version is open.
    api = replace(api, &old("api")).await?;
    scheduler = replace(scheduler, &old("scheduler")).await?;
    give(&mut given, &api, 4).await?;
    deployment.provider.answer();
    until("no newer item is open", SOON, async || {
        Ok((open(&deployment, 2).await? == 0).then_some(()))
    })
    .await?;
    worker = replace(worker, &old("worker")).await?;
    give(&mut given, &api, 4).await?;
    all_succeed(&deployment, &api.client, &given).await?;
    // And forward again.
    worker = replace(worker, &new("worker")).await?;
    scheduler = replace(scheduler, &new("scheduler")).await?;
    api = replace(api, &new("api")).await?;
    give(&mut given, &api, 4).await?;
    all_succeed(&deployment, &api.client, &given).await?;
    rest_is_quiet(&deployment).await?;
    for server in [api, scheduler, worker] {
        server.stop().await?;
    }
    Ok(())
}

/// Every attempt of every item ended well: a planned change costs nobody an attempt.
async fn rest_is_quiet(deployment: &Deployment) -> anyhow::Result<()> {
    let sql = "select count(*) from pc_work_attempts where outcome not in ('succeeded', 'released')";
    ensure!(
        facts::number(&deployment.database, sql).await? == 0,
        "an attempt ended badly"
    );
    Ok(())
}
