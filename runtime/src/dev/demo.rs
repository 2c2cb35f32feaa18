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
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::PREFIX;
use crate::dev::model::{self, ModelOptions};
use crate::dev::process::{Home, Process, ProcessFault, free_address, io};
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
    /// The server did not run as it must.
    #[error(transparent)]
    Process(#[from] ProcessFault),
    /// The server did not start or did not answer as it must.
    #[error("{0}")]
    Server(String),
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

/// The server process.
struct Server {
    address: SocketAddr,
    process: Process,
}

impl Server {
    async fn start(home: &Home, model: SocketAddr) -> Result<Self, DemoError> {
        let address = free_address().await?;
        let port = address.port().to_string();
        let settings = [
            (
                "DATABASE_URL",
                home.path().join("powercontext.db").display().to_string(),
            ),
            ("INFERENCE_GENERATION_MODEL", "openai-chat:deterministic".to_owned()),
            ("INFERENCE_GENERATION_BASE_URL", format!("http://{model}/v1")),
        ];
        let env = settings.map(|(key, value)| (format!("{PREFIX}{key}"), value)).into();
        let args = ["server", "run", "--host", "127.0.0.1", "--port", &port];
        let process = Process::start(home, "the server", &args, &env)?;
        Ok(Self { address, process })
    }

    /// Asks the server to end, as an operator would, and waits for it.
    async fn stop(&mut self) -> Result<(), DemoError> {
        self.process.terminate();
        Ok(self.process.ended(STOP_WITHIN).await?)
    }
}
