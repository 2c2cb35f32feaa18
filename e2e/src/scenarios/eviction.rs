//! What a person does to a node: a single pod may be evicted; of two the budget keeps the last while the node is closed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{EvictParams, ListParams};
use kube::{Api, ResourceExt as _};
use powercontext_cluster_tests::wait::{throughout, until};
use serde_json::json;

use crate::cluster::{Cluster, SOON};
use crate::tenant::Tenant;
use crate::traffic::Traffic;

/// How long the last pod is seen to stay.
const KEPT: Duration = Duration::from_secs(10);
/// Label of every node.
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let mut tenant = Tenant::new(cluster, "eviction").await?;
    // A label of its pods, by which nobody else's are drained.
    tenant.name.clone_from(&tenant.namespace);
    // Where there are other nodes, pods that are drained would go there and be back at once.
    let node = node(cluster).await?;
    let hostname = node
        .labels()
        .get(HOSTNAME)
        .with_context(|| format!("the node has no label {HOSTNAME}"))?;
    let one = json!({ "replicas": 1, "pod": { "nodeSelector": { HOSTNAME: hostname } } });
    tenant.apply(&json!({ "worker": one, "scheduler": one, "api": one }))?;
    tenant.ready().await?;
    for role in ["worker", "scheduler", "api"] {
        let pod = tenant.pods(role).await?.remove(0);
        let evicted = tenant
            .api::<Pod>()
            .evict(&pod.name_any(), &EvictParams::default())
            .await;
        evicted.with_context(|| format!("a single pod of {role} may be evicted"))?;
    }
    let two = json!({ "replicas": 2 });
    tenant.patch(&json!({ "worker": two, "scheduler": two, "api": two }))?;
    tenant.ready().await?;
    let node = node.name_any();
    let result = drained(&tenant, &node).await;
    cluster.kubectl().run(&["uncordon", &node])?;
    tenant.explained(result)?;
    tenant.ready().await?;
    tenant.leave()
}

/// A node that takes pods of everybody.
async fn node(cluster: &Cluster) -> anyhow::Result<Node> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let is_open = |node: &Node| {
        let spec = node.spec.as_ref();
        spec.is_none_or(|spec| spec.unschedulable != Some(true) && spec.taints.iter().flatten().next().is_none())
    };
    let mut nodes = nodes.list(&ListParams::default()).await?.items.into_iter();
    nodes.find(is_open).context("no node without a taint")
}

/// Drains the node of this deployment's pods and lets them come back.
async fn drained(tenant: &Tenant, node: &str) -> anyhow::Result<()> {
    let traffic = Traffic::start(tenant).await?;
    traffic.flows(20).await?;
    let selector = format!("--pod-selector=app.kubernetes.io/instance={}", tenant.name);
    let kubectl = tenant.cluster.kubectl();
    let drain = {
        let (kubectl, node) = (kubectl.clone(), node.to_owned());
        let drain = move || kubectl.run(&["drain", &node, &selector, "--delete-emptydir-data", "--timeout=120s"]);
        tokio::task::spawn_blocking(drain)
    };
    let ready = async || {
        let mut ready = Vec::new();
        for role in ["worker", "scheduler", "api"] {
            let pods = tenant.pods(role).await?;
            let is_ready = |pod: &&Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one.type_ == "Ready" && one.status == "True")
            };
            ready.push(pods.iter().filter(is_ready).count());
        }
        anyhow::Ok(ready)
    };
    until("each role has one pod left", SOON, async || {
        Ok((ready().await? == [1, 1, 1]).then_some(()))
    })
    .await?;
    throughout(KEPT, async || {
        let ready = ready().await?;
        ensure!(ready == [1, 1, 1], "ready Workers, Schedulers, APIs: {ready:?}");
        Ok(())
    })
    .await?;
    traffic.flows(20).await?;
    ensure!(!drain.is_finished(), "the drain ended, and no node is open");
    kubectl.run(&["uncordon", node])?;
    drain.await??;
    tenant.ready().await?;
    let told = traffic.stop().await;
    told.seen.nothing_else()?;
    told.kept(tenant).await?;
    tenant.nothing_lapsed().await
}
