//! `kubectl powercontext` against a real API server and the real operator. What needs a kubelet, the text of `logs` and the
//! connection of `operations`, is shown on a cluster with nodes (`make e2e`).

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use kube::api::PostParams;
use powercontext_cluster_tests::kubelet::{Fate, report};
use powercontext_cluster_tests::plugin::{Plugin, Said};
use powercontext_cluster_tests::stage::{NAME, SOON, Stage, resource, spec, spec_with};
use powercontext_cluster_tests::wait::until;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_operator::names::Role;
use serde_json::{Value, json};

const NEXT: &str = "registry.example/powercontext:0.2.0";

fn refused(said: &Said, status: i32, text: &str) -> anyhow::Result<()> {
    ensure!(said.status == status, "{said:#?}");
    ensure!(
        said.error.starts_with("error: ") && said.error.contains(text),
        "{said:#?}"
    );
    Ok(())
}

#[tokio::test]
async fn status_shows_a_deployment_as_a_tree_and_for_programs_with_an_exit_that_tells() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-status").await?;
    let plugin = Plugin::new(&stage)?;
    stage.roles.told().fence = 7;
    stage.apply(&spec()).await?;
    // Nobody looks after it.
    let said = plugin.run(&["status"])?;
    ensure!(
        said.status == 10 && said.out.contains("has seen nothing yet"),
        "{said:#?}"
    );
    let _operator = stage.operator().await?;
    stage.until_ready().await?;
    let tree = until("leader and events are told", SOON, async || {
        let tree = plugin.run(&["status", NAME])?.out;
        Ok((tree.contains("global: pc-scheduler-") && tree.contains("Ready is true")).then_some(tree))
    });
    let tree = stage.explained(tree.await).await?;
    for part in [
        "pc in namespace plugin-status-",
        "✓ Ready",
        "revision 6, migrated",
        "worker      1 of 1 ready  build ",
        "(fence 7)",
    ] {
        ensure!(tree.contains(part), "no {part}:\n{tree}");
    }
    ensure!(!tree.contains('\u{1b}'), "colours, and it is no terminal:\n{tree}");
    plugin.done(&["status"])?;
    let told = plugin.json(&["status"])?;
    ensure!(told["status"]["conditions"][0]["type"] == "Ready", "{told}");
    let yaml = plugin.done(&["status", "-o", "yaml"])?;
    ensure!(yaml.contains("revision: 6"), "{yaml}");
    stage.kubelet.only("worker", Fate::Image("ErrImagePull"));
    stage.apply(&spec_with(&json!({ "image": NEXT }))).await?;
    stage
        .until_condition(ConditionType::Degraded, true, Reason::ImagePullFailed, SOON)
        .await?;
    let said = plugin.run(&["status"])?;
    ensure!(said.status == 11 && said.out.contains("✗ Degraded"), "{said:#?}");
    Ok(())
}

#[tokio::test]
async fn a_plan_changes_nothing_and_is_what_the_operator_then_does() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-plan").await?;
    let plugin = Plugin::new(&stage)?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    stage.at_rest().await?;
    let nothing = plugin.done(&["plan"])?;
    ensure!(nothing.contains("Nothing to do"), "{nothing}");

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("next.json");
    let next = spec_with(&json!({ "image": NEXT, "worker": { "replicas": 2 } }));
    std::fs::write(&file, resource(NAME, &next).to_string())?;
    let file = file.display().to_string();
    let version = stage.get().await?.resource_version();
    let told = plugin.json(&["plan", "--filename", &file])?;
    ensure!(stage.get().await?.resource_version() == version, "it was stored");
    ensure!(told["end"]["kind"] == "reached", "{told:#}");
    let steps: Vec<String> = told["steps"]
        .as_array()
        .context("steps")?
        .iter()
        .flat_map(|step| step["does"].as_array().into_iter().flatten())
        .filter_map(|does| does.as_str().map(str::to_owned))
        .collect();
    let said = plugin.done(&["plan", "-f", &file])?;
    ensure!(
        said.contains("which is not stored") && said.contains("0.1.0 → registry.example/powercontext:0.2.0"),
        "{said}"
    );

    let audit = stage.audit.from_now();
    stage.apply(&next).await?;
    stage.until_ready().await?;
    stage.at_rest().await?;
    // Of each object the first write that the plan foresaw, in the order in which the operator asked for it.
    let mut done: Vec<String> = Vec::new();
    for write in audit.writes()? {
        let is_foreseen = steps.iter().any(|step| step.contains(&format!(" {}:", write.name)));
        if is_foreseen && !done.contains(&write.name) && ["jobs", "deployments"].contains(&write.resource.as_str()) {
            done.push(write.name);
        }
    }
    let foreseen: Vec<&str> = steps
        .iter()
        .filter(|step| step.contains(" Deployment "))
        .filter_map(|step| step.split(' ').nth(2))
        .map(|name| name.trim_end_matches(':'))
        .collect();
    let rolled: Vec<&str> = done
        .iter()
        .map(String::as_str)
        .filter(|name| !name.contains("migrate"))
        .collect();
    ensure!(
        foreseen == rolled && foreseen.len() == 4,
        "{foreseen:?} and {rolled:?}\n{said}"
    );
    Ok(())
}

#[tokio::test]
async fn a_plan_from_a_file_tells_what_admission_or_the_operator_would_refuse() -> anyhow::Result<()> {
    let stage = Stage::without_secrets("plugin-file").await?;
    let plugin = Plugin::new(&stage)?;
    let folder = tempfile::tempdir()?;
    let plan = |manifest: &Value| -> anyhow::Result<Said> {
        let file = folder.path().join("new.json");
        std::fs::write(&file, manifest.to_string())?;
        plugin.run(&["plan", "-f", &file.display().to_string()])
    };
    let unfit = spec_with(&json!({ "worker": { "heartbeatSeconds": 40 } }));
    refused(&plan(&resource("new", &unfit))?, 1, "three heartbeats must fit")?;
    let unknown = spec_with(&json!({ "wroker": {} }));
    refused(&plan(&resource("new", &unknown))?, 1, "unknown field \"spec.wroker\"")?;
    let said = plan(&resource("new", &spec()))?;
    ensure!(said.status == 11 && said.out.contains("SecretMissing"), "{said:#?}");
    stage.make_secrets().await?;
    let said = plan(&resource("new", &spec()))?;
    ensure!(
        said.status == 0 && said.out.contains("make Deployment new-worker"),
        "{said:#?}"
    );
    refused(&plugin.run(&["status", "new"])?, 3, "no PowerContextDeployment new")?;
    refused(&plugin.run(&["plan", "-f", "/nowhere"])?, 1, "/nowhere")
}

#[tokio::test]
async fn approve_lets_the_migration_begin_whose_plan_was_read_and_no_other() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-approve").await?;
    let plugin = Plugin::new(&stage)?;
    let _operator = stage.operator().await?;
    stage
        .apply(&spec_with(&json!({ "migration": { "policy": "Supervised" } })))
        .await?;
    stage
        .until_condition(ConditionType::Migrated, false, Reason::ApprovalRequired, SOON)
        .await?;
    until("a plan", SOON, async || {
        Ok((!stage.status().await?.schema.plan.is_empty()).then_some(()))
    })
    .await?;
    let said = plugin.run(&["status"])?;
    ensure!(
        said.status == 11 && said.out.contains("step 6 distributed_roles (additive)"),
        "{said:#?}"
    );
    refused(
        &plugin.run(&["approve", "--target", "other"])?,
        1,
        "not the one that was read",
    )?;
    let said = plugin.done(&["approve", "--wait", "60"])?;
    ensure!(said.contains("6 distributed_roles (additive)"), "{said}");
    stage.until_ready().await?;
    let said = plugin.done(&["approve"])?;
    ensure!(said.contains("no migration of pc waits"), "{said}");
    Ok(())
}

#[tokio::test]
async fn retry_migration_revives_one_that_was_given_up() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-retry").await?;
    let plugin = Plugin::new(&stage)?;
    let line = report(5, 6, 1);
    stage.kubelet.only("migrate", Fate::Exit { code: 1, line });
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage
        .until_condition(ConditionType::Degraded, true, Reason::MigrationRefused, SOON)
        .await?;
    let said = plugin.run(&["plan"])?;
    ensure!(
        said.status == 11 && said.out.contains("It goes no further: MigrationRefused"),
        "{said:#?}"
    );
    stage.kubelet.well();
    let said = plugin.done(&["retry-migration", "--wait", "60"])?;
    ensure!(said.contains("ended as refused"), "{said}");
    stage.until_ready().await?;
    ensure!(
        plugin
            .done(&["retry-migration"])?
            .contains("no migration of pc has failed")
    );
    Ok(())
}

#[tokio::test]
async fn pause_and_resume_are_followed_or_it_is_told_that_no_operator_did() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-pause").await?;
    let plugin = Plugin::new(&stage)?;
    let mut operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    plugin.done(&["pause", "--wait", "60"])?;
    let paused = stage.condition(ConditionType::Paused).await?.context("a condition")?;
    ensure!(paused.status == "True", "{paused:?}");
    ensure!(plugin.done(&["pause"])?.contains("paused already"));
    let said = plugin.run(&["status"])?;
    ensure!(said.status == 10 && said.out.contains(": paused"), "{said:#?}");
    plugin.done(&["resume", "--wait", "60"])?;
    stage.until_ready().await?;
    operator.kill()?;
    // The chart's operator is not in this cluster, or it looks after other namespaces.
    let said = plugin.run(&["pause", "--wait", "2"])?;
    refused(&said, 1, "it is written, but nothing followed within 2 s")?;
    ensure!(stage.get().await?.spec.paused);
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_and_what_is_forbidden_is_told_by_name() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-refused").await?;
    let plugin = Plugin::new(&stage)?;
    refused(
        &plugin.run(&["status"])?,
        3,
        "there is no PowerContextDeployment in namespace",
    )?;
    let names = ["one", "two"];
    for name in names {
        stage.apply_named(name, &spec()).await?;
    }
    refused(&plugin.run(&["status"])?, 3, "name one of them: one, two")?;
    refused(&plugin.run(&["status", "three"])?, 3, "; there is one, two")?;
    refused(&plugin.run(&["logs", "worker", "one"])?, 3, "one in namespace")?;
    let said = plugin.run(&["operations", "list", "--deployment", "one"])?;
    refused(&said, 3, "has no API pod that is ready")?;
    let said = plugin.run(&["operations", "retry"])?;
    ensure!(
        said.status == 2 && said.error.contains("Usage: kubectl powercontext"),
        "{said:#?}"
    );

    // Somebody who may read deployments and do nothing else.
    let account = json!({ "metadata": { "name": "reader" } });
    stage
        .api()
        .create(
            &PostParams::default(),
            &serde_json::from_value::<k8s_openapi::api::core::v1::ServiceAccount>(account)?,
        )
        .await?;
    let kubectl = stage.kubectl();
    kubectl.run(&[
        "create",
        "role",
        "reader",
        "--verb=get,list",
        "--resource=powercontextdeployments.powercontext.io",
    ])?;
    let subject = format!("--serviceaccount={}:reader", stage.namespace);
    kubectl.run(&["create", "rolebinding", "reader", "--role=reader", &subject])?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = stage
        .plane
        .kubeconfig_of(&stage.client, &stage.namespace, "reader", folder.path())
        .await?;
    let reader = Plugin::with(&stage, &kubeconfig)?;
    let said = reader.run(&["status", "one"])?;
    ensure!(
        said.status == 10 && said.out.contains("you may not list events"),
        "{said:#?}"
    );
    for (arguments, right) in [
        (vec!["plan", "one"], "you may not get secrets in namespace"),
        (vec!["pause", "one"], "you may not patch powercontextdeployments"),
        (vec!["logs", "worker", "one"], "you may not list pods"),
        (vec!["operations", "list", "-d", "one"], "you may not get secrets"),
    ] {
        refused(&reader.run(&arguments)?, 4, right)?;
    }
    let stranger = Plugin::with(&stage, &kubeconfig)?.within("kube-system");
    refused(
        &stranger.run(&["status"])?,
        4,
        "you may not list powercontextdeployments in namespace kube-system",
    )
}

#[tokio::test]
async fn the_log_of_a_pod_is_asked_for_as_the_person_and_a_missing_one_is_told() -> anyhow::Result<()> {
    let stage = Stage::new("plugin-logs").await?;
    let plugin = Plugin::new(&stage)?;
    let _operator = stage.operator().await?;
    stage.apply(&spec()).await?;
    stage.until_ready().await?;
    let pod = stage
        .pods(Role::Worker.as_str())
        .await?
        .pop()
        .context("a pod")?
        .name_any();
    // No kubelet is behind the node of these tests, and the API server says so.
    let said = plugin.run(&["logs", "worker"])?;
    ensure!(
        said.status == 1 && said.error.contains("get pods/log"),
        "{pod}: {said:#?}"
    );
    Ok(())
}
