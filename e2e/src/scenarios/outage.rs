//! The database out of reach for two minutes: pods stay as they are, and say that they are not ready.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use powercontext::rt;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::kit::capture;
use serde_json::json;

use crate::cluster::{Cluster, SOON};
use crate::door::{Door, Way};
use crate::tenant::Tenant;

/// How long nobody listens, and then how long nobody answers.
const EACH: Duration = Duration::from_mins(1);

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "outage").await?;
    let door = Door::before(cluster.host, tenant.database_port()?).await?;
    tenant.reach_database_at(door.port())?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    let client = tenant.client().await?;
    capture(&client, "before", 2).await?;
    tenant.flush_all(&client, "before").await?;
    let began = rt::now();
    door.set(Way::Refused);
    let fallen = until("no API is ready", SOON, async || {
        Ok((ready(&tenant).await? == 0).then_some(()))
    });
    tenant.explained(fallen.await)?;
    rt::sleep_until(began + EACH).await;
    door.set(Way::Silent);
    rt::sleep_until(began + EACH * 2).await;
    ensure!(ready(&tenant).await? == 0, "an API is ready without its database");
    door.set(Way::Open);
    tenant.ready().await?;
    let restarts = tenant.restarts().await?;
    ensure!(restarts.values().all(|count| *count == 0), "restarted: {restarts:?}");
    until("the Service answers again", SOON, async || {
        capture(&client, "after", 1).await?;
        Ok(Some(()))
    })
    .await?;
    tenant.flush_all(&client, "after").await?;
    tenant.leave()
}

/// API pods that are ready.
async fn ready(tenant: &Tenant) -> anyhow::Result<usize> {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|one| one.type_ == "Ready" && one.status == "True")
    };
    Ok(tenant.pods("api").await?.iter().filter(|pod| is_ready(pod)).count())
}
