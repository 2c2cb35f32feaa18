//! What each role serves, who leads, and what a leader that dies, freezes or is replaced leaves behind.

use anyhow::ensure;
use powercontext_tests::facts;
use powercontext_tests::kit::capture;
use powercontext_tests::server::Setup;
use powercontext_tests::wait::until;

use crate::rig::{Deployment, GLOBAL, SOON, checks, leads, metric, refused};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_serves_what_it_may_and_together_they_extract_what_was_captured() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let api = deployment.start("api").await?;
    let body = checks(&api).await?;
    ensure!(body["status"] == "degraded", "{body}");
    ensure!(body["checks"]["runtime.scheduler"] == "unavailable", "{body}");
    ensure!(body["checks"]["runtime.worker"] == "unavailable", "{body}");
    // It holds no model, and says that the deployment extracts.
    let capabilities = api.client.get("/v1/capabilities").await?.expect(200)?;
    ensure!(capabilities.body["memory_extraction"] == true, "{capabilities:?}");
    capture(&api.client, "house", 3).await?;
    let flushed = api.client.flush("house", "respond-async").await?.expect(202)?;
    let operation = flushed.operation_id()?;

    let worker = deployment.start("worker").await?;
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    let scheduler = deployment.start("scheduler").await?;
    for server in [&worker, &scheduler] {
        for path in ["/health/live", "/health/ready", "/metrics"] {
            server.client.get(path).await?.expect(200)?;
        }
        for path in ["/", "/v1/capabilities", "/v1/operations", "/health"] {
            server.client.get(path).await?.expect(404)?;
        }
    }
    until("an API that misses nobody", SOON, async || {
        let body = checks(&api).await?;
        Ok((body["status"] == "ready").then_some(()))
    })
    .await?;
    leads(&scheduler, GLOBAL).await?;
    // Nobody asks for these: the schedule finds them.
    capture(&api.client, "garden", 3).await?;
    deployment.reads_by_itself(&api, "garden", 3).await?;
    for role in ["api", "scheduler", "worker"] {
        let series = format!("powercontext_runtime_role_members{{role=\"{role}\"}}");
        ensure!(metric(&api, &series).await? == 1, "{series}");
    }
    ensure!(metric(&worker, "powercontext_schema_revision").await? >= 6);
    ensure!(metric(&worker, "powercontext_worker_inflight").await? == 0);
    scheduler.stop().await?;
    worker.stop().await?;
    api.stop().await?;
    let members = facts::number(&deployment.database, "select count(*) from pc_runtime_members").await?;
    ensure!(members == 0, "{members} rows of members that ended in order");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_frozen_before_its_admission_commits_changes_no_row_once_it_wakes() -> anyhow::Result<()> {
    const SCOPES: [&str; 12] = [
        "attic", "barn", "cellar", "dock", "estate", "farm", "garden", "house", "inn", "jetty", "kiln", "loft",
    ];
    let deployment = Deployment::scheduled().await?;
    // Pages of less than there is, so that a scan is met in its middle.
    let deployment = deployment.with("COORDINATION_SCAN_PAGE_SIZE", "5");
    let api = deployment.start("api").await?;
    for scope in SCOPES {
        capture(&api.client, scope, 3).await?;
    }
    let armed = deployment.database.beside("armed");
    std::fs::write(&armed, "")?;
    let point = format!("admit.before_commit=hold@{}", armed.display());
    let frozen = deployment.role("scheduler").stopping_at(&point).start().await?;
    let fence = leads(&frozen, GLOBAL).await?;
    frozen.reached("admit.before_commit").await?;
    frozen.freeze()?;

    let successor = deployment.start("scheduler").await?;
    ensure!(leads(&successor, GLOBAL).await? > fence);
    let admitted = "select count(*) from pc_work_items where kind = 'powercontext.memory.source-window'";
    until("the successor admits", SOON, async || {
        Ok((facts::number(&deployment.database, admitted).await? == 12).then_some(()))
    })
    .await?;

    std::fs::remove_file(&armed)?;
    frozen.thaw()?;
    frozen.logged("this process leads no more", SOON).await?;
    ensure!(metric(&frozen, GLOBAL).await? == 0);
    ensure!(
        facts::number(&deployment.database, admitted).await? == 12,
        "it admitted nothing"
    );
    let requested = "select max(requested_generation) from pc_artifact_processing_intents where binding_name = 'memory-source-window'";
    ensure!(facts::number(&deployment.database, requested).await? == 1);
    // One scan, begun by one and ended by the other: nothing is left out and nothing comes twice.
    let worker = deployment.start("worker").await?;
    // The rules are looked at once nobody changes a row.
    let live = "select count(*) from pc_work_items where status <> 'succeeded'";
    until("everything is read", SOON, async || {
        Ok((facts::number(&deployment.database, live).await? == 0).then_some(()))
    })
    .await?;
    for scope in SCOPES {
        deployment.reads_by_itself(&api, scope, 3).await?;
    }
    ensure!(
        deployment.provider.asked() == 12,
        "the model was asked {} times",
        deployment.provider.asked()
    );
    // It lives on as a standby.
    ensure!(checks(&frozen).await?["status"] == "ready");
    for server in [worker, successor, frozen, api] {
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_ends_the_leader_and_refuses_a_scheduler_of_the_old_one() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let api = deployment.start("api").await?;
    let old = deployment.start("scheduler").await?;
    leads(&old, GLOBAL).await?;
    deployment
        .command(&["server", "switch-mode", "--to", "dedicated"])
        .await?;
    // The one that still runs has lost its term and takes no other.
    old.logged("another mode of supervision is stored", SOON).await?;
    ensure!(metric(&old, GLOBAL).await? == 0);
    ensure!(checks(&old).await?["checks"]["scheduler.discovery"] == "misconfigured");
    let log = refused(&deployment.role("scheduler")).await?;
    ensure!(log.contains("the stored mode of supervision is dedicated"), "{log}");

    let mode = "RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE";
    let new = deployment.role("scheduler").with(mode, "dedicated").start().await?;
    let memory = "powercontext_supervisor_fence{lease=\"artifact:memory\"}";
    leads(&new, memory).await?;
    let worker = deployment.start("worker").await?;
    capture(&api.client, "house", 3).await?;
    deployment.reads_by_itself(&api, "house", 3).await?;

    deployment.command(&["server", "switch-mode", "--to", "global"]).await?;
    leads(&old, GLOBAL).await?;
    for server in [worker, new, old, api] {
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_before_a_port_is_bound_with_every_reason() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let single = Setup::new(&deployment.database, &deployment.provider);
    let node = single.start().await?;
    // As if the node were of another build.
    let mut raw = deployment.database.raw().await?;
    raw.execute("update pc_runtime_members set contract_digest = 'another'")
        .await?;
    let strict = deployment
        .role("background")
        .with("COORDINATION_ALLOW_SEEKDB_SERVER", "false")
        .with("RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE", "dedicated");
    let log = refused(&strict).await?;
    for reason in [
        "the server says it is seekdb",
        "a single node",
        "the stored mode of supervision is global",
        "its bindings or families differ",
    ] {
        ensure!(log.contains(reason), "{reason:?} is not in\n{log}");
    }
    node.stop().await?;

    let worker = deployment.start("worker").await?;
    let log = refused(&single).await?;
    ensure!(log.contains("members of a distributed deployment live"), "{log}");
    // Another budget is no other contract: it starts, says so, and leaves the work to the others.
    let odd = deployment
        .role("worker")
        .with("RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS", "5");
    let odd = odd.spawn().await?;
    odd.logged("this process is misconfigured", SOON).await?;
    until("a worker that does not fit", SOON, async || {
        let answer = odd.client.ready().await?;
        let is_odd = answer.body["checks"]["runtime.membership"] == "misconfigured";
        Ok((answer.status == 503 && is_odd).then_some(()))
    })
    .await?;
    ensure!(checks(&worker).await?["status"] == "ready", "the others do not care");
    odd.stop().await?;
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_no_role_can_have_are_refused_all_at_once_by_each() -> anyhow::Result<()> {
    let deployment = Deployment::unmigrated().await?;
    let file = deployment.database.beside("powercontext.db");
    let deployment = deployment
        .with("DATABASE_URL", &file.display().to_string())
        .with("EXTERNAL_SKILLS", "/home/u/skills")
        .with("COORDINATION_MEMBER_HEARTBEAT_SECONDS", "2")
        .with("COORDINATION_SCHEDULER_RENEW_SECONDS", "2")
        .with("RUNTIME_SKILL_SCHEDULE_SECONDS", "60");
    for role in ["api", "scheduler", "worker", "background", "all"] {
        let log = refused(&deployment.role(role)).await?;
        for setting in [
            "DATABASE_URL",
            "EXTERNAL_SKILLS",
            "COORDINATION_MEMBER_HEARTBEAT_SECONDS",
            "COORDINATION_SCHEDULER_RENEW_SECONDS",
            "RUNTIME_SKILL_SCHEDULE_SECONDS",
        ] {
            ensure!(log.contains(setting), "{role}: {setting} is not in\n{log}");
        }
        ensure!(role != "all" || log.contains("DEPLOYMENT_ROLE"), "{log}");
    }
    ensure!(!file.exists(), "a refused process made its file");
    Ok(())
}
