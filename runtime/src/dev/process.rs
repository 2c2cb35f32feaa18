//! Servers that a tool of this module starts beside itself, on a free or a given port, with settings of its own and nothing
//! of the person's: it must look the same everywhere. Their logs go to files in a temporary home.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::rt;

/// Lines of a log that a fault shows.
const LOG_LINES: usize = 10;

/// Why a server did not run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessFault {
    /// Something of the machine did not work.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The server ended when it should not have, or did not end when it should have.
    #[error("{name} {what}:\n{log}")]
    Server {
        /// Which one.
        name: String,
        /// What it did.
        what: String,
        /// The end of its log.
        log: String,
    },
}

/// What was tried when the machine refused.
pub(super) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> ProcessFault {
    move |source| ProcessFault::Io { what, source }
}

/// A temporary home that goes away with the tool.
pub(super) struct Home(PathBuf);

impl Home {
    pub(super) fn new() -> Result<Self, ProcessFault> {
        let path = std::env::temp_dir().join(format!("powercontext-dev-{}", rt::hex_id()));
        std::fs::create_dir(&path).map_err(io("a temporary home"))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("the temporary home {} could not be removed: {error}", self.0.display());
        }
    }
}

/// A port of this machine that was free a moment ago; a server says so if somebody took it since.
pub(super) async fn free_address() -> Result<SocketAddr, ProcessFault> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    probe.and_then(|probe| probe.local_addr()).map_err(io("a free port"))
}

/// One process of this program.
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts this program with these arguments and no environment but this.
    pub(super) fn start(
        home: &Home,
        name: &str,
        args: &[&str],
        env: &BTreeMap<String, String>,
    ) -> Result<Self, ProcessFault> {
        let binary = std::env::current_exe().map_err(io("the path of this program"))?;
        let log = home.path().join(format!("{name}.log"));
        let output = std::fs::File::create(&log).map_err(io("a server's log"))?;
        let child = Command::new(binary)
            .args(args)
            .env_clear()
            .env("POWERCONTEXT_HOME", home.path())
            .envs(env)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(io("a server's log"))?)
            .stderr(output)
            // Ctrl-C at a terminal is for the tool, which ends its servers in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(io("starting a server"))?;
        let name = name.to_owned();
        Ok(Self { name, child, log })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The fault of a process that has ended; nothing while it runs.
    pub(super) fn still_runs(&mut self) -> Result<(), ProcessFault> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.fault(format!("ended with {status}"))),
            Err(source) => Err(io("waiting for a server")(source)),
        }
    }

    /// Waits for an end with status 0.
    pub(super) async fn ended(&mut self, within: Duration) -> Result<(), ProcessFault> {
        match rt::within(within, self.child.wait()).await {
            Ok(Ok(status)) if ExitStatus::success(&status) => Ok(()),
            Ok(Ok(status)) => Err(self.fault(format!("ended with {status}"))),
            Ok(Err(source)) => Err(io("waiting for a server")(source)),
            Err(rt::Elapsed) => Err(self.fault("did not end in time".to_owned())),
        }
    }

    /// Asks the process to end, as an operator would.
    pub(super) fn terminate(&self) {
        let pid = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // One that is gone already is waited for next.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// What went wrong with it, and the end of its log.
    pub(super) fn fault(&self, what: String) -> ProcessFault {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        ProcessFault::Server {
            name: self.name.clone(),
            what,
            log: lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"),
        }
    }
}
