//! The demonstration: a real server process, a real conversation, and what became of it.
//!
//! It starts the deterministic model in this process and `powercontext server run` as a child on SQLite in a temporary
//! home, speaks to it over HTTP like any client, prints what it did, and ends by itself.

mod client;
mod report;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::dev::model::{self, ModelOptions};
use crate::rt;
use client::Client;

/// Longest wait for the server to answer.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Longest wait for the server to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Most turns of a conversation.
const TURNS_MAX: usize = 10_000;

/// Arguments of `powercontext dev demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Conversation to capture: one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub conversation: PathBuf,
    /// Keep server and model running until Ctrl-C
    #[arg(long)]
    pub keep: bool,
}

/// Why the demonstration ended early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The conversation cannot be read.
    #[error("the conversation {} cannot be read: {reason}", .path.display())]
    Conversation {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        reason: String,
    },
    /// Something of the machine did not work.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The server did not start or did not answer as it must.
    #[error("{0}")]
    Server(String),
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> DemoError {
    move |source| DemoError::Io { what, source }
}

/// One turn of a conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    pub(super) scope_id: String,
    pub(super) source_id: String,
    pub(super) content: String,
    #[serde(default)]
    pub(super) metadata: Option<Map<String, Value>>,
}

/// Runs the demonstration. `shutdown` ends it early, and ends `--keep`.
///
/// # Errors
/// [`DemoError`]; what was started is stopped.
pub async fn run(args: DemoArgs, shutdown: CancellationToken) -> Result<(), DemoError> {
    let turns = read_conversation(&args.conversation)?;
    let home = Home::new()?;
    let model_stop = CancellationToken::new();
    let model = start_model(model_stop.clone()).await?;
    let mut server = Server::start(&home, model).await?;
    let shown = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        shown = show(&server, &turns) => shown,
    };
    if shown.is_ok() && !shutdown.is_cancelled() {
        report::next_steps(server.address, model, args.keep);
        if args.keep {
            shutdown.cancelled().await;
        }
    }
    let stopped = server.stop().await;
    model_stop.cancel();
    shown.and(stopped)
}

async fn show(server: &Server, turns: &BTreeMap<String, Vec<Turn>>) -> Result<(), DemoError> {
    let client = Client::new(server.address)?;
    client.wait_until_ready(READY_WITHIN).await?;
    println!(
        "server ready at http://{} (SQLite, deterministic model)\n",
        server.address
    );
    let scopes: Vec<&String> = turns.keys().collect();
    let captures = turns.iter().map(|(scope, turns)| capture(&client, scope, turns));
    futures_util::future::try_join_all(captures).await?;
    println!();
    for scope in &scopes {
        flush(&client, scope).await?;
    }
    report::operations(&client.operations().await?);
    for scope in &scopes {
        report::entries(scope, &client.entries(scope).await?);
    }
    report::search(&client, &scopes).await
}

async fn capture(client: &Client, scope: &str, turns: &[Turn]) -> Result<(), DemoError> {
    let started = rt::now();
    let live = std::io::stdout().is_terminal();
    for (done, turn) in turns.iter().enumerate() {
        client.capture(turn).await?;
        if live && done % 20 == 0 {
            print!("\rcapturing {scope}: {done}/{}", turns.len());
            // A terminal that cannot be flushed shows the line a little later.
            let _ = std::io::stdout().flush();
        }
    }
    let start = if live { "\r" } else { "" };
    println!(
        "{start}captured {} turns in {scope} ({} ms)        ",
        turns.len(),
        started.elapsed().as_millis()
    );
    Ok(())
}

/// One flush covers one window, so it is repeated until nothing is pending.
async fn flush(client: &Client, scope: &str) -> Result<(), DemoError> {
    loop {
        let started = rt::now();
        let flushed = client.flush(scope).await?;
        if flushed.status == "idle" {
            return Ok(());
        }
        println!(
            "flushed {scope}: sources {} to {} of {} ({} ms)",
            flushed.previous_cursor + 1,
            flushed.current_cursor,
            flushed.high_watermark,
            started.elapsed().as_millis()
        );
    }
}

fn read_conversation(path: &Path) -> Result<BTreeMap<String, Vec<Turn>>, DemoError> {
    let fault = |reason: String| DemoError::Conversation {
        path: path.to_owned(),
        reason,
    };
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let mut scopes: BTreeMap<String, Vec<Turn>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if number >= TURNS_MAX {
            return Err(fault(format!("more than {TURNS_MAX} lines")));
        }
        let turn: Turn = serde_json::from_str(line).map_err(|error| {
            // The parser's own text can quote the line; its place and kind are enough.
            fault(format!(
                "line {}, column {}: not a turn ({:?})",
                number + 1,
                error.column(),
                error.classify()
            ))
        })?;
        scopes.entry(turn.scope_id.clone()).or_default().push(turn);
    }
    if scopes.is_empty() {
        Err(fault("it holds no turn".to_owned()))
    } else {
        Ok(scopes)
    }
}

async fn start_model(stop: CancellationToken) -> Result<SocketAddr, DemoError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(io("a port for the model"))?;
    let address = listener.local_addr().map_err(io("a port for the model"))?;
    rt::spawn(model::serve(listener, ModelOptions::default(), stop));
    Ok(address)
}

/// A temporary home that goes away with the demonstration.
struct Home(PathBuf);

impl Home {
    fn new() -> Result<Self, DemoError> {
        let path = std::env::temp_dir().join(format!("powercontext-demo-{}", rt::hex_id()));
        std::fs::create_dir(&path).map_err(io("a temporary home"))?;
        Ok(Self(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("the temporary home {} could not be removed: {error}", self.0.display());
        }
    }
}

/// The server process.
struct Server {
    address: SocketAddr,
    process: Child,
    log: PathBuf,
}

impl Server {
    async fn start(home: &Home, model: SocketAddr) -> Result<Self, DemoError> {
        // A port that was free a moment ago; the server says so if somebody took it since.
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(io("a port for the server"))?;
        let address = probe.local_addr().map_err(io("a port for the server"))?;
        drop(probe);
        let binary = std::env::current_exe().map_err(io("the path of this program"))?;
        let log = home.0.join("server.log");
        let output = std::fs::File::create(&log).map_err(io("the server's log"))?;
        let process = Command::new(binary)
            .args([
                "server",
                "run",
                "--host",
                "127.0.0.1",
                "--port",
                &address.port().to_string(),
            ])
            // The demonstration's own settings and nothing of the person's: it must look the same everywhere.
            .env_clear()
            .env("POWERCONTEXT_HOME", &home.0)
            .env("POWERCONTEXT_SERVER_DATABASE_URL", home.0.join("powercontext.db"))
            .env(
                "POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL",
                "openai-chat:deterministic",
            )
            .env(
                "POWERCONTEXT_SERVER_INFERENCE_GENERATION_BASE_URL",
                format!("http://{model}/v1"),
            )
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(io("the server's log"))?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(io("starting the server"))?;
        Ok(Self { address, process, log })
    }

    /// Asks the server to end, as an operator would, and waits for it.
    async fn stop(&mut self) -> Result<(), DemoError> {
        let pid = self
            .process
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // A server that is gone already is waited for below.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        match rt::within(STOP_WITHIN, self.process.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(DemoError::Server(format!(
                "the server ended with {status}:\n{}",
                self.log_tail()
            ))),
            Ok(Err(source)) => Err(DemoError::Io {
                what: "waiting for the server",
                source,
            }),
            Err(rt::Elapsed) => Err(DemoError::Server("the server did not stop in time".to_owned())),
        }
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}
