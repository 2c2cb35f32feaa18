//! A fresh deployment: the order in which it comes up, and work through the Service over both APIs.

use std::sync::Arc;

use anyhow::ensure;
use futures_util::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use powercontext_tests::facts;
use serde_json::json;

use crate::cluster::Cluster;
use crate::tenant::Tenant;

const SCOPES: u32 = 10;
const SOURCES: u32 = 20;
/// Counter of requests of one process.
const REQUESTS: &str = "powercontext_server_transport_requests_total";

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "install").await?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    came_in_order(&tenant).await?;
    let client = tenant.client().await?;
    let scopes = (0..SCOPES).map(|n| {
        let (tenant, client, scope) = (&tenant, client.clone(), format!("scope-{n}"));
        async move {
            for n in 1..=SOURCES {
                let content = format!("user: I prefer blue curtain number {n} in the house of {scope}.");
                client.capture(&scope, &format!("s{n}"), &content).await?.expect(202)?;
            }
            tenant.flush_all(&client, &scope).await?;
            anyhow::Ok(scope)
        }
    });
    for scope in try_join_all(scopes).await? {
        let (cursor, head) = facts::cursor_and_head(&tenant.database, &scope).await?;
        ensure!(
            (cursor, head) == (SOURCES.into(), SOURCES.into()),
            "{scope}: cursor {cursor}, head {head}"
        );
    }
    for pod in tenant.pods("api").await? {
        let requests = tenant.counted(&pod, REQUESTS).await?;
        ensure!(requests > 20.0, "an API answered {requests} requests");
    }
    tenant.nothing_lapsed().await?;
    let restarts = tenant.restarts().await?;
    ensure!(restarts.values().all(|count| *count == 0), "{restarts:?}");
    tenant.leave()
}

/// The migration ended before the first Worker began, the last Worker was ready before the first Scheduler began, and so on.
async fn came_in_order(tenant: &Tenant) -> anyhow::Result<()> {
    let jobs = tenant.api::<Job>().list(&ListParams::default()).await?.items;
    let ended = jobs
        .iter()
        .filter_map(|job| job.status.as_ref()?.completion_time.clone());
    let mut before: Option<Timestamp> = ended.map(|time| time.0).max();
    ensure!(before.is_some(), "no Job has ended");
    for role in ["worker", "scheduler", "api"] {
        let pods = tenant.pods(role).await?;
        ensure!(pods.len() == 2, "{} pods of {role}", pods.len());
        let made = pods.iter().filter_map(|pod| pod.metadata.creation_timestamp.clone());
        let first = made.map(|time| time.0).min();
        ensure!(
            first >= before,
            "{role} began at {first:?}, what it waits for ended at {before:?}"
        );
        let conditions = pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref());
        let ready = conditions.flatten().filter(|one| one.type_ == "Ready");
        before = ready
            .filter_map(|one| one.last_transition_time.clone())
            .map(|time| time.0)
            .max();
    }
    Ok(())
}
