//! With a NetworkPolicy for each role everything works; closed ways are closed where the cluster looks at policies at all.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use powercontext::rt;
use powercontext_tests::kit::capture;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, SYSTEM};
use crate::tenant::Tenant;

/// A connection that is not there by then is refused.
const REACHED_WITHIN: Duration = Duration::from_secs(3);

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "policy").await?;
    tenant.apply(&json!({ "networkPolicy": { "enabled": true } }))?;
    tenant.ready().await?;
    let client = tenant.client().await?;
    capture(&client, "policed", 3).await?;
    tenant.flush_all(&client, "policed").await?;
    rules_are_those_of_the_table(&tenant).await?;
    let is_enforced = is_enforced(&tenant).await?;
    for (role, is_open) in [("api", true), ("scheduler", false), ("worker", false)] {
        let pod = tenant.pods(role).await?.remove(0);
        if is_enforced {
            ensure!(is_reached(&pod).await? == is_open, "{role} is open: {}", !is_open);
        }
    }
    if !is_enforced {
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

/// Whether the cluster refuses what a policy refuses: probed with a pod that nobody may reach.
async fn is_enforced(tenant: &Tenant) -> anyhow::Result<bool> {
    let probe = tenant.pods("api").await?.remove(0);
    let closed = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "probe" }, "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } });
    // Policies add up: the API's own has to be away for the moment, and its operator brings it back.
    tenant.patch(&json!({ "networkPolicy": { "enabled": false } }))?;
    tenant.ready().await?;
    tenant.feed(&closed)?;
    rt::sleep(REACHED_WITHIN).await;
    let is_enforced = !is_reached(&probe).await?;
    tenant.kubectl().run(&["delete", "networkpolicy", "probe"])?;
    tenant.patch(&json!({ "networkPolicy": { "enabled": true } }))?;
    tenant.ready().await?;
    Ok(is_enforced)
}

async fn is_reached(pod: &Pod) -> anyhow::Result<bool> {
    let connected = rt::within(REACHED_WITHIN, TcpStream::connect(Tenant::address(pod)?)).await;
    Ok(matches!(connected, Ok(Ok(_))))
}
