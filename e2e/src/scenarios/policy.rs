//! With a NetworkPolicy for each role everything works; closed ways are closed where the cluster looks at policies at all.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::ListParams;
use powercontext::rt;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::kit::capture;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, SOON, SYSTEM};
use crate::node::reaches;
use crate::tenant::Tenant;

/// A connection that is not there by then is refused.
const REACHED_WITHIN: Duration = Duration::from_secs(3);
/// A cluster that enforces policies does so by then.
const ENFORCED_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "policy").await?;
    tenant.apply(&json!({ "networkPolicy": { "enabled": true } }))?;
    tenant.ready().await?;
    let client = tenant.client().await?;
    capture(&client, "policed", 3).await?;
    tenant.flush_all(&client, "policed").await?;
    rules_are_those_of_the_table(&tenant).await?;
    if is_enforced(&tenant).await? {
        tenant.explained(closed_ways_are_closed(&tenant).await)?;
        println!("      policy: this cluster enforces NetworkPolicy; closed ways were tried and are closed");
    } else {
        println!(
            "      policy: this cluster does not enforce NetworkPolicy; the rules were compared with the table of ports"
        );
    }
    tenant.leave()
}

/// What each role lets in: its one port, from everybody to the API, from the operator alone to the others.
async fn rules_are_those_of_the_table(tenant: &Tenant) -> anyhow::Result<()> {
    let port = json!([{ "port": 8000, "protocol": "TCP" }]);
    let operator = json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": SYSTEM } } }]);
    for (role, from) in [
        ("api", Value::Null),
        ("scheduler", operator.clone()),
        ("worker", operator),
    ] {
        let policy: NetworkPolicy = tenant.api().get(&format!("{}-{role}", tenant.name)).await?;
        let spec = serde_json::to_value(policy.spec.context("a policy has a spec")?)?;
        let rules = spec["ingress"].as_array().context("rules")?;
        ensure!(rules.len() == 1, "{role}: {spec}");
        ensure!(rules[0]["ports"] == port, "{role}: {spec}");
        ensure!(
            rules[0].get("from").cloned().unwrap_or_default() == from,
            "{role}: {spec}"
        );
    }
    Ok(())
}

/// Whether the cluster refuses what a policy refuses: probed with pods that nobody may reach.
async fn is_enforced(tenant: &Tenant) -> anyhow::Result<bool> {
    let (from, to) = (pod(tenant, "worker").await?, pod(tenant, "api").await?);
    let closed = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "probe" }, "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } });
    // Policies add up: the API's own has to be away for the moment, and its operator brings it back.
    tenant.patch(&json!({ "networkPolicy": { "enabled": false } }))?;
    tenant.ready().await?;
    tenant.feed(&closed)?;
    let give_up = rt::now() + ENFORCED_WITHIN;
    let mut is_enforced = false;
    while !is_enforced && rt::now() < give_up {
        is_enforced = !is_reached(&from, &to).await?;
    }
    tenant.kubectl().run(&["delete", "networkpolicy", "probe"])?;
    tenant.patch(&json!({ "networkPolicy": { "enabled": true } }))?;
    tenant.ready().await?;
    Ok(is_enforced)
}

/// Everybody reaches the API, and nobody but the operator the other roles.
async fn closed_ways_are_closed(tenant: &Tenant) -> anyhow::Result<()> {
    let operators: Api<Pod> = Api::namespaced(tenant.cluster.client.clone(), SYSTEM);
    let ours = ListParams::default().labels("app.kubernetes.io/component=operator");
    let operator = operators.list(&ours).await?.items;
    let operator = operator.first().context("a pod of the operator")?;
    let somebody = pod(tenant, "worker").await?;
    for (role, is_open) in [("api", true), ("scheduler", false), ("worker", false)] {
        let to = tenant.pods(role).await?.pop().context("a pod of the role")?;
        for (who, from, may) in [("somebody", &somebody, is_open), ("the operator", operator, true)] {
            until(&format!("{who} reaches the {role}: {may}"), SOON, async || {
                Ok((is_reached(from, &to).await? == may).then_some(()))
            })
            .await?;
        }
    }
    Ok(())
}

/// The first pod of a role.
async fn pod(tenant: &Tenant, role: &str) -> anyhow::Result<Pod> {
    let pods = tenant.pods(role).await?;
    pods.into_iter().next().context("a pod of the role")
}

/// Whether one pod reaches another. Where nobody can see from inside the first, what this machine reaches is what counts.
async fn is_reached(from: &Pod, to: &Pod) -> anyhow::Result<bool> {
    let to = Tenant::address(to)?;
    if let Some(is_reached) = reaches(from, to, REACHED_WITHIN)? {
        return Ok(is_reached);
    }
    let connected = rt::within(REACHED_WITHIN, TcpStream::connect(to)).await;
    Ok(matches!(connected, Ok(Ok(_))))
}
