//! `kubectl powercontext` as people run it: kubectl finds the program on the PATH and hands its arguments on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::operator::program;
use crate::stage::Stage;

/// What the plugin said.
#[derive(Debug)]
pub struct Said {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub error: String,
}

/// kubectl with the plugin in its PATH.
#[derive(Debug)]
pub struct Plugin {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    folder: tempfile::TempDir,
}

impl Plugin {
    /// Of an administrator, in the stage's namespace.
    ///
    /// # Errors
    /// When there is no operator.
    pub fn new(stage: &Stage) -> anyhow::Result<Self> {
        Self::with(stage, &stage.plane.kubeconfig())
    }

    /// Of whoever the kubeconfig is of.
    ///
    /// # Errors
    /// When there is no operator.
    pub fn with(stage: &Stage, kubeconfig: &Path) -> anyhow::Result<Self> {
        Self::at(
            &program()?,
            stage.plane.program("kubectl"),
            kubeconfig,
            &stage.namespace,
        )
    }

    /// An operator's program as the plugin of that kubectl, on any cluster.
    ///
    /// # Errors
    /// When there is no place for its link.
    pub fn at(operator: &Path, kubectl: PathBuf, kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(operator, folder.path().join("kubectl-powercontext"))?;
        Ok(Self {
            kubectl,
            kubeconfig: kubeconfig.to_owned(),
            namespace: namespace.to_owned(),
            folder,
        })
    }

    /// The same in another namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Runs a command to its end, whatever that is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Said> {
        let output: Output = Command::new(&self.kubectl)
            .arg("powercontext")
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env("PATH", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .context("starting kubectl")?;
        Ok(Said {
            status: output.status.code().context("an exit status")?,
            out: String::from_utf8(output.stdout)?,
            error: String::from_utf8(output.stderr)?,
        })
    }

    /// What a command printed that did what it was asked.
    ///
    /// # Errors
    /// When it ended otherwise, with what it said.
    pub fn done(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let said = self.run(arguments)?;
        ensure!(said.status == 0, "{arguments:?}: {said:#?}");
        Ok(said.out)
    }

    /// The same as JSON, whatever its status.
    ///
    /// # Errors
    /// When it printed none.
    pub fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let said = self.run(&[arguments, &["--output", "json"]].concat())?;
        serde_json::from_str(&said.out).with_context(|| format!("{said:#?}"))
    }
}
