//! Helm as people use it, on this repository's chart.
//!
//! Helm and the tools that judge manifests are built once by `tests/support/kubernetes/build` and kept in the cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

/// Kubernetes that manifests are rendered for, where a test does not say otherwise.
pub const KUBERNETES: &str = "1.34.0";
/// The oldest Kubernetes that the chart accepts.
pub const KUBERNETES_OLDEST: &str = "1.30.0";
/// The release of the tests.
pub const RELEASE: &str = "powercontext";
/// Its namespace.
pub const NAMESPACE: &str = "powercontext-system";

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The chart's folder.
pub fn chart() -> PathBuf {
    repository().join("charts/powercontext")
}

/// A file of the repository.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(repository().join(path)).with_context(|| format!("reading {path}"))
}

/// The folder of the programs, which are built when the first test asks.
fn programs() -> anyhow::Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.as_deref().map_err(|error| anyhow!("{error}"))
}

fn build() -> anyhow::Result<PathBuf> {
    let script = repository().join("tests/support/kubernetes/build");
    let output = Command::new(&script)
        .args(["helm", "kubeconform", "kube-score", "api", "monitors"])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {}", script.display()))?;
    ensure!(
        output.status.success(),
        "helm and what judges manifests could not be built"
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// A program that was built for the tests, or the folder `api` or `monitors`.
///
/// # Errors
/// When it could not be built; the script says why on standard error.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    Ok(programs()?.join(name))
}

/// Runs Helm to its end, whatever that is.
///
/// # Errors
/// When it cannot be started.
pub fn helm(arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(program("helm")?);
    // Nothing that the person at this machine has set up for Helm has a say.
    let home = tempfile::tempdir()?;
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, home.path());
    }
    command
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("starting helm")
}

/// What a program printed.
///
/// # Errors
/// When it failed, with what it said.
pub fn printed(what: &str, output: Output) -> anyhow::Result<String> {
    if !output.status.success() {
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        bail!("{what}: {}{}", said[0], said[1]);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The definition of a kind of the Prometheus operator, by its plural.
///
/// # Errors
/// When it could not be made; the script says why on standard error.
pub fn monitor_definition(plural: &str) -> anyhow::Result<Value> {
    let file = program("monitors")?.join(format!("monitoring.coreos.com_{plural}.yaml"));
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    objects(&text)?.pop().context("a definition")
}

/// What the chart renders for these further arguments.
///
/// # Errors
/// When it refuses them, with the reason.
pub fn template(kubernetes: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let chart = chart().display().to_string();
    let mut all = vec![
        "template",
        RELEASE,
        &chart,
        "--namespace",
        NAMESPACE,
        "--kube-version",
        kubernetes,
    ];
    all.extend(arguments);
    printed("helm template", helm(&all)?)
}

/// The objects of a text of YAML documents.
///
/// # Errors
/// When one is no YAML.
pub fn objects(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let object: Value = serde::Deserialize::deserialize(document)?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// The objects of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// A value set of `tests/golden/chart`.
#[derive(Debug, Clone)]
pub struct ValueSet {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
}

impl ValueSet {
    /// Every value set, by name.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(repository().join("tests/golden/chart"))? {
            let path = entry?.path();
            let file = path.display().to_string();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(name) = name.strip_suffix(".values.yaml") {
                all.push(Self {
                    name: name.to_owned(),
                    file,
                });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        ensure!(all.len() > 5, "there are {} value sets", all.len());
        Ok(all)
    }

    /// What the chart renders for it.
    ///
    /// # Errors
    /// When the chart refuses it.
    pub fn render(&self, kubernetes: &str) -> anyhow::Result<String> {
        template(kubernetes, &["--values", &self.file]).with_context(|| self.name.clone())
    }
}
