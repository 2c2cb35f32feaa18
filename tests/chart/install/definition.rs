//! Whose the definition is, who brings it up to date, and who takes it away.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use powercontext_chart_tests::{chart, repository};
use powercontext_cluster_tests::stage::spec;
use powercontext_cluster_tests::wait::until;
use serde_json::Value;

use crate::site::{DEFINITION, SOON, Site, alone};

/// The name of the release that owns the definition.
fn owner(site: &Site) -> anyhow::Result<Option<String>> {
    let definition = site.definition()?.context("there is a definition")?;
    let owner = &definition["metadata"]["annotations"]["meta.helm.sh/release-name"];
    Ok(owner.as_str().map(str::to_owned))
}

fn remove_definition(site: &Site) -> anyhow::Result<()> {
    site.kubectl()
        .run(&["delete", "crd", DEFINITION, "--ignore-not-found", "--wait"])?;
    Ok(())
}

/// `kubectl apply -f crds/`, and waits until the API server serves it.
fn apply_crds(site: &Site) -> anyhow::Result<()> {
    let folder = repository().join("crds").display().to_string();
    site.kubectl().run(&["apply", "--filename", &folder])?;
    site.kubectl().established(DEFINITION)
}

/// Whether a deployment can be made.
fn is_served(site: &Site) -> anyhow::Result<()> {
    let resource = powercontext_cluster_tests::stage::resource("pc", &spec()).to_string();
    site.kubectl()
        .feed(&["apply", "--filename", "-", "--dry-run=server"], &resource)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chart_and_definition_can_be_installed_in_either_order() -> anyhow::Result<()> {
    let _alone = alone().await;
    let site = Site::new("order").await?;

    remove_definition(&site)?;
    let notes = site.install_ours(&[])?;
    ensure!(
        notes.contains("belongs to this release") && notes.contains("`helm uninstall` keeps it"),
        "{notes}"
    );
    ensure!(owner(&site)?.as_deref() == Some(site.name.as_str()));
    apply_crds(&site)?;
    is_served(&site)?;
    // What was applied beside it is no obstacle to an upgrade, and it is still the release's.
    let notes = site.install_ours(&["--set", "replicas=1"])?;
    ensure!(notes.contains("belongs to this release"), "{notes}");
    site.helm(&["uninstall", &site.name, "--wait"])?;
    // Kept, and taken up again by a release of the same name.
    let notes = site.install_ours(&[])?;
    ensure!(notes.contains("belongs to this release"), "{notes}");
    site.helm(&["uninstall", &site.name, "--wait"])?;

    remove_definition(&site)?;
    apply_crds(&site)?;
    let before = site.definition()?;
    for arguments in [&[][..], &["--set", "replicas=1"]] {
        let notes = site.install_ours(arguments)?;
        ensure!(
            notes.contains("belongs to no release") && notes.contains("kubectl apply -f crds/"),
            "{notes}"
        );
    }
    is_served(&site)?;
    site.helm(&["uninstall", &site.name, "--wait"])?;
    ensure!(site.definition()? == before, "somebody else's definition was changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_definition_of_another_release_is_left_alone_and_can_be_handed_over() -> anyhow::Result<()> {
    let _alone = alone().await;
    let (first, second) = (Site::new("first").await?, Site::new("second").await?);
    remove_definition(&first)?;
    first.install_ours(&[])?;
    let notes = second.install_ours(&[])?;
    let told = format!("belongs to another release, {0}/{0}", first.name);
    ensure!(notes.contains(&told), "{notes}");
    first.helm(&["uninstall", &first.name, "--wait"])?;
    // As the notes say.
    for line in ["label crd", "annotate crd"] {
        let command = notes
            .split("kubectl ")
            .find(|rest| rest.starts_with(line))
            .context("a command")?;
        let command = command.replace("\\\n", " ");
        let words: Vec<&str> = command.lines().next().unwrap_or_default().split_whitespace().collect();
        second.kubectl().run(&words)?;
    }
    let notes = second.install_ours(&[])?;
    ensure!(notes.contains("belongs to this release"), "{notes}");
    ensure!(owner(&second)?.as_deref() == Some(second.name.as_str()));
    second.helm(&["uninstall", &second.name, "--wait"])?;
    remove_definition(&second)?;
    apply_crds(&second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_there_first_goes_on_once_the_definition_comes() -> anyhow::Result<()> {
    let _alone = alone().await;
    let site = Site::new("first").await?;
    remove_definition(&site)?;
    let notes = site.install_ours(&["--set", "crds.install=false"])?;
    ensure!(
        notes.contains("is not brought along") && site.definition()?.is_none(),
        "{notes}"
    );
    let operator = site.operator("one").await?;
    until("the operator leads", SOON, async || {
        let lease = site.get("lease", &site.fullname())?.unwrap_or_default();
        Ok(lease["spec"]["holderIdentity"].as_str().map(|_| ()))
    })
    .await?;
    apply_crds(&site)?;
    site.check(operator.port()).await?;
    site.make_secrets().await?;
    site.apply(&spec())?;
    site.until("Ready", "True", "Complete").await?;
    site.kubectl().run(&["delete", "pcd", "pc", "--wait"])?;
    Ok(())
}

/// The chart as it was before `spec.paused` was added to the definition.
fn older(folder: &Path) -> anyhow::Result<String> {
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(folder)
        .status()?;
    ensure!(copied.success());
    let folder = folder.join("powercontext");
    let file = folder.join("templates/crd.yaml");
    let text = fs::read_to_string(&file)?;
    let mut lines = Vec::new();
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if inside.is_some_and(|outer| indent <= outer) {
            inside = None;
        }
        if line.trim() == "paused:" {
            inside = Some(indent);
        }
        if inside.is_none() {
            lines.push(line);
        }
    }
    ensure!(lines.len() < text.lines().count(), "there is no such field");
    fs::write(&file, lines.join("\n") + "\n")?;
    let file = folder.join("Chart.yaml");
    let text = fs::read_to_string(&file)?.replace("\nversion: 0.1.0\n", "\nversion: 0.0.9\n");
    fs::write(&file, text)?;
    Ok(folder.display().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_brings_an_older_definition_up_to_date() -> anyhow::Result<()> {
    let _alone = alone().await;
    let site = Site::new("older").await?;
    remove_definition(&site)?;
    site.install(&older(site.folder.path())?, &[])?;
    let mut paused = spec();
    paused["paused"] = true.into();
    let refused = site
        .apply(&paused)
        .err()
        .context("the older definition knows the new field")?;
    ensure!(refused.to_string().contains("paused"), "{refused:#}");
    let mut before = spec();
    before["api"]["replicas"] = 3.into();
    site.apply(&before)?;

    site.install_ours(&[])?;
    site.apply(&paused)?;
    let stored = site.get("pcd", "pc")?.context("it is there")?;
    ensure!(stored["spec"]["paused"] == true);
    site.helm(&["uninstall", &site.name, "--wait"])?;
    site.kubectl().run(&["delete", "pcd", "pc"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstalling_keeps_every_deployment_unless_it_is_told_not_to() -> anyhow::Result<()> {
    let _alone = alone().await;
    let site = Site::new("keep").await?;
    remove_definition(&site)?;
    site.install_ours(&[])?;
    site.apply(&spec())?;
    let uid = |found: Option<Value>| found.map(|found| found["metadata"]["uid"].clone());
    let before = uid(site.get("pcd", "pc")?);
    ensure!(before.is_some());
    site.helm(&["uninstall", &site.name, "--wait"])?;
    ensure!(uid(site.get("pcd", "pc")?) == before);
    // Nothing else is left behind.
    let left = site.kubectl().run(&[
        "get",
        "deployments,services,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,configmaps",
        "--selector",
        &format!("app.kubernetes.io/instance={}", site.name),
        "--output",
        "name",
    ])?;
    ensure!(left.is_empty(), "{left}");

    let notes = site.install_ours(&["--set", "crds.keep=false"])?;
    ensure!(notes.contains("`helm uninstall` DELETES it"), "{notes}");
    site.helm(&["uninstall", &site.name, "--wait"])?;
    ensure!(site.definition()?.is_none());
    apply_crds(&site)
}
