//! From an empty namespace to a deployment that is ready, and what follows a change.

use anyhow::ensure;
use powercontext_cluster_tests::stage::{Stage, spec};
use powercontext_operator::names::Role;

#[tokio::test]
async fn a_deployment_becomes_ready_and_then_nothing_is_written() -> anyhow::Result<()> {
    let stage = Stage::new("ready").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    for role in [Role::Worker, Role::Scheduler, Role::Api] {
        ensure!(stage.deployment(role).await?.is_some(), "{role}");
    }
    Ok(())
}
