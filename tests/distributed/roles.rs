//! A distributed deployment as processes: what each role serves, who leads, and what a leader that dies, freezes or is replaced
//! leaves behind. OceanBase only: a file belongs to one process.

use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, settled};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{END_WITHIN, Server, Setup};
use powercontext_tests::wait::until;

/// Longer than the term of a leader, a look of its standby and a slow machine.
const TAKEN_OVER: Duration = Duration::from_secs(30);
const GLOBAL: &str = "powercontext_supervisor_fence{lease=\"global\"}";

/// A migrated database, a model, and how the roles on them are started.
struct Deployment {
    database: Database,
    provider: Provider,
    setup: Setup,
}

impl Deployment {
    async fn new() -> anyhow::Result<Self> {
        let database = Database::oceanbase().await?;
        let provider = Provider::start().await?;
        let setup = Setup::new(&database, &provider);
        let migrated = setup.run(&["server", "migrate"]).await?;
        ensure!(migrated.status.success(), "{migrated:?}");
        let setup = setup
            .with("DEPLOYMENT_MODE", "distributed")
            .with("COORDINATION_ALLOW_SEEKDB_SERVER", "true")
            .with("COORDINATION_SCHEDULER_LEASE_SECONDS", "3")
            .with("COORDINATION_SCHEDULER_RENEW_SECONDS", "1")
            .with("RUNTIME_MEMORY_SCHEDULE_SECONDS", "1");
        Ok(Self {
            database,
            provider,
            setup,
        })
    }

    fn role(&self, role: &str) -> Setup {
        self.setup.clone().with("DEPLOYMENT_ROLE", role)
    }

    async fn start(&self, role: &str) -> anyhow::Result<Server> {
        self.role(role).start().await
    }

    /// Starts a role that is refused, and answers what it said.
    async fn refused(&self, setup: &Setup) -> anyhow::Result<String> {
        let mut server = setup.spawn().await?;
        let status = server.ended(END_WITHIN).await?;
        ensure!(status.code() == Some(2), "{status}:\n{}", server.log());
        Ok(server.log())
    }
}

async fn metric(client: &Client, series: &str) -> anyhow::Result<i64> {
    let text = client.get("/metrics").await?.expect(200)?.text;
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    let value = line.with_context(|| format!("no {series} in:\n{text}"))?;
    Ok(value.trim().parse()?)
}

/// Waits until this process leads, and answers its fence.
async fn leads(server: &Server) -> anyhow::Result<i64> {
    until("a leader", TAKEN_OVER, async || {
        let fence = metric(&server.client, GLOBAL).await?;
        Ok((fence > 0).then_some(fence))
    })
    .await
}

async fn checks(client: &Client) -> anyhow::Result<serde_json::Value> {
    Ok(client.ready().await?.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_serves_what_it_may_and_together_they_extract_what_was_captured() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let api = deployment.start("api").await?;
    let body = checks(&api.client).await?;
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
        let body = checks(&api.client).await?;
        Ok((body["status"] == "ready").then_some(()))
    })
    .await?;
    leads(&scheduler).await?;
    // Nobody asks for these: the schedule finds them.
    capture(&api.client, "garden", 3).await?;
    until("the garden is read", SOON, async || {
        let (cursor, head) = facts::cursor_and_head(&deployment.database, "garden").await?;
        Ok((cursor == head && head == 3).then_some(()))
    })
    .await?;
    settled(&deployment.database, &api.client, "garden", 3).await?;
    for role in ["api", "scheduler", "worker"] {
        let series = format!("powercontext_runtime_role_members{{role=\"{role}\"}}");
        ensure!(metric(&api.client, &series).await? == 1, "{series}");
    }
    ensure!(metric(&worker.client, "powercontext_schema_revision").await? >= 6);
    ensure!(metric(&worker.client, "powercontext_worker_inflight").await? == 0);
    scheduler.stop().await?;
    worker.stop().await?;
    api.stop().await?;
    let members = facts::number(&deployment.database, "select count(*) from pc_runtime_members").await?;
    ensure!(members == 0, "{members} rows of members that ended in order");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_with_a_higher_fence_and_one_that_ends_at_once() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let first = deployment.start("scheduler").await?;
    let fence = leads(&first).await?;
    let second = deployment.start("scheduler").await?;
    ensure!(metric(&second.client, GLOBAL).await? == 0, "a standby");
    ensure!(checks(&second.client).await?["status"] == "ready", "a standby is ready");
    first.kill().await?;
    let higher = leads(&second).await?;
    ensure!(higher > fence, "{higher} after {fence}");
    // SIGTERM gives the lease back: a successor need not wait for its end.
    let third = deployment.role("scheduler");
    let third = third
        .with("COORDINATION_SCHEDULER_LEASE_SECONDS", "600")
        .start()
        .await?;
    second.stop().await?;
    ensure!(leads(&third).await? > higher);
    third.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_frozen_before_its_admission_commits_changes_no_row_once_it_wakes() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let armed = deployment.database.beside("armed");
    std::fs::write(&armed, "")?;
    let point = format!("admit.before_commit=hold@{}", armed.display());
    let api = deployment.start("api").await?;
    let frozen = deployment.role("scheduler").stopping_at(&point).start().await?;
    let fence = leads(&frozen).await?;
    capture(&api.client, "house", 3).await?;
    frozen.reached("admit.before_commit").await?;
    frozen.freeze()?;

    let successor = deployment.start("scheduler").await?;
    ensure!(leads(&successor).await? > fence);
    let admitted = "select count(*) from pc_work_items where scope_id = 'house'";
    until("the successor admits", TAKEN_OVER, async || {
        Ok((facts::number(&deployment.database, admitted).await? == 1).then_some(()))
    })
    .await?;

    std::fs::remove_file(&armed)?;
    frozen.thaw()?;
    frozen.logged("this process leads no more", TAKEN_OVER).await?;
    ensure!(metric(&frozen.client, GLOBAL).await? == 0);
    ensure!(
        facts::number(&deployment.database, admitted).await? == 1,
        "it admitted nothing"
    );
    let requested = "select max(requested_generation) from pc_artifact_processing_intents";
    ensure!(facts::number(&deployment.database, requested).await? == 1);
    // One scan, begun by one and ended by the other.
    let worker = deployment.start("worker").await?;
    settled_by_itself(&deployment, &api, "house").await?;
    ensure!(
        deployment.provider.asked() == 1,
        "the model was asked {} times",
        deployment.provider.asked()
    );
    // It lives on as a standby.
    ensure!(checks(&frozen.client).await?["status"] == "ready");
    for server in [worker, successor, frozen, api] {
        server.stop().await?;
    }
    Ok(())
}

async fn settled_by_itself(deployment: &Deployment, api: &Server, scope: &str) -> anyhow::Result<()> {
    until("everything is read", SOON, async || {
        let (cursor, head) = facts::cursor_and_head(&deployment.database, scope).await?;
        Ok((cursor == head && head == 3).then_some(()))
    })
    .await?;
    settled(&deployment.database, &api.client, scope, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_ends_the_leader_and_refuses_a_scheduler_of_the_old_one() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let api = deployment.start("api").await?;
    let old = deployment.start("scheduler").await?;
    leads(&old).await?;
    let switched = deployment
        .setup
        .run(&["server", "switch-mode", "--to", "dedicated"])
        .await?;
    ensure!(switched.status.success(), "{switched:?}");
    // The one that still runs has lost its term and takes no other.
    old.logged("another mode of supervision is stored", TAKEN_OVER).await?;
    ensure!(metric(&old.client, GLOBAL).await? == 0);
    ensure!(checks(&old.client).await?["checks"]["scheduler.discovery"] == "misconfigured");
    let log = deployment.refused(&deployment.role("scheduler")).await?;
    ensure!(log.contains("the stored mode of supervision is dedicated"), "{log}");

    let mode = "RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE";
    let new = deployment.role("scheduler").with(mode, "dedicated").start().await?;
    let memory = "powercontext_supervisor_fence{lease=\"artifact:memory\"}";
    until("a leader of the family", TAKEN_OVER, async || {
        Ok((metric(&new.client, memory).await? > 0).then_some(()))
    })
    .await?;
    let worker = deployment.start("worker").await?;
    capture(&api.client, "house", 3).await?;
    settled_by_itself(&deployment, &api, "house").await?;

    let switched = deployment
        .setup
        .run(&["server", "switch-mode", "--to", "global"])
        .await?;
    ensure!(switched.status.success(), "{switched:?}");
    leads(&old).await?;
    for server in [worker, new, old, api] {
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_before_a_port_is_bound_with_every_reason() -> anyhow::Result<()> {
    let deployment = Deployment::new().await?;
    let single = Setup::new(&deployment.database, &deployment.provider);
    let node = single.start().await?;
    let strict = deployment
        .role("worker")
        .with("COORDINATION_ALLOW_SEEKDB_SERVER", "false");
    let log = deployment.refused(&strict).await?;
    ensure!(log.contains("the server says it is seekdb"), "{log}");
    ensure!(log.contains("a single node"), "{log}");
    ensure!(!log.contains("listening"), "{log}");
    node.stop().await?;

    let worker = deployment.start("worker").await?;
    let log = deployment.refused(&single).await?;
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
    ensure!(
        checks(&worker.client).await?["status"] == "ready",
        "the others do not care"
    );
    odd.stop().await?;
    worker.stop().await
}
