//! Pods that are killed without warning: a Worker in the middle of a model call, and the Scheduler that leads.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use serde_json::json;

use crate::cluster::{Cluster, SOON};
use crate::node::{expect_restart, kill};
use crate::tenant::Tenant;

const SOURCES: u32 = 3;
const SCOPE: &str = "killed";

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "killed").await?;
    // Nothing comes by itself: the one run is the one that is flushed.
    tenant.apply(&json!({ "supervisor": { "memory": { "scheduleSeconds": 3600 } } }))?;
    tenant.ready().await?;
    tenant.explained(worker(&tenant).await)?;
    tenant.explained(leader(&tenant).await)?;
    tenant.leave()
}

async fn worker(tenant: &Tenant) -> anyhow::Result<()> {
    let client = tenant.client().await?;
    tenant.provider.hold();
    capture(&client, SCOPE, SOURCES).await?;
    let operation = flush(&client, SCOPE).await?;
    tenant.provider.in_flight(1, SOON).await?;
    let (pod, first) = running(tenant).await?;
    let killed = kill(tenant, &pod)?;
    println!("      killed: {killed}");
    // The second attempt begins only once the lease is over, with another member.
    let second = until("a second attempt begins", SOON, async || {
        let members = members(tenant, &operation).await?;
        Ok(members.get(1).cloned())
    })
    .await?;
    ensure!(second != first, "attempt 2 is where attempt 1 was");
    tenant.provider.answer();
    client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&tenant.database, &operation).await?;
    ensure!(outcomes == ["lease_expired_retry", "succeeded"], "{outcomes:?}");
    tenant.ready().await?;
    expect_restart(
        killed,
        tenant
            .restarts()
            .await?
            .get(&pod.name_any())
            .copied()
            .unwrap_or_default(),
    )?;
    facts::hold(&tenant.database).await
}

/// Members of an operation's attempts, in their order.
async fn members(tenant: &Tenant, operation: &str) -> anyhow::Result<Vec<String>> {
    let sql = format!("select owner_id from pc_work_attempts where work_id = '{operation}' order by attempt_no");
    let rows = tenant.database.raw().await?.rows(&sql).await?;
    rows.iter().map(|row| row.text(0)).collect()
}

/// The Worker that runs something, and the member that it is.
async fn running(tenant: &Tenant) -> anyhow::Result<(Pod, String)> {
    let owner = "select lease_owner from pc_work_items where status = 'running'";
    let rows = tenant.database.raw().await?.rows(owner).await?;
    let member = rows.first().context("nothing runs")?.text(0)?;
    for pod in tenant.pods("worker").await? {
        if tenant.counted(&pod, "powercontext_worker_inflight").await? > 0.0 {
            return Ok((pod, member));
        }
    }
    anyhow::bail!("no pod runs anything")
}

async fn leader(tenant: &Tenant) -> anyhow::Result<()> {
    let led = |status: &powercontext_crds::v1alpha1::Status| {
        let leader = status.leaders.first().cloned();
        leader.and_then(|leader| Some((leader.pod?, leader.fence)))
    };
    let status = tenant
        .until_status("somebody leads", |status| led(status).is_some())
        .await?;
    let (name, fence) = led(&status).context("somebody leads")?;
    let pod: Pod = tenant.api().get(&name).await?;
    kill(tenant, &pod)?;
    let status = tenant
        .until_status("somebody leads under a higher fence", |status| {
            led(status).is_some_and(|(_, now)| now > fence)
        })
        .await?;
    ensure!(led(&status).is_some(), "{:?}", status.leaders);
    tenant.ready().await
}
