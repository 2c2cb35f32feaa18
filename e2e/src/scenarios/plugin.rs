//! What a person asks and does with `kubectl powercontext`: how it stands, what pods say, and operations through the API.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use powercontext_cluster_tests::plugin::Plugin;
use powercontext_tests::client::Client;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SOON};
use crate::tenant::Tenant;

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "plugin").await?;
    // Nothing comes by itself: operations are those that are flushed.
    tenant.apply(&json!({ "supervisor": { "memory": { "scheduleSeconds": 3600 } } }))?;
    tenant.ready().await?;
    let plugin = cluster.plugin(&tenant.namespace)?;
    tenant.explained(stands(&tenant, &plugin).await)?;
    tenant.explained(cancelled(&tenant, &plugin).await)?;
    tenant.explained(retried(&tenant, &plugin).await)?;
    tenant.explained(logs(&tenant, &plugin).await)?;
    facts::hold(&tenant.database).await?;
    tenant.leave()
}

/// The tree of a deployment at work, which is printed for whoever reads along.
async fn stands(tenant: &Tenant, plugin: &Plugin) -> anyhow::Result<()> {
    tenant
        .until_status("somebody leads", |status| {
            status.leaders.iter().any(|leader| leader.pod.is_some())
        })
        .await?;
    let tree = plugin.done(&["status"])?;
    for line in tree.lines() {
        println!("      plugin: {line}");
    }
    let leader = format!("global: {}-scheduler-", tenant.name);
    for part in [": ready", "✓ Ready", "migrated", &leader, "(fence "] {
        ensure!(tree.contains(part), "no {part}:\n{tree}");
    }
    for role in ["api", "scheduler", "worker"] {
        let line = format!("{role:<10}  2 of 2 ready  build ");
        ensure!(tree.contains(&line), "no {line}:\n{tree}");
    }
    Ok(())
}

/// An operation that a Worker runs: it is cancelled, and the Worker gives it up.
async fn cancelled(tenant: &Tenant, plugin: &Plugin) -> anyhow::Result<()> {
    let client = tenant.client().await?;
    tenant.provider.hold();
    capture(&client, "cancelled", 2).await?;
    let operation = flush(&client, "cancelled").await?;
    tenant.provider.in_flight(1, SOON).await?;
    let running = listed(plugin, "running")?;
    ensure!(ids(&running) == [operation.as_str()], "{running:?}");
    ensure!(running[0]["scope_id"] == "cancelled", "{running:?}");
    let said = plugin.done(&["operations", "cancel", &operation])?;
    ensure!(said.contains(&operation), "{said}");
    client.operation_is(&operation, "cancelled", SOON).await?;
    // The Worker has let go of the model that never answered.
    tenant.provider.in_flight(0, SOON).await?;
    tenant.provider.answer();
    let outcomes = facts::outcomes(&tenant.database, &operation).await?;
    ensure!(outcomes == ["cancelled"], "{outcomes:?}");
    ensure!(listed(plugin, "running")?.is_empty(), "something runs");
    ensure!(ids(&listed(plugin, "cancelled")?) == [operation.as_str()]);
    let again = plugin.run(&["operations", "cancel", &operation])?;
    ensure!(
        again.status == 1 && again.error.contains("it is cancelled"),
        "{again:#?}"
    );
    Ok(())
}

/// Two operations that failed for good: one is retried by its id, the other by the code that it failed with.
async fn retried(tenant: &Tenant, plugin: &Plugin) -> anyhow::Result<()> {
    let client = tenant.client().await?;
    tenant.provider.refuse(401, "who are you?")?;
    let mut operations = Vec::new();
    for scope in ["retried", "retried-too"] {
        capture(&client, scope, 2).await?;
        let operation = flush(&client, scope).await?;
        client.operation_is(&operation, "failed", SOON).await?;
        operations.push(operation);
    }
    let failed = listed(plugin, "failed")?;
    let newest_first: Vec<_> = operations.iter().rev().map(String::as_str).collect();
    ensure!(ids(&failed) == newest_first, "{failed:?}");
    let code = failed[0]["error"]["code"].as_str().context("a code")?;
    tenant.provider.answer();
    plugin.done(&["operations", "retry", &operations[0]])?;
    succeeded(tenant, &client, &operations[0]).await?;
    let left = listed(plugin, "failed")?;
    ensure!(ids(&left) == [operations[1].as_str()], "{left:?}");
    plugin.done(&["operations", "retry", "--error-code", code])?;
    succeeded(tenant, &client, &operations[1]).await?;
    ensure!(plugin.done(&["operations", "list", "--status", "failed"])? == "no operation\n");
    Ok(())
}

async fn succeeded(tenant: &Tenant, client: &Client, operation: &str) -> anyhow::Result<()> {
    client.operation_is(operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&tenant.database, operation).await?;
    ensure!(outcomes.len() == 2 && outcomes[1] == "succeeded", "{outcomes:?}");
    Ok(())
}

/// Every Worker says something, and each line says who.
async fn logs(tenant: &Tenant, plugin: &Plugin) -> anyhow::Result<()> {
    let pods = tenant.pods("worker").await?;
    let said = plugin.done(&["logs", "worker"])?;
    let last = plugin.done(&["logs", "worker", "--tail", "1"])?;
    for pod in &pods {
        let prefix = format!("[{}] ", pod.name_any());
        ensure!(said.contains(&prefix), "nothing of {prefix}:\n{said}");
        ensure!(last.matches(&prefix).count() == 1, "{prefix}:\n{last}");
    }
    ensure!(last.lines().count() == pods.len(), "{last}");
    Ok(())
}

/// The operations in this state as the plugin lists them.
fn listed(plugin: &Plugin, status: &str) -> anyhow::Result<Vec<Value>> {
    let page = plugin.json(&["operations", "list", "--status", status])?;
    Ok(page["items"].as_array().context("items")?.clone())
}

fn ids(operations: &[Value]) -> Vec<&str> {
    let ids = operations.iter().filter_map(|one| one["operation_id"].as_str());
    ids.collect()
}
