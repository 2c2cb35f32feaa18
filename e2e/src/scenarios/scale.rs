//! Every role up, down, to nothing and back, while clients go on.

use std::sync::Arc;

use anyhow::ensure;
use powercontext_cluster_tests::wait::until;
use powercontext_crds::v1alpha1::{RoleStatus, Status};
use serde_json::json;
use tokio::net::TcpStream;

use crate::cluster::{Cluster, SOON};
use crate::tenant::Tenant;
use crate::traffic::Traffic;

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "scale").await?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    let traffic = Traffic::start(&tenant).await?;
    traffic.flows(40).await?;
    for (workers, schedulers, apis) in [(4, 3, 4), (0, 0, 1), (1, 2, 2)] {
        // As the resource's own scale it is that of the Workers.
        let count = format!("--replicas={workers}");
        tenant.kubectl().run(&["scale", "pcd", &tenant.name, &count])?;
        tenant.patch(&json!({ "scheduler": { "replicas": schedulers }, "api": { "replicas": apis } }))?;
        for (role, count) in [("worker", workers), ("scheduler", schedulers), ("api", apis)] {
            settled(&tenant, role, count).await?;
        }
    }
    traffic.flows(40).await?;
    let told = traffic.stop().await;
    tenant.explained(told.seen.nothing_else())?;
    told.kept(&tenant).await?;
    // Only where the last API goes may a connection end with it, and nobody listen afterwards.
    let service = tenant.service().await?;
    let traffic = Traffic::start(&tenant).await?;
    tenant.patch(&json!({ "api": { "replicas": 0 } }))?;
    settled(&tenant, "api", 0).await?;
    until("the last API has gone", SOON, async || {
        Ok(TcpStream::connect(service).await.is_err().then_some(()))
    })
    .await?;
    tenant.patch(&json!({ "api": { "replicas": 2 } }))?;
    settled(&tenant, "api", 2).await?;
    traffic.flows(20).await?;
    let told = traffic.stop().await;
    ensure!(told.seen.faults.is_empty(), "{:?}", told.seen.faults);
    ensure!(!told.seen.refused.is_empty(), "nobody noticed that there was no API");
    told.kept(&tenant).await?;
    tenant.nothing_lapsed().await?;
    tenant.leave()
}

/// Waits until a role has so many pods, all of them ready, and no other one.
pub(super) async fn settled(tenant: &Tenant, role: &str, count: i32) -> anyhow::Result<()> {
    let of = |status: &Status| -> RoleStatus {
        match role {
            "worker" => status.roles.worker.clone(),
            "scheduler" => status.roles.scheduler.clone(),
            _ => status.roles.api.clone(),
        }
    };
    let what = format!("{role} has {count} pods");
    tenant
        .until_status(&what, |status| {
            let role = of(status);
            (role.desired, role.replicas, role.ready) == (count, count, count)
        })
        .await?;
    tenant.ready().await
}
