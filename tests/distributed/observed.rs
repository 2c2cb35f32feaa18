//! What was observed of the first distributed deployment, row by row, MCP apart.

use std::time::Duration;

use anyhow::ensure;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush, settled};
use powercontext_tests::wait::until;

use crate::rig::{Deployment, SOON, metric};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_database_is_migrated_before_roles_start_and_no_role_migrates_it() -> anyhow::Result<()> {
    let deployment = Deployment::unmigrated().await?;
    deployment.drop_tables().await?;
    for role in ["api", "scheduler", "worker", "background"] {
        let mut server = deployment.role(role).spawn().await?;
        let status = server.ended(SOON).await?;
        ensure!(
            status.code() == Some(1),
            "{role} ended with {status}:\n{}",
            server.log()
        );
        ensure!(
            server.log().contains("server migrate"),
            "{role} says what to do:\n{}",
            server.log()
        );
    }
    let tables = "select count(*) from information_schema.tables where table_schema = database()";
    ensure!(
        facts::number(&deployment.database, tables).await? == 0,
        "a role made tables"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_each_role_become_healthy_and_the_members_match_the_topology() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let six = deployment.all().await?;
    let build = env!("CARGO_PKG_VERSION");
    for role in ["api", "scheduler", "worker"] {
        let series = format!("powercontext_runtime_members{{build=\"{build}\",role=\"{role}\"}}");
        until("the members are counted", SOON, async || {
            let members = metric(&six.apis[0], &series).await?;
            Ok((members == 2).then_some(()))
        })
        .await?;
    }
    let ready = six.apis[1].client.ready().await?;
    ensure!(ready.body["status"] == "ready", "{ready:?}");
    six.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_one_api_took_is_seen_and_ended_through_the_other() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let six = deployment.all().await?;
    capture(&six.apis[0].client, "house", 3).await?;
    let operation = flush(&six.apis[1].client, "house").await?;
    six.apis[0].client.operation_is(&operation, "succeeded", SOON).await?;
    settled(&deployment.database, &six.apis[1].client, "house", 3).await?;
    six.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_and_a_schedule_that_find_the_same_sources_make_one_item_and_one_result() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?.with("RUNTIME_MEMORY_SCHEDULE_SECONDS", "1");
    let six = deployment.all().await?;
    deployment.provider.hold();
    capture(&six.apis[0].client, "house", 3).await?;
    // Held by the model: whoever admitted it, everybody who asks meanwhile joins.
    deployment.provider.in_flight(1, SOON).await?;
    let first = flush(&six.apis[0].client, "house").await?;
    let second = flush(&six.apis[1].client, "house").await?;
    ensure!(first == second, "{first} and {second}");
    deployment.provider.answer();
    six.apis[0].client.operation_is(&first, "succeeded", SOON).await?;
    settled(&deployment.database, &six.apis[0].client, "house", 3).await?;
    ensure!(
        deployment.provider.asked() == 1,
        "asked {} times",
        deployment.provider.asked()
    );
    six.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_overlap_over_both_workers_and_one_lane_is_serial() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?.with("WORKER_CONCURRENCY", "1");
    let six = deployment.all().await?;
    let api = &six.apis[0].client;
    deployment.provider.hold();
    let mut operations = Vec::new();
    for scope in ["house", "garden"] {
        capture(api, scope, 3).await?;
        operations.push(flush(api, scope).await?);
    }
    deployment.provider.in_flight(2, SOON).await?;
    let runners = [
        deployment.runner(&operations[0]).await?,
        deployment.runner(&operations[1]).await?,
    ];
    ensure!(
        runners[0] != runners[1],
        "one worker with one slot runs both: {runners:?}"
    );
    // More of a lane that runs waits behind it, although nobody else would keep it.
    api.capture("house", "late", "user: I also prefer a red door.")
        .await?
        .expect(202)?;
    let behind = flush(api, "house").await?;
    ensure!(behind != operations[0], "it reads what came after the run began");
    deployment.provider.answer();
    for operation in operations.iter().chain([&behind]) {
        api.operation_is(operation, "succeeded", SOON).await?;
    }
    deployment.holds().await?;
    six.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_and_a_worker_serve_health_and_metrics_and_nothing_else() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    for role in ["scheduler", "worker", "background"] {
        let server = deployment.start(role).await?;
        for path in ["/health/live", "/health/ready", "/metrics"] {
            let status = server.client.get(path).await?.status;
            ensure!(status == 200, "{role} {path}: {status}");
        }
        for path in [
            "/",
            "/v1/capabilities",
            "/v1/operations",
            "/v1/memory/search",
            "/health",
            "/metrics/",
        ] {
            let status = server.client.get(path).await?.status;
            ensure!(status == 404, "{role} {path}: {status}");
        }
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_bears_no_token_is_refused_by_every_api_and_by_every_scrape() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let deployment = deployment
        .with("AUTH_ENABLED", "true")
        .with("AUTH_TOKEN", "token-of-the-test");
    for (role, paths) in [
        ("api", &["/v1/capabilities", "/v1/nothing", "/metrics"][..]),
        ("scheduler", &["/metrics"]),
        ("worker", &["/metrics"]),
    ] {
        let server = deployment.start(role).await?;
        for path in paths {
            let status = server.client.get(path).await?.status;
            ensure!(status == 401, "{role} {path}: {status}");
        }
        ensure!(
            server.client.get("/health/live").await?.status == 200,
            "{role} shows that it lives"
        );
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_apis_share_one_quota() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let deployment = deployment
        .with("RATE_LIMIT_ENABLED", "true")
        .with("RATE_LIMIT_REQUESTS", "120")
        .with("RATE_LIMIT_WINDOW_SECONDS", "3600");
    let apis = [deployment.start("api").await?, deployment.start("api").await?];
    for n in 0..120 {
        let status = apis[n % 2].client.get("/v1/capabilities").await?.status;
        ensure!(status == 200, "request {n}: {status}");
    }
    for api in &apis {
        let refused = api.client.get("/v1/capabilities").await?.expect(429)?;
        ensure!(refused.code() == "rate_limited", "{refused:?}");
    }
    for api in apis {
        api.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_alone_is_degraded_and_takes_what_it_is_given() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let api = deployment.start("api").await?;
    let ready = api.client.ready().await?.expect(200)?;
    ensure!(ready.body["status"] == "degraded", "{ready:?}");
    let capabilities = api.client.get("/v1/capabilities").await?.expect(200)?;
    ensure!(
        capabilities.body["memory_extraction"] == true,
        "workers extract: {capabilities:?}"
    );
    capture(&api.client, "house", 3).await?;
    let operation = flush(&api.client, "house").await?;
    let worker = deployment.start("worker").await?;
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    until("the worker is seen", Duration::from_secs(10), async || {
        let ready = api.client.ready().await?;
        Ok((ready.body["checks"]["runtime.worker"] == "ready").then_some(()))
    })
    .await?;
    worker.stop().await?;
    api.stop().await
}
