//! What a person gets wrong is named within half a minute, and goes away with the correction alone.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use serde_json::json;

use crate::cluster::{Cluster, SOON};
use crate::tenant::Tenant;

/// Longest until a condition names what is wrong.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// The secret of the database.
const DATABASE: &str = "powercontext-database";

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "faults").await?;
    missing_secret(&tenant).await?;
    refused_migration(&tenant).await?;
    wrong_image(&tenant).await?;
    rotated_secret(&tenant).await?;
    tenant.leave()
}

async fn missing_secret(tenant: &Tenant) -> anyhow::Result<()> {
    tenant.kubectl().run(&["delete", "secret", DATABASE])?;
    tenant.apply(&json!({}))?;
    tenant
        .until("Degraded", "True", "SecretMissing", TOLD_WITHIN)
        .await
        .map(drop)
}

/// A database that is somebody else's: the secret names it, and then the right one.
async fn refused_migration(tenant: &Tenant) -> anyhow::Result<()> {
    let foreign = Database::oceanbase_unused().await?;
    let table = "create table pc_work_items (something_else int primary key)";
    foreign.raw().await?.execute(table).await?;
    let right = tenant.url_for_pods()?;
    let schema = foreign.url().rsplit('/').next().unwrap_or_default();
    let (server, _) = right.rsplit_once('/').unwrap_or_default();
    tenant.set_secret(DATABASE, "url", &format!("{server}/{schema}"))?;
    tenant
        .until("Degraded", "True", "MigrationRefused", TOLD_WITHIN)
        .await?;
    tenant.set_secret(DATABASE, "url", &right)?;
    tenant.ready().await
}

async fn wrong_image(tenant: &Tenant) -> anyhow::Result<()> {
    let before = pods(tenant).await?;
    tenant.patch(&json!({ "image": "localhost/powercontext:mistyped" }))?;
    tenant.until("Degraded", "True", "ImagePullFailed", TOLD_WITHIN).await?;
    ensure!(pods(tenant).await? == before, "what ran was touched");
    tenant.patch(&json!({ "image": tenant.cluster.image }))?;
    tenant.ready().await?;
    tenant.until("Degraded", "False", "AsExpected", TOLD_WITHIN).await?;
    ensure!(pods(tenant).await? == before, "what ran was touched");
    Ok(())
}

/// The names of all pods of the roles.
async fn pods(tenant: &Tenant) -> anyhow::Result<Vec<Option<String>>> {
    let mut names = Vec::new();
    for role in ["worker", "scheduler", "api"] {
        names.extend(tenant.pods(role).await?.into_iter().map(|pod| pod.metadata.name));
    }
    Ok(names)
}

/// The token changes: the APIs take the new one, and no other.
async fn rotated_secret(tenant: &Tenant) -> anyhow::Result<()> {
    let token = rt::hex_id();
    tenant.set_secret("powercontext-auth", "token", &token)?;
    let until_taken = until("the APIs take the new token", SOON, async || {
        let client = Client::new(tenant.service().await?)?.reconnecting(&token)?;
        let answer = client.get("/v1/operations?scope_id=x").await?;
        Ok((answer.status == 200).then_some(()))
    });
    tenant.explained(until_taken.await)?;
    tenant.ready().await?;
    let old = Client::new(tenant.service().await?)?.reconnecting(&tenant.token)?;
    let answer = old.get("/v1/operations?scope_id=x").await?;
    ensure!(answer.status == 401, "the old token: {answer:?}");
    Ok(())
}
