//! What is left when a deployment, the operator or a namespace goes: nothing.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::DeleteParams;
use powercontext_cluster_tests::stage::{NAME, Stage, spec_with};
use powercontext_cluster_tests::wait::until;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use serde_json::json;

/// Every kind that a deployment has objects of, its own and those that Kubernetes makes for them.
const KINDS: &str =
    "serviceaccounts,services,deployments,replicasets,jobs,pods,poddisruptionbudgets,networkpolicies,hpa,ingresses";

/// The garbage collector learns of a new kind of owner within half a minute.
const COLLECTED: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_deleted_deployment_leaves_no_object_and_touches_no_secret() -> anyhow::Result<()> {
    let stage = Stage::new("delete").await?;
    let _operator = stage.operator().await?;
    stage
        .apply(&spec_with(&json!({
            "api": { "replicas": null, "resources": { "requests": { "cpu": "100m" } } },
            "worker": { "replicas": 2 },
            "autoscaling": { "api": { "minReplicas": 2, "maxReplicas": 4 } },
            "ingress": { "host": "pc.example" },
            "networkPolicy": { "enabled": true },
        })))
        .await?;
    stage.until_ready().await?;
    let left = || {
        let ours = "app.kubernetes.io/part-of=powercontext";
        stage
            .kubectl()
            .run(&["get", KINDS, "--selector", ours, "--output", "name"])
    };
    let there = left()?;
    for kind in ["replicaset", "networkpolicy", "horizontalpodautoscaler", "ingress"] {
        ensure!(there.contains(kind), "no {kind} to begin with: {there}");
    }
    stage
        .api::<PowerContextDeployment>()
        .delete(NAME, &DeleteParams::background())
        .await?;
    let gone = until("every object is gone", COLLECTED, async || {
        Ok(left()?.is_empty().then_some(()))
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
