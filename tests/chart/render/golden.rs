//! What each value set renders, as files that a person has read. `UPDATE=1` writes them again.

use anyhow::ensure;
use powercontext_chart_tests::{
    KUBERNETES, KUBERNETES_OLDEST, ValueSet, chart, helm, objects, of_kind, printed, read, repository, template,
};

/// The definition is compared with its source elsewhere; its thousands of lines would hide everything else.
fn without_definition(text: &str) -> String {
    let documents = text.split("\n---\n").map(|document| {
        if document.contains("\nkind: CustomResourceDefinition\n") {
            let head = document.split("\nspec:\n").next().unwrap_or_default();
            format!("{head}\nspec: as in crds/powercontextdeployments.yaml")
        } else {
            document.to_owned()
        }
    });
    let text = documents.collect::<Vec<_>>().join("\n---\n");
    text.trim_end().to_owned() + "\n"
}

#[test]
fn every_value_set_renders_as_its_golden_file() -> anyhow::Result<()> {
    let update = std::env::vars().any(|(name, value)| name == "UPDATE" && value == "1");
    let mut differ = Vec::new();
    for set in ValueSet::all()? {
        let rendered = without_definition(&set.render(KUBERNETES)?);
        let golden = format!("tests/golden/chart/{}.yaml", set.name);
        if update {
            std::fs::write(repository().join(&golden), &rendered)?;
        } else if read(&golden).ok().as_deref() != Some(&rendered) {
            differ.push(golden);
        }
    }
    ensure!(
        differ.is_empty(),
        "{differ:?} differ from what is rendered; UPDATE=1 writes them again"
    );
    Ok(())
}

#[test]
fn the_oldest_kubernetes_gets_the_same_manifests() -> anyhow::Result<()> {
    for set in ValueSet::all()? {
        ensure!(
            set.render(KUBERNETES)? == set.render(KUBERNETES_OLDEST)?,
            "{}",
            set.name
        );
    }
    ensure!(
        template("1.29.9", &[]).is_err_and(|error| error.to_string().contains("incompatible with Kubernetes v1.29.9"))
    );
    Ok(())
}

#[test]
fn the_definition_is_the_one_in_crds_and_is_kept_unless_somebody_says_otherwise() -> anyhow::Result<()> {
    let source = objects(&read("crds/powercontextdeployments.yaml")?)?;
    let rendered = objects(&template(KUBERNETES, &[])?)?;
    let [definition] = of_kind(&rendered, "CustomResourceDefinition")[..] else {
        anyhow::bail!("one definition")
    };
    ensure!(definition["spec"] == source[0]["spec"]);
    ensure!(definition["metadata"]["name"] == source[0]["metadata"]["name"]);
    ensure!(definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep");
    let unkept = objects(&template(KUBERNETES, &["--set", "crds.keep=false"])?)?;
    ensure!(of_kind(&unkept, "CustomResourceDefinition")[0]["metadata"]["annotations"].is_null());
    let without = objects(&template(KUBERNETES, &["--set", "crds.install=false"])?)?;
    ensure!(of_kind(&without, "CustomResourceDefinition").is_empty());
    Ok(())
}

#[test]
fn helm_lint_finds_nothing_in_any_value_set() -> anyhow::Result<()> {
    let chart = chart().display().to_string();
    for set in ValueSet::all()? {
        let arguments = [
            "lint",
            "--strict",
            &chart,
            "--values",
            &set.file,
            "--kube-version",
            KUBERNETES,
        ];
        printed(&set.name, helm(&arguments)?)?;
    }
    Ok(())
}

#[test]
fn the_chart_and_the_operator_have_one_version() -> anyhow::Result<()> {
    let chart = &objects(&read("charts/powercontext/Chart.yaml")?)?[0];
    ensure!(chart["version"] == env!("CARGO_PKG_VERSION"));
    ensure!(chart["appVersion"] == env!("CARGO_PKG_VERSION"));
    Ok(())
}
