//! What is left when a deployment, the operator or a namespace goes: nothing.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::DeleteParams;
use powercontext_cluster_tests::stage::{NAME, Stage, spec_with};
use powercontext_cluster_tests::wait::until;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use serde_json::json;

/// The garbage collector learns of a new kind of owner within half a minute.
const COLLECTED: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_deleted_deployment_leaves_no_object_and_touches_no_secret() -> anyhow::Result<()> {
    let stage = Stage::new("delete").await?;
    let _operator = stage.operator().await?;
    stage
        .apply(&spec_with(
            &json!({ "worker": { "replicas": 2 }, "networkPolicy": { "enabled": true } }),
        ))
        .await?;
    stage.until_ready().await?;
    stage
        .api::<PowerContextDeployment>()
        .delete(NAME, &DeleteParams::background())
        .await?;
    let gone = until("every object is gone", COLLECTED, async || {
        let left = stage.ours::<Deployment>().await?.len()
            + stage.ours::<Job>().await?.len()
            + stage.ours::<Pod>().await?.len()
            + stage.ours::<Service>().await?.len()
            + stage.ours::<ServiceAccount>().await?.len()
            + stage.ours::<PodDisruptionBudget>().await?.len();
        Ok((left == 0).then_some(()))
    });
    stage.explained(gone.await).await?;
    ensure!(stage.api::<Secret>().get_opt("pc-database").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_namespace_is_gone_within_a_minute_when_the_operator_went_before() -> anyhow::Result<()> {
    let stage = Stage::new("namespace").await?;
    let mut operator = stage.operator().await?;
    stage.apply(&spec_with(&json!({}))).await?;
    stage.until_ready().await?;
    let ended = operator.end().await?;
    ensure!(ended.success(), "{ended}");
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces.delete(&stage.namespace, &DeleteParams::default()).await?;
    let gone = until("the namespace is gone", Duration::from_mins(1), async || {
        Ok(namespaces.get_opt(&stage.namespace).await?.is_none().then_some(()))
    });
    stage.explained(gone.await).await
}
