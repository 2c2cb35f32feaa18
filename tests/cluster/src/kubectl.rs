//! `kubectl` as people use it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail};

/// How often a definition without conditions is looked at again.
const ESTABLISHED_TRIES: usize = 200;

/// A program and who it is.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: Option<String>,
}

impl Kubectl {
    /// This program as whom this file names.
    pub fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self {
            program,
            kubeconfig,
            namespace: None,
        }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        command.args(arguments);
        command
    }

    /// Runs a command to its end, whatever that is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn output(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.command(arguments)
            .stdin(Stdio::null())
            .output()
            .context("starting kubectl")
    }

    /// What a command printed.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        told(arguments, self.output(arguments)?)
    }

    /// Waits until the API server serves a definition.
    ///
    /// # Errors
    /// When it does not in time, with what the command said.
    pub fn established(&self, definition: &str) -> anyhow::Result<()> {
        let name = format!("crd/{definition}");
        let wait = ["wait", "--for=condition=Established", &name, "--timeout=30s"];
        // Right after it was made it may have no conditions yet, which this version of the command calls an error. Each try
        // is a process, and so takes its time.
        for _ in 0..ESTABLISHED_TRIES {
            match self.run(&wait) {
                Err(error) if error.to_string().contains("accessor error") => {}
                ended => return ended.map(drop),
            }
        }
        bail!("{name} has no conditions")
    }

    /// What a command printed that was handed a text.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn feed(&self, arguments: &[&str], text: &str) -> anyhow::Result<String> {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting kubectl")?;
        child
            .stdin
            .take()
            .context("it has an input")?
            .write_all(text.as_bytes())?;
        told(arguments, child.wait_with_output()?)
    }
}

fn told(arguments: &[&str], output: Output) -> anyhow::Result<String> {
    if !output.status.success() {
        bail!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
