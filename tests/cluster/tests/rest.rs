//! What the operator writes when there is nothing to do: nothing.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use kube::api::{Patch, PatchParams};
use powercontext_cluster_tests::stage::{NAME, SOON, Stage, spec, spec_with};
use powercontext_cluster_tests::wait::{throughout, until};
use powercontext_crds::v1alpha1::PowerContextDeployment;
use powercontext_operator::names::Role;
use serde_json::{Value, json};

/// Makes the operator look once more, without a change of the spec, and waits until it has.
async fn look_again(stage: &Stage, number: usize) -> anyhow::Result<()> {
    let asked = stage.roles.told().asked.len();
    let patch = json!({ "metadata": { "annotations": { "tests/number": number.to_string() } } });
    let api = stage.api::<PowerContextDeployment>();
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
    until("the operator looks again", SOON, async || {
        Ok((stage.roles.told().asked.len() > asked).then_some(()))
    })
    .await
}

/// Ten reconciles, after which no Deployment has another generation and nothing was written.
async fn ten_times_nothing(stage: &Stage) -> anyhow::Result<()> {
    stage.at_rest().await?;
    let generations = async || -> anyhow::Result<Vec<Option<i64>>> {
        let mut found = Vec::new();
        for role in Role::ALL {
            found.push(stage.deployment(role).await?.and_then(|one| one.metadata.generation));
        }
        Ok(found)
    };
    let before = generations().await?;
    let audit = stage.audit.from_now();
    for number in 0..10 {
        look_again(stage, number).await?;
    }
    ensure!(
        generations().await? == before,
        "{before:?} became {:?}",
        generations().await?
    );
    let writes = audit.writes()?;
    ensure!(writes.is_empty(), "{writes:#?}");
    Ok(())
}

#[tokio::test]
async fn a_minute_of_a_changing_queue_is_two_status_writes_and_nothing_else() -> anyhow::Result<()> {
    let stage = Stage::new("queue").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    stage.at_rest().await?;
    let audit = stage.audit.from_now();
    let mut number = 0;
    throughout(Duration::from_mins(1), async || {
        number += 1;
        {
            let mut told = stage.roles.told();
            told.queue = [("queued".to_owned(), number), ("running".to_owned(), number % 7)].into();
            told.oldest_seconds = number;
            told.fence = 1 + number / 100;
        }
        // Something wakes it all the time.
        if number % 20 == 0 {
            let patch = json!({ "metadata": { "annotations": { "tests/number": number.to_string() } } });
            let api = stage.api::<PowerContextDeployment>();
            api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(())
    })
    .await?;
    let writes = audit.writes()?;
    let others: Vec<_> = writes
        .iter()
        .filter(|one| one.resource != "powercontextdeployments/status")
        .collect();
    ensure!(others.is_empty(), "{others:#?}");
    ensure!((1..=2).contains(&writes.len()), "{writes:#?}");
    let queue = stage.status().await?.queue.context("a queue")?;
    ensure!(queue.depth["queued"] > 1, "{queue:?}");
    Ok(())
}

#[tokio::test]
async fn odd_spellings_of_amounts_never_change_a_deployment_again() -> anyhow::Result<()> {
    let stage = Stage::new("amounts").await?;
    let _operator = stage.operator().await?;
    let odd = json!({
        "api": { "resources": { "requests": { "cpu": "1000m", "memory": "1024Mi" }, "limits": { "cpu": 2, "memory": "1.5Gi" } } },
        "worker": {
            "resources": { "requests": { "cpu": "0.5", "memory": "1.5Gi" }, "limits": { "memory": "2000000000", "ephemeral-storage": "1e9" } },
            "pod": {
                "extraVolumes": [{ "name": "scratch", "emptyDir": { "sizeLimit": "1024Mi", "medium": "" } }],
                "extraVolumeMounts": [{ "name": "scratch", "mountPath": "/scratch", "readOnly": false }],
                "extraEnv": [{ "name": "EMPTY", "value": "" }],
            },
        },
    });
    stage.apply(&spec_with(&odd)).await?;
    stage.until_ready().await?;
    ten_times_nothing(&stage).await
}

/// Everything that a spec can ask for.
fn everything() -> Value {
    let pod = json!({
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1,
            "podAffinityTerm": { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "a": "b" } } },
        }] } },
        "tolerations": [{ "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60 }, { "operator": "Exists" }],
        "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway" }],
        "annotations": { "example.org/a": "b" },
        "extraEnv": [
            { "name": "HOST_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } },
            { "name": "FROM_SECRET", "valueFrom": { "secretKeyRef": { "name": "pc-model", "key": "key" } } },
        ],
        "extraVolumes": [
            { "name": "certificates", "configMap": { "name": "certificates", "optional": true } },
            { "name": "both", "projected": { "sources": [{ "configMap": { "name": "certificates" } }] } },
        ],
        "extraVolumeMounts": [{ "name": "certificates", "mountPath": "/etc/certificates" }, { "name": "both", "mountPath": "/both" }],
    });
    json!({
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{ "name": "registry" }],
        "inference": { "apiAccess": true },
        "api": { "replicas": null, "pod": pod, "resources": { "requests": { "cpu": "250m" } } },
        "scheduler": { "replicas": 2, "pod": pod },
        "worker": { "replicas": 2, "pod": pod },
        "background": { "replicas": 1, "pod": pod },
        "supervisor": {
            "mode": "dedicated",
            "memory": { "scheduleSeconds": 60, "maxWorkers": 4, "timeoutSeconds": 300, "retry": "bounded" },
            "profile": { "cron": "0 3 * * *", "timezone": "Europe/Berlin" },
        },
        "rateLimit": {},
        "migration": { "pod": pod },
        "autoscaling": { "api": { "minReplicas": 2, "maxReplicas": 5 } },
        "service": { "type": "NodePort", "annotations": { "example.org/a": "b" } },
        "ingress": { "host": "pc.example.org", "tlsSecretName": "certificate", "annotations": { "example.org/a": "b" } },
        "networkPolicy": { "enabled": true, "allowFromNamespaces": { "team": "a" } },
    })
}

#[tokio::test]
async fn a_deployment_with_everything_is_admitted_and_then_nothing_is_written() -> anyhow::Result<()> {
    let stage = Stage::new("everything").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec_with(&everything())).await?;
    stage.until_ready().await?;
    for (kind, there) in [
        ("Ingress", stage.api::<Ingress>().get_opt("pc-api").await?.is_some()),
        (
            "NetworkPolicy",
            stage.api::<NetworkPolicy>().get_opt("pc-worker").await?.is_some(),
        ),
        (
            "HorizontalPodAutoscaler",
            stage
                .api::<HorizontalPodAutoscaler>()
                .get_opt("pc-api")
                .await?
                .is_some(),
        ),
    ] {
        ensure!(there, "{kind}");
    }
    ten_times_nothing(&stage).await?;
    // Back to the smallest: what is not wanted any more goes, and the rest comes to rest too.
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    ensure!(stage.api::<Ingress>().get_opt("pc-api").await?.is_none());
    ensure!(
        stage
            .api::<HorizontalPodAutoscaler>()
            .get_opt("pc-api")
            .await?
            .is_none()
    );
    ten_times_nothing(&stage).await?;
    let refused: Vec<_> = stage
        .audit
        .requests()?
        .into_iter()
        .filter(|one| one.code == 422)
        .collect();
    ensure!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

#[tokio::test]
async fn a_restarted_operator_finds_everything_as_it_should_be() -> anyhow::Result<()> {
    let stage = Stage::new("restart").await?;
    let mut operator = stage.operator().await?;
    stage.apply(&spec_with(&everything())).await?;
    stage.until_ready().await?;
    stage.at_rest().await?;
    operator.kill()?;
    let audit = stage.audit.from_now();
    let asked = stage.roles.told().asked.len();
    let _operator = stage.operator().await?;
    until("the new operator looks", SOON, async || {
        Ok((stage.roles.told().asked.len() > asked).then_some(()))
    })
    .await?;
    throughout(Duration::from_secs(4), async || {
        ensure!(audit.writes()?.is_empty(), "{:#?}", audit.writes()?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_added_by_hand_to_a_list_goes_and_then_nothing_is_written() -> anyhow::Result<()> {
    let stage = Stage::new("added").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let kubectl = stage.kubectl();
    let port = r#"[{"op": "add", "path": "/spec/ports/-", "value": {"name": "hand", "port": 81, "targetPort": 8000}}]"#;
    kubectl.run(&["patch", "service", "pc-api", "--type", "json", "--patch", port])?;
    kubectl.run(&["set", "env", "deployment/pc-worker", "ADDED=by hand"])?;
    until("the Service and the Worker are as they were", SOON, async || {
        let ports = kubectl.run(&["get", "service", "pc-api", "--output", "jsonpath={.spec.ports[*].name}"])?;
        let worker = serde_json::to_string(&stage.deployment(Role::Worker).await?)?;
        Ok((ports == "http" && !worker.contains("ADDED")).then_some(()))
    })
    .await?;
    stage.until_ready().await?;
    ten_times_nothing(&stage).await
}
