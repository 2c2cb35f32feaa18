//! The server as a process, with the deterministic model of this process behind it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use powercontext::dev::model::{self, ModelOptions};
use powercontext::rt;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::wire::Connection;

/// Longest start.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Most lines of a log that a failure shows.
const SAID_LINES_MAX: usize = 20;
/// Longest stop.
const END_WITHIN: Duration = Duration::from_secs(20);

/// The deterministic model; it ends when this is dropped.
pub(crate) struct Model {
    address: SocketAddr,
    _stop: DropGuard,
}

impl Model {
    /// Starts it, answering after `delay`.
    pub(crate) async fn start(delay: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let options = ModelOptions {
            delay,
            ..ModelOptions::default()
        };
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        rt::spawn(model::serve(listener, options, stop.clone()));
        Ok(Self {
            address,
            _stop: stop.drop_guard(),
        })
    }

    /// Where it answers.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

/// The server's program, which is built together with the benchmark.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("powercontext-bench-server"))
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// From the start of the process to the first answer that says ready.
    pub(crate) ready_after: Duration,
}

impl Server {
    /// Starts a server on the database `file` and waits until it is ready.
    pub(crate) async fn start(folder: &Path, file: &Path, model: &Model) -> anyhow::Result<Self> {
        Self::with(folder, model, &[("DATABASE_URL", &file.display().to_string())]).await
    }

    /// Starts a server with these settings, named without their prefix, and waits until it is ready.
    pub(crate) async fn with(folder: &Path, model: &Model, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
        let log = folder.join(format!("{}.log", rt::hex_id()));
        let output = File::create(&log)?;
        let started = rt::now();
        let child = Command::new(program()?)
            .args([
                "server",
                "run",
                "--host",
                "127.0.0.1",
                "--port",
                &address.port().to_string(),
            ])
            .env_clear()
            .env("POWERCONTEXT_HOME", folder.join("home"))
            .env(
                "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL",
                "openai-chat:deterministic",
            )
            .env("POWERCONTEXT_SERVER_INFERENCE_GENERATION_BASE_URL", model.base_url())
            .envs(
                settings
                    .iter()
                    .map(|(key, value)| (format!("POWERCONTEXT_SERVER_{key}"), value)),
            )
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .context("starting the server; build the package powercontext-bench as a whole")?;
        let mut server = Self {
            child,
            log,
            address,
            ready_after: Duration::ZERO,
        };
        while !server.is_ready().await {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status}:\n{}", server.said());
            }
            ensure!(
                started.elapsed() < READY_WITHIN,
                "the server was not ready in time:\n{}",
                server.said()
            );
            rt::sleep(Duration::from_millis(1)).await;
        }
        server.ready_after = started.elapsed();
        Ok(server)
    }

    async fn is_ready(&self) -> bool {
        let answer = async { Connection::open(self.address).await?.get("/health/ready").await };
        answer.await.is_ok_and(|answer| answer.status == 200)
    }

    /// The first lines of its log.
    fn said(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().take(SAID_LINES_MAX).collect::<Vec<_>>().join("\n")
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server has ended")
    }

    /// So many connections.
    pub(crate) async fn connections(&self, count: usize) -> anyhow::Result<Vec<Connection>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(Connection::open(self.address).await?);
        }
        Ok(connections)
    }

    /// Ends it and removes its log.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        // The benchmark has no use for a drained worker; what was acknowledged is committed.
        self.child.start_kill()?;
        let ended = rt::within(END_WITHIN, self.child.wait()).await;
        ended.context("the server did not end in time")??;
        std::fs::remove_file(&self.log).context("removing the log of the server")
    }
}
