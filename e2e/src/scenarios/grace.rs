//! A run of 25 seconds whose Worker is asked to end: given back where the grace is shorter, finished where it is longer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use powercontext::rt;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use serde_json::json;

use super::scale::settled;
use crate::cluster::{Cluster, SOON};
use crate::tenant::Tenant;

/// How long the model takes.
const TASK: Duration = Duration::from_secs(25);

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "grace").await?;
    tenant.apply(&json!({
        "worker": { "replicas": 1, "leaseSeconds": 60 },
        "scheduler": { "replicas": 1 },
        "api": { "replicas": 1 },
    }))?;
    for (grace, outcomes) in [(9, &["released", "succeeded"][..]), (40, &["succeeded"])] {
        let ended = asked_to_end(&tenant, grace).await;
        let outcomes_were = tenant.explained(ended)?;
        ensure!(outcomes_were == outcomes, "grace {grace} s: {outcomes_were:?}");
    }
    tenant.nothing_lapsed().await?;
    tenant.leave()
}

/// What became of a run whose Worker has so long to end.
async fn asked_to_end(tenant: &Tenant, grace: u64) -> anyhow::Result<Vec<String>> {
    tenant.patch(&json!({ "worker": { "replicas": 1, "shutdownGraceSeconds": grace } }))?;
    settled(tenant, "worker", 1).await?;
    let client = tenant.client().await?;
    let scope = format!("grace-{grace}");
    tenant.provider.hold();
    capture(&client, &scope, 2).await?;
    let operation = flush(&client, &scope).await?;
    tenant.provider.in_flight(1, SOON).await?;
    let began = rt::now();
    let worker = tenant.pods("worker").await?.remove(0).name_any();
    tenant.kubectl().run(&["scale", "pcd", &tenant.name, "--replicas=0"])?;
    if Duration::from_secs(grace) < TASK {
        until("the run is given back", TASK, async || {
            let outcomes = facts::outcomes(&tenant.database, &operation).await?;
            Ok((outcomes == ["released"]).then_some(()))
        })
        .await?;
        tenant.provider.answer();
    } else {
        rt::sleep_until(began + TASK).await;
        tenant.provider.answer();
        client.operation_is(&operation, "succeeded", SOON).await?;
    }
    until("the Worker has gone", SOON, async || {
        Ok(tenant.api::<Pod>().get_opt(&worker).await?.is_none().then_some(()))
    })
    .await?;
    tenant.kubectl().run(&["scale", "pcd", &tenant.name, "--replicas=1"])?;
    client.operation_is(&operation, "succeeded", SOON).await?;
    facts::outcomes(&tenant.database, &operation).await
}
