//! What a deployment says of itself: readiness, log events and metrics.

use anyhow::{Context, ensure};
use powercontext::dev::model::Fail;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use powercontext_tests::server::Server;
use powercontext_tests::stuck::StuckExits;
use powercontext_tests::wait::until;
use serde_json::Value;

use crate::rig::{Deployment, GLOBAL, SOON, checks, leads, metric};

/// The events of this name in a log of JSON lines.
fn events(log: &str, name: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_child_does_not_end_is_degraded_and_goes_on_with_its_other_slots() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let exits = StuckExits::new(&deployment.database)?;
    let api = deployment.start("api").await?;
    let worker = exits.under(deployment.role("worker")).start().await?;
    // The spare that the next run takes.
    let spares = until("a spare waits", SOON, async || {
        let children = exits.children(&worker)?;
        Ok((!children.is_empty()).then_some(children))
    })
    .await?;
    deployment.provider.hold();
    capture(&api.client, "house", 1).await?;
    let stuck = flush(&api.client, "house").await?;
    deployment.provider.in_flight(1, SOON).await?;
    exits.hold(&spares).await?;
    api.client.act(&stuck, "cancel").await?.expect(200)?;
    until("the Worker gives its child up", SOON, async || {
        let body = checks(&worker).await?;
        Ok((body["checks"]["worker.handlers"] == "unavailable").then_some(()))
    })
    .await?;
    let ready = worker.client.ready().await?.expect(200)?;
    ensure!(ready.body["status"] == "degraded", "{ready:?}");
    ensure!(
        metric(&worker, "powercontext_worker_inflight").await? == 1,
        "its slot is taken"
    );
    // Nobody renews its lease, and the cancel ends it.
    api.client.operation_is(&stuck, "cancelled", SOON).await?;

    deployment.provider.answer();
    capture(&api.client, "garden", 1).await?;
    let other = flush(&api.client, "garden").await?;
    api.client.operation_is(&other, "succeeded", SOON).await?;
    exits.let_go()?;
    until("the slot is free", SOON, async || {
        let runs = metric(&worker, "powercontext_worker_inflight").await?;
        Ok((runs == 0 && checks(&worker).await?["status"] == "ready").then_some(()))
    })
    .await?;
    ensure!(facts::revisions(&deployment.database, "house").await? == 0, "it wrote");
    deployment.holds().await?;
    worker.stop().await?;
    api.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_says_once_how_it_is_configured_and_each_failure_is_told_once_without_its_scope()
-> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let deployment = deployment
        .with("LOGGING_FORMAT", "json")
        .with("WORKER_MAX_ATTEMPTS", "2")
        .with("RUNTIME_MEMORY_MAX_WORKERS", "3")
        .with("RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS", "7");
    let (api, worker) = (deployment.start("api").await?, deployment.start("worker").await?);
    deployment.provider.fail(Fail::Malformed).await?;
    capture(&api.client, "house-of-secrets", 1).await?;
    let explicit = flush(&api.client, "house-of-secrets").await?;
    api.client.operation_is(&explicit, "failed", SOON).await?;
    let failed = events(&worker.log(), "artifact_processing.failed");
    ensure!(failed.len() == 2, "two failures: {failed:?}");
    for (n, event) in (1..).zip(&failed) {
        for (field, wanted) in [
            ("binding", "memory-source-window"),
            ("family", "memory"),
            ("work_id", explicit.as_str()),
            ("trigger", "explicit"),
            ("stage", "run"),
            ("code", "invalid_output"),
            ("error_type", "provider"),
        ] {
            ensure!(event[field] == wanted, "{field}: {event}");
        }
        ensure!(event["generation"] == 1 && event["failures"] == n, "{event}");
        let fence = format!("{n}");
        ensure!(event["fence"] == fence.as_str(), "{event}");
        ensure!(event["delay_ms"].is_u64(), "{event}");
        let member = event["member"].as_str().context("no member")?;
        ensure!(worker.log().contains(&format!("\"member\":\"{member}\"")), "{event}");
    }

    // What nobody asked for says that, too.
    let scheduler = deployment.start("scheduler").await?;
    capture(&api.client, "garden-of-secrets", 1).await?;
    let failed = until("an automatic run fails for good", SOON, async || {
        let failed = events(&worker.log(), "artifact_processing.failed");
        Ok((failed.len() == 4).then_some(failed))
    })
    .await?;
    for event in &failed[2..] {
        ensure!(event["trigger"] == "automatic", "{event}");
    }

    for (role, server) in [("api", api), ("scheduler", scheduler), ("worker", worker)] {
        let log = server.stop_and_log().await?;
        let configured = events(&log, "artifact_processing.configured");
        let [event] = &configured[..] else {
            anyhow::bail!("{role}: {configured:?}");
        };
        for (field, wanted) in [
            ("mode", "distributed"),
            ("supervision", "global"),
            ("role", role),
            ("bindings", "memory-source-window, maintenance"),
            ("families", "memory, maintenance"),
            ("budgets", "3, 1"),
            ("timeouts", "7000 ms, 180000 ms"),
            ("aliases", ""),
        ] {
            ensure!(event[field] == wanted, "{role}, {field}: {event}");
        }
        ensure!(
            event["schedules"].is_string() && event["seconds"] == 3,
            "{role}: {event}"
        );
        ensure!(!log.contains("of-secrets"), "{role} names a scope:\n{log}");
    }
    Ok(())
}

/// Waits until a process sees so many live items in the first version of payloads.
async fn depth_is(server: &Server, items: i64) -> anyhow::Result<()> {
    // Maintenance comes and goes.
    until(&format!("{items} live items"), SOON, async || {
        let depth = metric(server, "powercontext_work_payload_version_depth{version=\"1\"}").await?;
        ensure!(depth == items, "there are {depth}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_runs_fences_the_schema_and_payload_versions_are_metrics_of_what_is_there() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let deployment = deployment.with("DEPLOYMENT_BEHAVIOR_REVISION", "roll-out-7");
    let six = deployment.all().await?;
    deployment.provider.hold();
    for scope in ["house", "garden"] {
        capture(&six.apis[0].client, scope, 1).await?;
    }
    deployment.provider.in_flight(2, SOON).await?;
    for role in ["api", "scheduler", "worker"] {
        let series = format!("powercontext_runtime_members{{build=\"roll-out-7\",role=\"{role}\"}}");
        ensure!(metric(&six.schedulers[0], &series).await? == 2, "{series}");
    }
    let mut runs = 0;
    for worker in &six.workers {
        runs += metric(worker, "powercontext_worker_inflight").await?;
    }
    ensure!(runs == 2, "{runs} runs");
    let (_, fence) = deployment.led_above(0).await?;
    let mut fences = Vec::new();
    for scheduler in &six.schedulers {
        fences.push(metric(scheduler, GLOBAL).await?);
    }
    fences.sort_unstable();
    ensure!(fences == [0, fence], "{fences:?} of {fence}");
    let newest = "select max(revision) from pc_schema_revisions where completed_at is not null";
    let newest = facts::number(&deployment.database, newest).await?;
    for server in [&six.apis[0], &six.schedulers[0], &six.workers[0]] {
        ensure!(metric(server, "powercontext_schema_revision").await? == newest);
        depth_is(server, 2).await?;
    }
    deployment.provider.answer();
    depth_is(&six.apis[1], 0).await?;
    six.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_look_for_scopes_degrades_itself_and_says_so() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?.with("LOGGING_FORMAT", "json");
    let (api, scheduler) = (deployment.start("api").await?, deployment.start("scheduler").await?);
    leads(&scheduler, GLOBAL).await?;
    let mut raw = deployment.database.raw().await?;
    let rename = |from: &str, to: &str| {
        format!("alter table pc_artifact_processing_{from} rename to pc_artifact_processing_{to}")
    };
    raw.execute(&rename("binding_states", "away")).await?;
    capture(&api.client, "house", 1).await?;
    let degraded = until("the leader is degraded", SOON, async || {
        let body = checks(&scheduler).await?;
        let check = &body["checks"]["artifact_processing_supervisor.memory"];
        Ok((check == "unavailable" && body["status"] == "degraded").then_some(()))
    })
    .await;
    // Whatever was found: the schema is used again.
    raw.execute(&rename("away", "binding_states")).await?;
    degraded?;
    until("the leader is ready again", SOON, async || {
        Ok((checks(&scheduler).await?["status"] == "ready").then_some(()))
    })
    .await?;
    let failed = events(&scheduler.stop_and_log().await?, "artifact_processing.failed");
    let of_memory: Vec<_> = failed.iter().filter(|event| event["family"] == "memory").collect();
    let first = of_memory.first().context("no failure was told")?;
    ensure!(
        first["stage"] == "discovery" && first["failures"] == 1 && first["binding"] == "memory-source-window",
        "{first}"
    );
    ensure!(
        first["code"].is_string() && first["delay_ms"].as_u64() > Some(0),
        "{first}"
    );
    for (n, event) in (1..).zip(&of_memory) {
        ensure!(
            event["failures"] == n,
            "a failure was told twice or not at all: {event}"
        );
    }
    api.stop().await
}
