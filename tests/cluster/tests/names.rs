//! Names that are long, dotted or alike.

use std::collections::BTreeSet;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use powercontext_cluster_tests::stage::{SOON, Stage, spec};
use powercontext_cluster_tests::wait::until;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use powercontext_operator::names::Role;

async fn is_ready(stage: &Stage, name: &str) -> anyhow::Result<bool> {
    let one: PowerContextDeployment = stage.api().get(name).await?;
    let conditions = one.status.unwrap_or_default().conditions;
    Ok(conditions
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True"))
}

#[tokio::test]
async fn long_dotted_and_similar_names_do_not_meet_and_every_label_fits() -> anyhow::Result<()> {
    let stage = Stage::new("names").await?;
    let _operator = stage.operator().await?;
    let beginning = "a".repeat(50);
    let names = [
        "n".repeat(63),
        "my.dotted.name".to_owned(),
        format!("{beginning}-one"),
        format!("{beginning}-two"),
    ];
    for name in &names {
        stage.apply_named(name, &spec()).await?;
    }
    for name in &names {
        until(&format!("{name} is ready"), SOON * 2, async || {
            Ok(is_ready(&stage, name).await?.then_some(()))
        })
        .await?;
    }
    let deployments: Vec<Deployment> = stage.ours().await?;
    let different: BTreeSet<_> = deployments.iter().map(ResourceExt::name_any).collect();
    ensure!(different.len() == names.len() * Role::ALL.len(), "{different:?}");
    let jobs: Vec<Job> = stage.ours().await?;
    ensure!(jobs.len() == names.len(), "{}", jobs.len());
    let services: Vec<Service> = stage.ours().await?;
    ensure!(services.len() == names.len(), "{}", services.len());
    let pods: Vec<Pod> = stage.ours().await?;
    ensure!(!pods.is_empty());
    let labels = deployments.iter().map(ResourceExt::labels);
    let labels = labels
        .chain(jobs.iter().map(ResourceExt::labels))
        .chain(pods.iter().map(ResourceExt::labels));
    for value in labels.flat_map(|labels| labels.values()) {
        ensure!(value.len() <= 63, "{value}");
    }
    for deployment in &deployments {
        let selector = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.match_labels.clone())
            .unwrap_or_default();
        ensure!(
            !selector.is_empty() && !selector.keys().any(|key| key.contains("version")),
            "{selector:?}"
        );
    }
    Ok(())
}
