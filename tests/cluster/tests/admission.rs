//! What the API server itself accepts and refuses.

use anyhow::{Context as _, ensure};
use powercontext_cluster_tests::control_plane::repository;
use powercontext_cluster_tests::stage::{Stage, spec_with};
use serde_json::{Value, json};

/// What the API server says to a change of the smallest spec; `None` when it accepts it.
async fn refusal(stage: &Stage, changes: &Value) -> Option<String> {
    stage
        .apply(&spec_with(changes))
        .await
        .err()
        .map(|error| format!("{error:#}"))
}

#[tokio::test]
async fn the_sample_of_the_documentation_is_accepted_with_plain_kubectl() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("sample").await?;
    let sample = repository().join("docs/examples/deployment.yaml").display().to_string();
    let said = stage.kubectl().run(&["apply", "-f", &sample])?;
    ensure!(said.contains("created"), "{said}");
    let table = stage.kubectl().run(&["get", "pcd"])?;
    ensure!(table.contains("READY") && table.contains("WORKERS"), "{table}");
    let said = stage.kubectl().run(&["explain", "pcd.spec.worker.leaseSeconds"])?;
    ensure!(said.contains("seconds"), "{said}");
    Ok(())
}

#[tokio::test]
async fn reserved_and_repeated_variables_are_refused_with_the_reason() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("env").await?;
    let env = |entries: Value| json!({ "worker": { "pod": { "extraEnv": entries } } });
    let reserved = env(json!([{ "name": "POWERCONTEXT_SERVER_DATABASE_URL", "value": "mysql://x" }]));
    let said = refusal(&stage, &reserved).await.context("it was accepted")?;
    ensure!(said.contains("the operator sets this variable itself"), "{said}");
    let twice = env(json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]));
    let said = refusal(&stage, &twice).await.context("it was accepted")?;
    ensure!(said.contains("uplicate"), "{said}");
    let fine = env(
        json!([{ "name": "A", "value": "1" }, { "name": "B", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } }]),
    );
    ensure!(refusal(&stage, &fine).await.is_none());
    Ok(())
}

#[tokio::test]
async fn what_can_be_known_at_admission_is_refused_there() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("rules").await?;
    for (changes, reason) in [
        (
            json!({ "worker": { "heartbeatSeconds": 40 } }),
            "three heartbeats must fit into the lease",
        ),
        (
            json!({ "worker": { "shutdownGraceSeconds": 120 } }),
            "must not outlive its leases",
        ),
        (
            json!({ "worker": { "terminationGracePeriodSeconds": 120 } }),
            "the pod must outlive its drain",
        ),
        (
            json!({ "scheduler": { "renewSeconds": 11 } }),
            "three renewals must fit",
        ),
        (
            json!({ "worker": { "replicas": -1 } }),
            "should be greater than or equal to 0",
        ),
        (
            json!({ "auth": { "unauthenticated": true } }),
            "either tokenSecretRef or unauthenticated",
        ),
        (
            json!({ "supervisor": { "profile": { "timezone": "Europe/Berlin" } } }),
            "timezone means nothing without cron",
        ),
        (json!({ "service": { "nodePort": 30000 } }), "nodePort means nothing"),
        (json!({ "monitoring": { "intervalSeconds": 10 } }), "without podMonitor"),
        (
            json!({ "autoscaling": { "api": { "maxReplicas": 4 } } }),
            "api.replicas means nothing",
        ),
        (
            json!({ "api": { "resources": { "limits": { "cpu": "a lot" } } } }),
            "in body should match",
        ),
    ] {
        let said = refusal(&stage, &changes)
            .await
            .with_context(|| format!("accepted: {changes}"))?;
        ensure!(said.contains(reason), "{changes}: {said}");
    }
    let long = stage.apply_named(&"n".repeat(64), &spec_with(&json!({}))).await;
    let said = format!("{:#}", long.err().context("a name of 64 characters was accepted")?);
    ensure!(said.contains("at most 63 characters"), "{said}");
    Ok(())
}

#[tokio::test]
async fn the_identity_of_the_database_can_never_be_changed() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("identity").await?;
    stage.apply(&spec_with(&json!({}))).await?;
    let other = json!({ "database": { "identity": "another" } });
    let said = refusal(&stage, &other).await.context("it was accepted")?;
    ensure!(said.contains("another database is another deployment"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_field_that_nobody_knows_is_refused_by_kubectl() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("unknown").await?;
    let manifest =
        powercontext_cluster_tests::stage::resource("pc", &spec_with(&json!({ "wroker": { "replicas": 3 } })));
    let said = stage.kubectl().feed(&["apply", "-f", "-"], &manifest.to_string());
    let said = format!("{:#}", said.err().context("it was accepted")?);
    ensure!(said.contains("wroker"), "{said}");
    Ok(())
}
