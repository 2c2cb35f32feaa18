//! To the next release under load, half-way back, and forward; and back over work that only the next release can read.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use powercontext_tests::facts;
use powercontext_tests::kit::{capture, flush};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SOON};
use crate::tenant::{Tenant, sample};
use crate::traffic::Traffic;

/// Setting by which the next release writes what the older one cannot read.
const EMITS: &str = "POWERCONTEXT_SERVER_COORDINATION_EMIT_PAYLOAD_VERSION";

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "upgrade").await?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    let before = tenant.status().await?.schema.revision;
    let traffic = Traffic::start(&tenant).await?;
    traffic.flows(40).await?;
    let (now, next) = (
        json!({ "image": cluster.image }),
        json!({ "image": cluster.next_image }),
    );
    tenant.patch(&next)?;
    // Half-way: the schema and the Workers are the next release's, the APIs are not.
    let half = tenant
        .until_status("the Workers are of the next release", |status| {
            status.roles.worker.build.is_some() && status.roles.worker.build != status.roles.api.build
        })
        .await?;
    ensure!(half.schema.revision > before, "{:?}", half.schema);
    tenant.patch(&now)?;
    tenant.ready().await?;
    traffic.flows(40).await?;
    tenant.patch(&next)?;
    tenant.ready().await?;
    traffic.flows(40).await?;
    let told = traffic.stop().await;
    tenant.explained(told.seen.nothing_else())?;
    told.kept(&tenant).await?;
    tenant.nothing_lapsed().await?;
    tenant.explained(gate(&tenant, &now).await)?;
    tenant.leave()
}

/// Workers stay at the next release while there is work that the older one cannot read.
async fn gate(tenant: &Tenant, now: &Value) -> anyhow::Result<()> {
    let sample = sample(&tenant.cluster, &json!({}))?;
    let plain = sample["spec"]["api"]["pod"]["extraEnv"].clone();
    let mut emitting = plain.clone();
    if let Some(variables) = emitting.as_array_mut() {
        variables.push(json!({ "name": EMITS, "value": "2" }));
    }
    // Nobody but the API that is told to may write the item.
    tenant.patch(
        &json!({ "supervisor": { "memory": { "scheduleSeconds": 3600 } }, "api": { "pod": { "extraEnv": emitting } } }),
    )?;
    tenant.ready().await?;
    tenant.none_ends("api").await?;
    tenant.provider.hold();
    let client = tenant.client().await?;
    capture(&client, "newer", 2).await?;
    let operation = flush(&client, "newer").await?;
    tenant.provider.in_flight(1, SOON).await?;
    let sql = format!("select payload_version from pc_work_items where work_id = '{operation}'");
    let versions = tenant.database.raw().await?.rows(&sql).await?;
    let version = versions.first().context("the item")?.int(0)?;
    ensure!(version == 2, "an API wrote version {version}, told to write 2");
    tenant.patch(&json!({ "image": now["image"], "api": { "pod": { "extraEnv": plain } } }))?;
    tenant
        .until("WorkersReady", "False", "NewerPayloadsQueued", SOON)
        .await?;
    let status = tenant.status().await?;
    ensure!(
        status.roles.worker.build != status.roles.api.build,
        "the Workers wait, and the APIs have gone back: {:?}",
        status.roles
    );
    tenant.provider.answer();
    client.operation_is(&operation, "succeeded", SOON).await?;
    tenant.ready().await?;
    let outcomes = facts::outcomes(&tenant.database, &operation).await?;
    ensure!(outcomes == ["succeeded"], "{outcomes:?}");
    tenant.nothing_lapsed().await
}
