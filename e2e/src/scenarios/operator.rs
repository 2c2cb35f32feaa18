//! Without its operator a deployment goes on; when the operator is back, what was changed by hand is as it was.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use powercontext_cluster_tests::wait::until;
use serde_json::json;

use crate::cluster::{Cluster, SOON};
use crate::node::kill;
use crate::tenant::Tenant;
use crate::traffic::Traffic;

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "operator").await?;
    let release = &tenant.namespace;
    let scope = format!("namespaces={{{release}}}");
    cluster.install(
        release,
        release,
        &["scope=namespaces", &scope, "crds.install=false", "replicas=1"],
    )?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    let traffic = Traffic::start(&tenant).await?;
    for pod in tenant.pods("operator").await? {
        kill(&tenant, &pod)?;
    }
    traffic.flows(20).await?;
    let deployments: Api<Deployment> = tenant.api();
    let ours = ListParams::default().labels("app.kubernetes.io/component=operator");
    let operator = deployments
        .list(&ours)
        .await?
        .items
        .first()
        .context("the operator")?
        .name_any();
    let scale = |count: u8| {
        let count = format!("--replicas={count}");
        tenant.kubectl().run(&["scale", "deployment", &operator, &count])
    };
    scale(0)?;
    until("no operator is left", SOON, async || {
        let pods = tenant.api::<Pod>().list(&ours).await?.items;
        Ok(pods.is_empty().then_some(()))
    })
    .await?;
    // By hand: another number of pods, another environment, no Service and no identity.
    let worker = format!("{}-worker", tenant.name);
    let kubectl = tenant.kubectl();
    kubectl.run(&["scale", "deployment", &worker, "--replicas=1"])?;
    kubectl.run(&[
        "set",
        "env",
        &format!("deployment/{}-scheduler", tenant.name),
        "POWERCONTEXT_SERVER_LOGGING_FORMAT=text",
    ])?;
    kubectl.run(&["patch", "service", &format!("{}-api", tenant.name), "--patch", r#"{"spec":{"ports":[{"port":80,"targetPort":8000,"name":"http"},{"port":81,"targetPort":8000,"name":"hand"}]}}"#])?;
    traffic.flows(200).await?;
    scale(1)?;
    let back = until("what was changed by hand is as it was", SOON, async || {
        let replicas = deployments.get(&worker).await?.spec.and_then(|spec| spec.replicas);
        ensure!(replicas == Some(2), "Workers: {replicas:?}");
        let scheduler = deployments.get(&format!("{}-scheduler", tenant.name)).await?;
        let template = serde_json::to_string(&scheduler.spec)?;
        ensure!(
            !template.contains(r#""text""#),
            "the Schedulers' environment is another"
        );
        let service: Service = tenant.api().get(&format!("{}-api", tenant.name)).await?;
        let ports = service.spec.and_then(|spec| spec.ports).map(|ports| ports.len());
        ensure!(ports == Some(1), "ports of the Service: {ports:?}");
        Ok(Some(()))
    });
    tenant.explained(back.await)?;
    tenant.ready().await?;
    let told = traffic.stop().await;
    tenant.explained(told.seen.nothing_else())?;
    told.kept(&tenant).await?;
    tenant.nothing_lapsed().await?;
    tenant.leave()
}
