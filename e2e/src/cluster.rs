//! The cluster, and the releases of the chart in it.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use powercontext_cluster_tests::kubectl::Kubectl;
use powercontext_cluster_tests::operator::program;
use powercontext_cluster_tests::plugin::Plugin;

use crate::arguments::Place;

/// Release and namespace of the operator that looks after every namespace.
pub(crate) const RELEASE: &str = "powercontext";
pub(crate) const SYSTEM: &str = "powercontext-system";
/// Longest wait for what takes a few passes of a few controllers and the start of pods, on a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_mins(4);

/// A cluster that is there.
pub(crate) struct Cluster {
    kubeconfig: PathBuf,
    programs: PathBuf,
    pub(crate) client: Client,
    pub(crate) host: Ipv4Addr,
    pub(crate) image: String,
    pub(crate) next_image: String,
    pub(crate) audit_log: Option<PathBuf>,
}

impl Cluster {
    /// The cluster that the arguments name.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn connect(place: &Place) -> anyhow::Result<Self> {
        let file = Kubeconfig::read_from(&place.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let version = client
            .apiserver_version()
            .await
            .context("the cluster does not answer")?;
        println!(
            "cluster: Kubernetes {}, {}",
            version.git_version,
            place.kubeconfig.display()
        );
        Ok(Self {
            kubeconfig: place.kubeconfig.clone(),
            programs: place.programs.clone(),
            client,
            host: place.host,
            image: place.image.clone(),
            next_image: place.next_image.clone(),
            audit_log: place.audit_log.clone(),
        })
    }

    /// `kubectl` of an administrator.
    pub(crate) fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.programs.join("kubectl"), self.kubeconfig.clone())
    }

    /// `kubectl powercontext` of an administrator in a namespace.
    ///
    /// # Errors
    /// When there is no operator to run as the plugin.
    pub(crate) fn plugin(&self, namespace: &str) -> anyhow::Result<Plugin> {
        Plugin::at(&program()?, self.programs.join("kubectl"), &self.kubeconfig, namespace)
    }

    /// Runs Helm to its end; what it printed.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub(crate) fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(self.programs.join("helm"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("starting helm")?;
        if !output.status.success() {
            bail!("helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Installs the chart of this repository, waits for its pods, and runs its own test.
    ///
    /// # Errors
    /// When the release does not become ready, or its test fails.
    pub(crate) fn install(&self, release: &str, namespace: &str, values: &[&str]) -> anyhow::Result<()> {
        let chart = powercontext_chart_tests::chart().display().to_string();
        let (repository, tag) = self.image.rsplit_once(':').context("the image has a tag")?;
        let (repository, tag) = (format!("image.repository={repository}"), format!("image.tag={tag}"));
        let mut all = vec!["upgrade", "--install", release, &chart, "--namespace", namespace];
        all.extend(["--create-namespace", "--wait", "--timeout", "3m"]);
        for value in [&[repository.as_str(), &tag], values].concat() {
            all.extend(["--set", value]);
        }
        self.helm(&all)?;
        let told = self.helm(&["test", release, "--namespace", namespace, "--timeout", "2m"])?;
        ensure!(told.contains("Phase:          Succeeded"), "{told}");
        Ok(())
    }
}
