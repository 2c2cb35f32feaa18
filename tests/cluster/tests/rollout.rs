//! From an empty namespace to a deployment that is ready, and what follows a change.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Service};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use powercontext_cluster_tests::kubelet::Fate;
use powercontext_cluster_tests::roles::{component, role};
use powercontext_cluster_tests::stage::{NAME, SOON, Stage, spec, spec_with};
use powercontext_cluster_tests::wait::{throughout, until};
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::PowerContextDeployment;
use powercontext_operator::names::Role;
use powercontext_operator::rt;
use serde_json::{Value, json};

const NEXT: &str = "registry.example/powercontext:0.2.0";

fn next() -> Value {
    spec_with(&json!({ "image": NEXT }))
}

#[tokio::test]
async fn a_deployment_becomes_ready_and_then_nothing_is_written() -> anyhow::Result<()> {
    let stage = Stage::new("ready").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    stage.at_rest().await?;
    let audit = stage.audit.from_now();
    throughout(Duration::from_secs(10), async || {
        ensure!(audit.writes()?.is_empty(), "{:#?}", audit.writes()?);
        Ok(())
    })
    .await?;
    let status = stage.status().await?;
    ensure!(
        status.schema.revision == Some(6) && status.roles.worker.ready == 1,
        "{status:?}"
    );
    Ok(())
}

#[tokio::test]
async fn ready_is_never_told_of_an_image_that_is_not_rolled_out() -> anyhow::Result<()> {
    let stage = Stage::new("honest").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let generation = stage.apply(&next()).await?.metadata.generation;
    let arrived = until("ready again", SOON, async || {
        // In this order: what was told first may only be about what is there by now.
        let told = stage.condition(ConditionType::Ready).await?.context("a condition")?;
        if told.status != "True" || told.observed_generation != generation {
            return Ok(None);
        }
        for role in [Role::Worker, Role::Scheduler, Role::Api] {
            for pod in stage.pods(role.as_str()).await? {
                let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
                ensure!(
                    image.as_deref() == Some(NEXT),
                    "ready was told and {} runs {image:?}",
                    pod.name_any()
                );
            }
        }
        Ok(Some(()))
    });
    stage.explained(arrived.await).await
}

#[tokio::test]
async fn workers_come_before_schedulers_before_apis_and_each_waits_for_the_members_of_the_one_before()
-> anyhow::Result<()> {
    let stage = Stage::new("order").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let audit = stage.audit.from_now();
    stage.roles.told().no_members = true;
    stage.apply(&next()).await?;
    stage
        .until_condition(ConditionType::WorkersReady, false, Reason::WaitingForMembers, SOON)
        .await?;
    let image = async |role: Role| -> anyhow::Result<Option<String>> {
        let template = stage
            .deployment(role)
            .await?
            .and_then(|one| one.spec)
            .map(|spec| spec.template);
        Ok(template
            .and_then(|one| one.spec)
            .and_then(|spec| spec.containers[0].image.clone()))
    };
    ensure!(image(Role::Worker).await?.as_deref() == Some(NEXT));
    throughout(Duration::from_secs(6), async || {
        for role in [Role::Scheduler, Role::Api] {
            ensure!(image(role).await?.as_deref() != Some(NEXT), "{role} did not wait");
        }
        Ok(())
    })
    .await?;
    stage.roles.told().no_members = false;
    stage.until_ready().await?;
    let order: Vec<_> = audit
        .writes()?
        .into_iter()
        .filter(|one| one.resource == "deployments")
        .map(|one| one.name)
        .collect();
    let first = |name: &str| order.iter().position(|one| one == name);
    ensure!(
        first("pc-worker") < first("pc-scheduler") && first("pc-scheduler") < first("pc-api"),
        "{order:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_roll_back_goes_the_other_way_and_waits_for_work_of_the_newer_version() -> anyhow::Result<()> {
    let stage = Stage::new("back").await?;
    let _operator = stage.operator().await?;
    stage.apply(&next()).await?;
    stage.until_ready().await?;
    // The older image works on revision 5 and can still read revision 6.
    stage.kubelet.only(
        "migrate",
        Fate::Exit {
            code: 0,
            line: json!({ "current": 6, "target": 5, "steps": [], "code": 0, "payload_version": 1 }).to_string(),
        },
    );
    stage.roles.told().payloads = [(1, 5), (2, 3)].into();
    let audit = stage.audit.from_now();
    stage.apply(&spec()).await?;
    stage
        .until_condition(ConditionType::WorkersReady, false, Reason::NewerPayloadsQueued, SOON)
        .await?;
    until("the others are back", SOON, async || {
        let order: Vec<_> = audit
            .writes()?
            .into_iter()
            .filter(|one| one.resource == "deployments")
            .map(|one| one.name)
            .collect();
        ensure!(!order.contains(&"pc-worker".to_owned()), "{order:?}");
        Ok(
            (order.first().map(String::as_str) == Some("pc-api") && order.contains(&"pc-scheduler".to_owned()))
                .then_some(()),
        )
    })
    .await?;
    stage.roles.told().payloads = [(1, 5), (2, 0)].into();
    stage.until_ready().await?;
    Ok(())
}

/// What a deployment has become, without what differs from one namespace to the next.
async fn end_state(stage: &Stage) -> anyhow::Result<Value> {
    let mut deployments = Vec::new();
    for one in stage.ours::<Deployment>().await? {
        let spec = one.spec.clone().unwrap_or_default();
        let image = spec.template.spec.and_then(|spec| spec.containers[0].image.clone());
        deployments.push(json!([one.name_any(), spec.replicas, image]));
    }
    let jobs: Vec<_> = stage.ours::<Job>().await?.iter().map(ResourceExt::name_any).collect();
    let services: Vec<_> = stage
        .ours::<Service>()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    let pods: Vec<_> = stage
        .ours::<Pod>()
        .await?
        .iter()
        .map(|pod| component(pod).to_owned())
        .collect();
    let status = stage.status().await?;
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|one| json!([one.type_, one.status, one.reason]))
        .collect();
    Ok(json!({
        "deployments": deployments, "jobs": jobs, "services": services, "pods": pods, "conditions": conditions,
        "schema": [status.schema.completed_hash, status.schema.revision, status.schema.attempts],
        "mode": status.mode,
    }))
}

/// What is rolled out: from nothing, then another image in another mode with a Worker more.
async fn story(stage: &Stage, mut arrive: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<Value> {
    stage.apply(&spec()).await?;
    arrive().await?;
    stage
        .apply(&spec_with(&json!({
            "image": NEXT,
            "worker": { "replicas": 2 },
            "supervisor": { "mode": "dedicated" },
            "networkPolicy": { "enabled": true },
        })))
        .await?;
    arrive().await?;
    end_state(stage).await
}

#[tokio::test]
async fn an_operator_that_is_killed_after_each_write_ends_in_the_same_state() -> anyhow::Result<()> {
    let undisturbed = Stage::new("undisturbed").await?;
    let _operator = undisturbed.operator().await?;
    let wanted = story(&undisturbed, async || {
        undisturbed.until_ready().await?;
        undisturbed.at_rest().await
    })
    .await?;

    let stage = Stage::new("killed").await?;
    let setup = stage.setup(false).await?;
    let mut lives = 0;
    let found = story(&stage, async || {
        let generation = stage.get().await?.metadata.generation;
        let mut operator = setup.start("operator")?;
        let mut audit = stage.audit.from_now();
        let mut quiet_since = rt::now();
        loop {
            rt::sleep(Duration::from_millis(5)).await;
            if !audit.writes()?.is_empty() {
                operator.kill()?;
                lives += 1;
                ensure!(lives < 200, "it never comes to rest");
                operator = setup.start("operator")?;
                audit = stage.audit.from_now();
                quiet_since = rt::now();
            }
            let ready = stage.condition(ConditionType::Ready).await?;
            let arrived = ready.is_some_and(|one| one.status == "True" && one.observed_generation == generation);
            if arrived && quiet_since.elapsed() > Duration::from_secs(4) {
                return Ok(());
            }
            ensure!(
                quiet_since.elapsed() < SOON,
                "it stands still: {:#?}",
                stage.status().await?
            );
        }
    })
    .await;
    let found = stage.explained(found).await?;
    ensure!(found == wanted, "{found:#}\ninstead of\n{wanted:#}");
    ensure!(lives > 10, "it was killed {lives} times only");
    Ok(())
}

#[tokio::test]
async fn a_role_that_never_answers_delays_its_own_deployment_alone() -> anyhow::Result<()> {
    let stage = Stage::new("silent").await?;
    let roles = stage.roles.clone();
    // Every pod of the other deployment takes requests and never answers.
    stage.kubelet.script(move |pod| {
        if pod.name_any().starts_with("black-hole") {
            roles.told().silent.insert(pod.name_any());
        }
        if role(pod).is_some() {
            Fate::Running { ready: true }
        } else {
            Fate::migrated()
        }
    });
    let _operator = stage.operator().await?;
    let alone = time_to_ready(&stage, "alone").await?;
    let black_hole = spec_with(&json!({ "worker": { "replicas": 5 } }));
    stage.apply_named("black-hole", &black_hole).await?;
    until("it is asked", SOON, async || {
        let told = stage.roles.told();
        Ok(told.asked.iter().any(|pod| pod.starts_with("black-hole")).then_some(()))
    })
    .await?;
    let beside = time_to_ready(&stage, NAME).await?;
    ensure!(
        beside < alone * 2 + Duration::from_secs(4),
        "{alone:?} alone, {beside:?} beside it"
    );
    Ok(())
}

/// How long a new deployment of that name takes.
async fn time_to_ready(stage: &Stage, name: &str) -> anyhow::Result<Duration> {
    let began = rt::now();
    stage.apply_named(name, &spec()).await?;
    until("it is ready", SOON, async || {
        let one: PowerContextDeployment = stage.api().get(name).await?;
        let conditions = one.status.unwrap_or_default().conditions;
        let ready = conditions
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True");
        Ok(ready.then_some(()))
    })
    .await?;
    Ok(began.elapsed())
}

#[tokio::test]
async fn a_quota_that_leaves_no_room_is_told_and_its_removal_is_enough() -> anyhow::Result<()> {
    let stage = Stage::new("quota").await?;
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": { "name": "quota" }, "spec": { "hard": { "count/replicasets.apps": "100", "pods": "1" } },
    }))?;
    let _operator = stage.operator().await?;
    stage.api().create(&PostParams::default(), &quota).await?;
    stage.apply(&spec_with(&json!({ "worker": { "replicas": 3 } }))).await?;
    let told = stage
        .until_condition(ConditionType::Degraded, true, Reason::PodNotCreated, SOON)
        .await?;
    ensure!(told.message.contains("worker"), "{}", told.message);
    stage
        .api::<ResourceQuota>()
        .delete("quota", &kube::api::DeleteParams::default())
        .await?;
    let ready = stage.until_condition(ConditionType::Ready, true, Reason::Complete, Duration::from_mins(1));
    ready.await?;
    Ok(())
}

#[tokio::test]
async fn what_others_wrote_stays_and_what_the_spec_drops_goes() -> anyhow::Result<()> {
    let stage = Stage::new("owners").await?;
    let _operator = stage.operator().await?;
    let env = json!({ "worker": { "pod": { "extraEnv": [{ "name": "TZ", "value": "UTC" }], "annotations": { "example.org/a": "b" } } } });
    stage.apply(&spec_with(&env)).await?;
    stage.until_ready().await?;
    stage
        .kubectl()
        .run(&["annotate", "deployment/pc-worker", "example.org/mine=1"])?;
    stage
        .kubectl()
        .run(&["label", "service/pc-api", "example.org/mine=1"])?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let worker = stage.deployment(Role::Worker).await?.context("it is there")?;
    ensure!(worker.annotations().contains_key("example.org/mine"));
    let template = worker.spec.context("a spec")?.template;
    let env = template.spec.context("a spec")?.containers[0]
        .env
        .clone()
        .unwrap_or_default();
    ensure!(
        !env.iter().any(|one| one.name == "TZ"),
        "a variable that nobody wants any more"
    );
    let annotations = template.metadata.and_then(|meta| meta.annotations).unwrap_or_default();
    ensure!(!annotations.contains_key("example.org/a"));
    let service: Service = stage.api().get("pc-api").await?;
    ensure!(service.labels().contains_key("example.org/mine"));
    // What somebody changes of ours comes back.
    let other = json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 1 } } } });
    stage
        .api::<Deployment>()
        .patch("pc-worker", &PatchParams::default(), &Patch::Merge(other))
        .await?;
    until("it is as it should be", SOON, async || {
        let spec = stage.deployment(Role::Worker).await?.and_then(|one| one.spec);
        let seconds = spec
            .and_then(|spec| spec.template.spec)
            .and_then(|spec| spec.termination_grace_period_seconds);
        Ok((seconds.is_some_and(|seconds| seconds > 100)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_paused_deployment_is_left_alone_and_says_so() -> anyhow::Result<()> {
    let stage = Stage::new("paused").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    stage
        .apply(&spec_with(&json!({ "image": NEXT, "paused": true })))
        .await?;
    stage
        .until_condition(ConditionType::Paused, true, Reason::Paused, SOON)
        .await?;
    let ready = stage.condition(ConditionType::Ready).await?.context("it is told")?;
    ensure!(ready.status == "False", "{ready:?}");
    stage.at_rest().await?;
    let audit = stage.audit.from_now();
    stage.kubectl().run(&["delete", "service/pc-api"])?;
    throughout(Duration::from_secs(5), async || {
        let writes = audit.writes()?;
        let others: Vec<_> = writes
            .iter()
            .filter(|one| !one.resource.starts_with("powercontextdeployments"))
            .collect();
        ensure!(others.is_empty(), "{others:#?}");
        Ok(())
    })
    .await?;
    stage.apply(&next()).await?;
    stage.until_ready().await?;
    ensure!(stage.api::<Service>().get_opt("pc-api").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn events_tell_each_change_of_a_condition_once() -> anyhow::Result<()> {
    let stage = Stage::new("events").await?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let text = stage.kubectl().run(&["get", "events.events.k8s.io", "-o", "json"])?;
    let events: Value = serde_json::from_str(&text)?;
    let events = events["items"].as_array().context("a list")?;
    let ours = events
        .iter()
        .filter(|event| event["regarding"]["kind"] == "PowerContextDeployment");
    let mut told: Vec<_> = ours
        .map(|event| format!("{} {} {}", event["action"], event["reason"], event["note"]))
        .collect();
    let count = told.len();
    told.sort();
    told.dedup();
    ensure!(told.len() == count && count >= 5, "{told:#?}");
    let api = stage.api::<PowerContextDeployment>();
    ensure!(
        api.get(NAME).await?.metadata.finalizers.unwrap_or_default().is_empty(),
        "a finalizer"
    );
    Ok(())
}
