//! What the status tells of schema, roles, leader and work, and what it does not take back.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use powercontext_cluster_tests::stage::{NAME, SOON, Stage, spec_with};
use powercontext_cluster_tests::wait::{throughout, until};
use powercontext_crds::conditions::ConditionType;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use powercontext_operator::names::{BUILD, Role};
use serde_json::{Value, json};

/// A deployment in which everything has something to tell.
async fn telling(stage: &Stage) -> anyhow::Result<()> {
    {
        let mut told = stage.roles.told();
        told.fence = 7;
        told.queue = [("queued".to_owned(), 3), ("running".to_owned(), 1)].into();
        told.oldest_seconds = 47;
    }
    stage
        .apply(&spec_with(
            &json!({ "worker": { "replicas": 3 }, "scheduler": { "replicas": 2 } }),
        ))
        .await?;
    stage.until_ready().await?;
    let told = until("leader and queue are told", SOON, async || {
        let status = stage.status().await?;
        Ok((!status.leaders.is_empty() && status.queue.is_some()).then_some(()))
    });
    stage.explained(told.await).await
}

#[tokio::test]
async fn the_status_tells_the_schema_each_role_who_leads_and_the_work_that_waits() -> anyhow::Result<()> {
    let stage = Stage::new("status").await?;
    let _operator = stage.operator().await?;
    telling(&stage).await?;
    let status = serde_json::to_value(stage.status().await?)?;

    let schema = &status["schema"];
    ensure!(
        schema["targetHash"].is_string() && schema["targetHash"] == schema["completedHash"],
        "{schema}"
    );
    let job = stage.jobs("migrate").await?.pop().context("a Job")?.name_any();
    ensure!(schema["jobName"] == job.as_str(), "{schema}");
    ensure!((&schema["revision"], &schema["attempts"]) == (&json!(6), &json!(0)));
    ensure!(schema["imagePayloadVersion"] == 1, "{schema}");
    ensure!(schema["plan"] == json!(["6 distributed_roles (additive)"]), "{schema}");

    for (role, pods) in [(Role::Api, 1), (Role::Scheduler, 2), (Role::Worker, 3)] {
        let told = &status["roles"][role.as_str()];
        let pod = stage.pods(role.as_str()).await?.pop().context("a pod")?;
        let build = pod.annotations().get(BUILD).context("it names its build")?;
        let wanted = json!({ "desired": pods, "replicas": pods, "ready": pods, "updated": pods, "build": build });
        ensure!(*told == wanted, "{role}: {told}");
    }
    let mut schedulers: Vec<_> = stage
        .pods("scheduler")
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    schedulers.sort();
    let leads = json!([{ "lease": "global", "pod": schedulers[0], "fence": 7 }]);
    ensure!(status["leaders"] == leads, "{}", status["leaders"]);
    let queue = json!({ "depth": { "queued": 3, "running": 1 }, "oldestAgeSeconds": 40 });
    ensure!(status["queue"] == queue, "{}", status["queue"]);
    Ok(())
}

/// What is told apart from the numbers of the queue.
async fn verdict(stage: &Stage) -> anyhow::Result<Value> {
    let status = stage.status().await?;
    let ready = stage.condition(ConditionType::Ready).await?;
    Ok(json!([ready, status.leaders, status.roles]))
}

#[tokio::test]
async fn roles_that_miss_an_answer_stay_ready_and_their_leader_leads() -> anyhow::Result<()> {
    let stage = Stage::new("missed").await?;
    let _operator = stage.operator().await?;
    telling(&stage).await?;
    stage.at_rest().await?;
    let before = verdict(&stage).await?;
    let mut names = Vec::new();
    for role in Role::ALL {
        names.extend(stage.pods(role.as_str()).await?.iter().map(ResourceExt::name_any));
    }
    let audit = stage.audit.from_now();
    stage.roles.told().silent = names.into_iter().collect();
    let asked = stage.roles.told().asked.len();
    let wake = json!({ "metadata": { "annotations": { "tests/number": "1" } } });
    let api = stage.api::<PowerContextDeployment>();
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(wake)).await?;
    until("they are asked", SOON, async || {
        Ok((stage.roles.told().asked.len() > asked).then_some(()))
    })
    .await?;
    // The answer is waited for, and what follows from its absence would be written.
    throughout(Duration::from_secs(5), async || {
        let now = verdict(&stage).await?;
        ensure!(now == before, "{now:#}\ninstead of\n{before:#}");
        ensure!(audit.writes()?.is_empty(), "{:#?}", audit.writes()?);
        Ok(())
    })
    .await
}
