//! What a person does to a node: a single pod may be evicted; of two the budget keeps the last while the node is closed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::EvictParams;
use powercontext_cluster_tests::wait::{throughout, until};
use serde_json::json;

use crate::cluster::{Cluster, SOON};
use crate::tenant::Tenant;
use crate::traffic::Traffic;

/// How long the last pod is seen to stay.
const KEPT: Duration = Duration::from_secs(10);

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let mut tenant = Tenant::new(cluster, "eviction").await?;
    // A label of its pods, by which nobody else's are drained.
    tenant.name.clone_from(&tenant.namespace);
    let one = json!({ "replicas": 1 });
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
    tenant.patch(&json!({ "api": { "replicas": 2 }, "worker": { "replicas": 2 }, "scheduler": { "replicas": 2 } }))?;
    tenant.ready().await?;
    let result = drained(&tenant).await;
    cluster.kubectl().run(&["uncordon", &node(&tenant).await?])?;
    tenant.explained(result)?;
    tenant.ready().await?;
    tenant.leave()
}

async fn node(tenant: &Tenant) -> anyhow::Result<String> {
    let pods = tenant.api::<Pod>().list(&kube::api::ListParams::default()).await?.items;
    let mut nodes = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    nodes.next().context("a pod is on a node")
}

/// Drains the node of this deployment's pods and lets them come back.
async fn drained(tenant: &Tenant) -> anyhow::Result<()> {
    let traffic = Traffic::start(tenant).await?;
    traffic.flows(20).await?;
    let node = node(tenant).await?;
    let selector = format!("--pod-selector=app.kubernetes.io/instance={}", tenant.name);
    let kubectl = tenant.cluster.kubectl();
    let drain = {
        let (kubectl, node) = (kubectl.clone(), node.clone());
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
    kubectl.run(&["uncordon", &node])?;
    drain.await??;
    tenant.ready().await?;
    let told = traffic.stop().await;
    told.seen.nothing_else()?;
    told.kept(tenant).await?;
    tenant.nothing_lapsed().await
}
