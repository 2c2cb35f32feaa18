//! The real server as a process: started on a free port, waited for, signalled, killed, started again.
//!
//! Its log goes to a file, so that what it said before it was killed can be read after. A server that is dropped is killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use powercontext::rt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::binary;
use crate::client::Client;
use crate::database::Database;
use crate::provider::Provider;
use crate::wait::until;

/// Longest wait for a server to be ready: on OceanBase it may have to make its schema, and to wait for a predecessor's
/// lease.
pub const READY_WITHIN: Duration = Duration::from_mins(1);
/// Longest wait for a server that was asked to end.
pub const END_WITHIN: Duration = Duration::from_secs(30);

const PREFIX: &str = "POWERCONTEXT_SERVER_";

/// Settings for tests: leases as short as they may be, so that a take-over is quick.
const QUICK: [(&str, &str); 11] = [
    ("COORDINATION_MEMBER_TTL_SECONDS", "3"),
    ("COORDINATION_MEMBER_HEARTBEAT_SECONDS", "1"),
    ("WORKER_LEASE_SECONDS", "4"),
    ("WORKER_HEARTBEAT_SECONDS", "1"),
    ("WORKER_SHUTDOWN_GRACE_SECONDS", "3"),
    ("WORKER_POLL_SECONDS", "0.2"),
    ("WORKER_RETRY_BASE_SECONDS", "0.05"),
    ("WORKER_RETRY_MAX_SECONDS", "0.2"),
    ("OPERATIONS_POLL_SECONDS", "0.05"),
    ("DATABASE_POOL_SIZE", "6"),
    ("INFERENCE_GENERATION_MODEL", "openai-chat:deterministic"),
];

/// How servers of a test are started; each start gives another process of the same deployment.
#[derive(Debug, Clone)]
pub struct Setup {
    env: BTreeMap<String, String>,
    logs: PathBuf,
    host: &'static str,
    is_next: bool,
    /// What starts the program in its stead, with its own arguments before those of the program.
    under: Vec<PathBuf>,
}

impl Setup {
    /// Servers on this database with this model.
    pub fn new(database: &Database, provider: &Provider) -> Self {
        Self::asking(database, &provider.base_url())
    }

    /// Servers on this database with a provider at this address.
    pub fn asking(database: &Database, base_url: &str) -> Self {
        let mut env: BTreeMap<String, String> = QUICK
            .iter()
            .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
            .collect();
        env.insert(
            "POWERCONTEXT_HOME".to_owned(),
            database.beside("home").display().to_string(),
        );
        let setup = Self {
            env,
            logs: database.beside(""),
            host: "127.0.0.1",
            is_next: false,
            under: Vec::new(),
        };
        setup
            .with("DATABASE_URL", database.url())
            .with("INFERENCE_GENERATION_BASE_URL", base_url)
    }

    /// The same with this setting, named without its prefix.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.env.insert(format!("{PREFIX}{key}"), value.to_owned());
        self
    }

    /// The same with this variable.
    #[must_use]
    pub fn with_variable(mut self, key: &str, value: &str) -> Self {
        self.env.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same, listening at this address. The client speaks to 127.0.0.1.
    #[must_use]
    pub fn on(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    /// The same with the server of the next release.
    #[must_use]
    pub fn of_next_release(mut self) -> Self {
        self.is_next = true;
        self
    }

    fn program(&self) -> anyhow::Result<PathBuf> {
        if self.is_next {
            binary::next_server()
        } else {
            binary::server()
        }
    }

    /// The same, each a child of a program that gets these arguments, the server's path and the server's arguments.
    #[must_use]
    pub fn under(mut self, program: PathBuf, arguments: &[&Path]) -> Self {
        self.under = vec![program];
        self.under
            .extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// The same, stopping at a named point of a transaction; `point@file` only once the file exists.
    #[must_use]
    pub fn stopping_at(self, point: &str) -> Self {
        self.with_variable("FAILPOINTS", point)
    }

    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// When it ends instead, or is not ready in time; with its log.
    pub async fn start(&self) -> anyhow::Result<Server> {
        let mut server = self.spawn().await?;
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Runs another command of the program to its end, with these settings.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(self.program()?);
        command.args(arguments).env_clear().envs(&self.env).stdin(Stdio::null());
        command.output().await.context("starting the program")
    }

    /// Starts a server and does not wait for anything.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn spawn(&self) -> anyhow::Result<Server> {
        // A port that was free a moment ago. The server says so if somebody took it since, and the test fails with that.
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = probe.local_addr()?;
        drop(probe);
        let log = self.logs.join(format!("server-{}.log", rt::hex_id()));
        let output = File::create(&log)?;
        let program = [&self.under[..], &[self.program()?]].concat();
        let child = Command::new(&program[0])
            .args(&program[1..])
            .args([
                "server",
                "run",
                "--host",
                self.host,
                "--port",
                &address.port().to_string(),
            ])
            .env_clear()
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .context("starting the server")?;
        Ok(Server {
            child,
            client: Client::new(address)?,
            address,
            log,
        })
    }
}

/// A server process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Speaks to it.
    pub client: Client,
    /// Where it listens.
    pub address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Its process id.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server has ended")
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until it is ready or degraded.
    ///
    /// # Errors
    /// When it ends instead, or is not ready in time; with its log.
    pub async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let give_up = rt::now() + READY_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}:\n{}", self.log());
            }
            if self.client.ready().await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            ensure!(rt::now() < give_up, "the server was not ready in time:\n{}", self.log());
            rt::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it has logged a text.
    ///
    /// # Errors
    /// When it has not in time; with its log.
    pub async fn logged(&self, text: &str, within: Duration) -> anyhow::Result<()> {
        let what = format!("the server logs {text:?}");
        let waited = until(&what, within, async || Ok(self.log().contains(text).then_some(())));
        waited.await.with_context(|| self.log())
    }

    /// Waits until it stops at a named point.
    ///
    /// # Errors
    /// When it does not in time; with its log.
    pub async fn reached(&self, point: &str) -> anyhow::Result<()> {
        self.logged(&format!("failpoint reached {point}"), Duration::from_secs(20))
            .await
    }

    /// `kill -9`, and waits for the end.
    ///
    /// # Errors
    /// When it had ended before.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        ensure!(
            self.child.try_wait()?.is_none(),
            "the server had ended by itself:\n{}",
            self.log()
        );
        Ok(self.child.kill().await?)
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When it has ended.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Freezes it in place, as a machine does that is paused or swaps.
    ///
    /// # Errors
    /// When it has ended.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen one go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()?)
            .ok()
            .and_then(Pid::from_raw)
            .context("no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time; with its log.
    pub async fn ended(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        match rt::within(within, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(rt::Elapsed) => bail!("the server did not end in time:\n{}", self.log()),
        }
    }

    /// Sends SIGTERM and waits for an end with status 0.
    ///
    /// # Errors
    /// When it ends otherwise, or not in time; with its log.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop_and_log().await.map(drop)
    }

    /// The same; answers all that it has logged.
    ///
    /// # Errors
    /// When it ends otherwise, or not in time; with its log.
    pub async fn stop_and_log(mut self) -> anyhow::Result<String> {
        self.terminate()?;
        let status = self.ended(END_WITHIN).await?;
        let log = self.log();
        ensure!(status.success(), "the server ended with {status}:\n{log}");
        Ok(log)
    }
}
