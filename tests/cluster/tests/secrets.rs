//! Secrets: waited for, rotated, and never seen.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use powercontext_cluster_tests::stage::{SECRETS, SOON, Stage, spec, spec_with};
use powercontext_cluster_tests::wait::throughout;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_operator::names::Role;
use serde_json::{Value, json};

/// The longest time from a corrected secret to the next step.
const RESUMES: Duration = Duration::from_secs(10);

async fn generations(stage: &Stage) -> anyhow::Result<BTreeMap<&'static str, Option<i64>>> {
    let mut found = BTreeMap::new();
    for role in Role::ALL {
        let generation = stage.deployment(role).await?.and_then(|one| one.metadata.generation);
        found.insert(role.as_str(), generation);
    }
    Ok(found)
}

#[tokio::test]
async fn a_deployment_waits_twenty_seconds_for_its_secrets_and_resumes_within_ten() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("late").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    let told = stage
        .until_condition(ConditionType::Degraded, true, Reason::SecretMissing, SOON)
        .await?;
    ensure!(
        SECRETS.iter().any(|(name, ..)| told.message.contains(name)),
        "{}",
        told.message
    );
    stage.at_rest().await?;
    let audit = stage.audit.from_now();
    throughout(Duration::from_secs(18), async || {
        ensure!(audit.writes()?.is_empty(), "{:#?}", audit.writes()?);
        Ok(())
    })
    .await?;
    stage.make_secrets().await?;
    let came = Timestamp::now();
    stage.until_ready().await?;
    let first = audit.writes()?.into_iter().next().context("a write")?;
    let waited = first.received.duration_since(came);
    ensure!(waited <= RESUMES.try_into()?, "it went on after {waited:?}");
    Ok(())
}

#[tokio::test]
async fn a_secret_without_the_key_or_with_a_useless_value_is_told_and_waited_for() -> anyhow::Result<()> {
    let stage = Stage::new("wrong").await?;
    stage.set_secret("pc-database", "uri", "mysql://u:p@h:1/d").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    let told = stage
        .until_condition(ConditionType::Degraded, true, Reason::SecretKeyMissing, SOON)
        .await?;
    ensure!(
        told.message.contains("pc-database") && told.message.contains("url"),
        "{}",
        told.message
    );
    stage
        .set_secret("pc-database", "url", "http://canary-7c21-useless")
        .await?;
    let told = stage
        .until_condition(ConditionType::Degraded, true, Reason::SecretInvalid, RESUMES)
        .await?;
    ensure!(!told.message.contains("canary"), "{}", told.message);
    stage.make_secrets().await?;
    stage.until_ready().await?;
    Ok(())
}

#[tokio::test]
async fn a_rotated_key_rolls_the_roles_that_use_it_and_no_others() -> anyhow::Result<()> {
    let stage = Stage::new("rotate").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let before = generations(&stage).await?;
    stage.set_secret("pc-model", "key", "canary-7c21-rotated").await?;
    // At rest the secrets are read again every 30 seconds.
    let rolled = powercontext_cluster_tests::wait::until("the Workers roll", Duration::from_secs(45), async || {
        let now = generations(&stage).await?;
        Ok((now["worker"] > before["worker"]).then_some(now))
    });
    stage.explained(rolled.await).await?;
    stage.until_ready().await?;
    let after = generations(&stage).await?;
    ensure!(
        (after["api"], after["scheduler"]) == (before["api"], before["scheduler"]),
        "{before:?} {after:?}"
    );
    ensure!(stage.jobs("migrate").await?.len() == 1, "a key is no target");
    Ok(())
}

#[tokio::test]
async fn no_value_of_a_secret_is_ever_seen_outside_of_it() -> anyhow::Result<()> {
    let stage = Stage::new("canary").await?;
    let operator = stage.setup(false).await?.with("--log-level=trace").start("operator")?;
    stage
        .apply(&spec_with(&json!({ "inference": { "apiAccess": true } })))
        .await?;
    stage.until_ready().await?;
    // Trouble talks most.
    stage.kubelet.only(
        "migrate",
        powercontext_cluster_tests::kubelet::Fate::Exit {
            code: 1,
            line: powercontext_cluster_tests::kubelet::report(6, 6, 1),
        },
    );
    stage
        .apply(&spec_with(&json!({ "image": "registry.example/powercontext:0.2.0" })))
        .await?;
    stage
        .until_condition(ConditionType::Degraded, true, Reason::MigrationRefused, SOON)
        .await?;
    stage.set_secret("pc-auth", "other", "canary-7c21-other").await?;
    stage.apply(&spec()).await?;
    stage
        .until_condition(ConditionType::Degraded, true, Reason::SecretKeyMissing, SOON)
        .await?;
    let kinds = "pcd,deployments,replicasets,pods,jobs,services,serviceaccounts,pdb,networkpolicies,hpa,ingresses,events,events.events.k8s.io,leases,configmaps";
    let seen = stage
        .kubectl()
        .run(&["get", kinds, "-o", "yaml", "--show-managed-fields"])?;
    ensure!(
        seen.contains("kind: Event") && seen.contains("kind: Job"),
        "too little was looked at"
    );
    let log = operator.log();
    ensure!(log.contains("acting"), "too little was looked at");
    for line in log.lines() {
        ensure!(serde_json::from_str::<Value>(line).is_ok(), "no JSON: {line}");
    }
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", operator.pid()?.as_raw_nonzero()))?;
    let page = metrics_page(operator.port()).await?;
    for (place, text) in [
        ("the cluster", &seen),
        ("the log", &log),
        ("the arguments", &arguments),
        ("the metrics", &page),
    ] {
        let line = text
            .lines()
            .find(|line| line.contains("canary-7c21") || line.contains("canary-user"));
        ensure!(line.is_none(), "{place}: {}", line.unwrap_or_default());
        // As secrets are stored.
        let line = text.lines().find(|line| line.contains("Y2FuYXJ5LTdjMjE"));
        ensure!(line.is_none(), "{place}: {}", line.unwrap_or_default());
    }
    Ok(())
}

async fn metrics_page(port: u16) -> anyhow::Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    let mut page = String::new();
    socket.read_to_string(&mut page).await?;
    Ok(page)
}
