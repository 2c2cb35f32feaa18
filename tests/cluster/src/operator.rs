//! The real operator as a process: started, waited for, asked to end, killed. One that is dropped is killed.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

/// Longest wait for an operator to be ready or to end.
const WITHIN: Duration = Duration::from_secs(30);

/// The operator that cargo built for this package, or the one that a variable names: a release is measured so.
///
/// # Errors
/// When the test was not started by cargo.
pub fn program() -> anyhow::Result<PathBuf> {
    let named = crate::env("POWERCONTEXT_TEST_OPERATOR").or_else(|| crate::env("CARGO_BIN_EXE_operator-under-test"));
    Ok(PathBuf::from(
        named.context("no operator: run the tests with `cargo test`")?,
    ))
}

/// How operators of a test are started.
#[derive(Debug, Clone)]
pub struct Setup {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) namespace: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

impl Setup {
    /// An operator in that namespace, with these arguments and without any of [`crate::stage::Stage`]'s choices. What it says
    /// goes into the folder.
    ///
    /// # Errors
    /// When there is no operator.
    pub fn new(kubeconfig: PathBuf, folder: PathBuf, namespace: &str, arguments: Vec<String>) -> anyhow::Result<Self> {
        Ok(Self {
            kubeconfig,
            folder,
            namespace: namespace.to_owned(),
            program: program()?,
            arguments,
        })
    }

    /// The same with another argument.
    #[must_use]
    pub fn with(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts an operator.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str) -> anyhow::Result<Operator> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = self.folder.join(format!("{name}-{port}.log"));
        let child = Command::new(&self.program)
            .args(["--port", &port.to_string()])
            .args(&self.arguments)
            .env_clear()
            .env("KUBECONFIG", &self.kubeconfig)
            .env("POD_NAMESPACE", &self.namespace)
            .env("POD_NAME", name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        Ok(Operator { child, log, port })
    }
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    child: Child,
    log: PathBuf,
    port: u16,
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Operator {
    /// Kills it where it stands.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Freezes it, or lets it go on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn freeze(&self, frozen: bool) -> anyhow::Result<()> {
        Ok(kill_process(
            self.pid()?,
            if frozen { Signal::STOP } else { Signal::CONT },
        )?)
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Errors
    /// When it does not.
    pub async fn end(&mut self) -> anyhow::Result<ExitStatus> {
        kill_process(self.pid()?, Signal::TERM)?;
        until("the operator ends", WITHIN, async || Ok(self.child.try_wait()?)).await
    }

    /// Its process.
    ///
    /// # Errors
    /// Never; a child has one.
    pub fn pid(&self) -> anyhow::Result<Pid> {
        Pid::from_raw(i32::try_from(self.child.id())?).context("a child has an id")
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn runs(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Everything that it said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// File of what it says.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// Port of health and metrics.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Resident memory, in KiB.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn resident_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .context("VmRSS")?;
        Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
    }

    /// Processor time used so far, in ticks of a hundredth of a second.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn cpu_ticks(&self) -> anyhow::Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let rest = stat.rsplit_once(')').context("a name")?.1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
    }
}
