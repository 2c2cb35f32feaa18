//! The command line: `powercontext server run|migrate|config|switch-mode|work` and `powercontext dev model|demo`.
//!
//! Exit codes are the same everywhere: 0 done, 1 refused (what, where, what to do stands on standard error), 2 wrong
//! arguments or settings, and for `server migrate` 3 when trying again later can help. Settings come from flags, the
//! environment, which `main` alone reads, and the env file.

mod database;
mod migrate;
mod refusal;
mod server;
mod show;
mod signals;
mod switch_mode;
mod work;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{self, ConfigFault, DatabaseLocation, Flag, Settings, Sources};
use crate::dev::{demo, distributed, model};
use crate::store::DatabaseUrl;
use crate::telemetry::log;
use crate::worker::child::{ChildExit, serve};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// As it was meant to.
    Done = 0,
    /// Refused, or failed; the reason is told.
    Refused = 1,
    /// Wrong arguments or settings.
    BadConfiguration = 2,
    /// What it needs did not answer: trying again later can help.
    NotReachable = 3,
}

/// Where a command writes.
pub struct Streams<'a> {
    /// Results.
    pub out: &'a mut (dyn Write + Send),
    /// Faults and refusals.
    pub err: &'a mut (dyn Write + Send),
}

impl Streams<'_> {
    /// Writes a line of the result. A reader that went away is no failure of the command.
    fn say(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }

    /// Writes a line of a fault.
    fn complain(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.err, "{line}");
    }
}

/// `PowerContext`: captures Sources and derives Memory from them.
#[derive(Debug, Parser)]
#[command(name = "powercontext", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The server and its database
    #[command(subcommand)]
    Server(ServerCommand),
    /// Tools for trying the server
    #[command(subcommand)]
    Dev(DevCommand),
    /// One run of a worker, started by it
    #[command(hide = true)]
    WorkerChild(ChildArgs),
}

#[derive(Debug, Args)]
struct ChildArgs {
    /// Process id of the worker
    #[arg(long)]
    parent: u32,
}

#[derive(Debug, Subcommand)]
enum ServerCommand {
    /// Run the server in the foreground until SIGTERM or SIGINT
    Run(RunArgs),
    /// Bring the database to this build's schema, forward only
    Migrate(MigrateArgs),
    /// Show the settings that hold with secrets hidden, or tell every fault
    Config(ConfigArgs),
    /// Change how supervision is organised, while the Schedulers are down
    SwitchMode(switch_mode::SwitchModeArgs),
    /// Show, retry or cancel work in the database, internal work included
    #[command(subcommand)]
    Work(work::WorkCommand),
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    flags: FlagArgs,
    #[command(flatten)]
    file: FileArgs,
}

/// Settings that have a flag.
#[derive(Debug, Args)]
struct FlagArgs {
    /// Address to listen on (`POWERCONTEXT_SERVER_HTTP_HOST`)
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on, 1 to 65535 (`POWERCONTEXT_SERVER_HTTP_PORT`)
    #[arg(long)]
    port: Option<String>,
    /// Ignored: work is scheduled in the database
    #[arg(long, value_name = "PATH", hide = true)]
    scheduler_path: Option<String>,
}

impl FlagArgs {
    fn into_flags(self) -> Vec<Flag> {
        let flags = [
            self.host.map(Flag::host),
            self.port.map(Flag::port),
            self.scheduler_path.map(Flag::scheduler_path),
        ];
        flags.into_iter().flatten().collect()
    }
}

#[derive(Debug, Args)]
struct MigrateArgs {
    /// Tell the steps and change nothing
    #[arg(long)]
    plan: bool,
    /// Form of the last line
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Args)]
struct ConfigArgs {
    /// Print the reference page of all settings instead
    #[arg(long, conflicts_with_all = ["example", "output"])]
    reference: bool,
    /// Print an env file with every setting, its meaning and its default instead
    #[arg(long, conflicts_with = "output")]
    example: bool,
    /// Form of what is shown
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    flags: FlagArgs,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Args)]
struct FileArgs {
    /// File of NAME=VALUE lines; the environment wins over it
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One JSON object
    Json,
}

#[derive(Debug, Subcommand)]
enum DevCommand {
    /// Serve the deterministic model, OpenAI-compatible
    Model(model::ModelArgs),
    /// Show capture, flush, Memory and search on a server of its own
    Demo(demo::DemoArgs),
    /// Run two APIs, two Schedulers and two Workers on OceanBase, and show what they do until Ctrl-C
    Distributed(distributed::DistributedArgs),
}

impl Cli {
    /// The command that this process was given; help, version and usage faults end the process here.
    pub fn from_arguments() -> Self {
        Self::parse()
    }

    /// Whether one thread is enough: a child makes one call after the other, and there are many of them.
    pub fn is_small(&self) -> bool {
        matches!(self.command, Command::WorkerChild(_))
    }

    /// Runs the command to its end.
    pub async fn run(self, env: BTreeMap<String, String>, streams: &mut Streams<'_>) -> Exit {
        match self.command {
            Command::Server(ServerCommand::Run(args)) => server::run(args, env, streams).await,
            Command::Server(ServerCommand::Migrate(args)) => migrate::run(args, env, streams).await,
            Command::Server(ServerCommand::Config(args)) => show::run(args, env, streams),
            Command::Server(ServerCommand::SwitchMode(args)) => switch_mode::run(args, env, streams).await,
            Command::Server(ServerCommand::Work(command)) => work::run(command, env, streams).await,
            Command::Dev(command) => dev(command, streams).await,
            Command::WorkerChild(args) => child(&args, streams).await,
        }
    }
}

async fn dev(command: DevCommand, streams: &mut Streams<'_>) -> Exit {
    // A log that cannot be set up is set up already.
    let _ = log::init(tracing::Level::INFO, log::Format::Console);
    let shutdown = match signals::shutdown() {
        Ok(shutdown) => shutdown,
        Err(error) => return refusal::failed(&error, streams),
    };
    match command {
        DevCommand::Model(args) => {
            let (host, port) = (args.host, args.port);
            match model::run(args, shutdown).await {
                Ok(()) => Exit::Done,
                Err(error) => {
                    streams.complain(format_args!("The model cannot listen on {host}, port {port}: {error}."));
                    streams.complain("What to do: choose another --host or --port.");
                    Exit::Refused
                }
            }
        }
        DevCommand::Demo(args) => match demo::run(args, shutdown).await {
            Ok(()) => Exit::Done,
            Err(error) => refusal::failed(&error, streams),
        },
        DevCommand::Distributed(args) => match distributed::run(args, shutdown).await {
            Ok(()) => Exit::Done,
            Err(error) => refusal::failed(&error, streams),
        },
    }
}

async fn child(args: &ChildArgs, streams: &mut Streams<'_>) -> Exit {
    match serve(args.parent).await {
        ChildExit::Done => Exit::Done,
        ChildExit::Orphaned => Exit::Refused,
        ChildExit::NoWorker => {
            streams.complain("This command is started by a worker, over pipes; it does nothing for people.");
            Exit::BadConfiguration
        }
    }
}

fn load(env: BTreeMap<String, String>, file: FileArgs, flags: Vec<Flag>) -> Result<Settings, Vec<ConfigFault>> {
    config::load(sources(env, file, flags))
}

/// The settings of a command that needs the database and runs no role.
fn load_database(env: BTreeMap<String, String>, file: FileArgs) -> Result<Settings, Vec<ConfigFault>> {
    config::load_for(sources(env, file, Vec::new()), config::Purpose::Database)
}

fn sources(env: BTreeMap<String, String>, file: FileArgs, flags: Vec<Flag>) -> Sources {
    Sources {
        env,
        env_file: file.env_file,
        flags,
    }
}

fn tell_faults(faults: &[ConfigFault], streams: &mut Streams<'_>) -> Exit {
    for fault in faults {
        streams.complain(fault);
    }
    Exit::BadConfiguration
}

fn start_log(settings: &Settings) {
    let format = match settings.logging.format {
        config::LogFormat::Console => log::Format::Console,
        config::LogFormat::Json => log::Format::Json,
    };
    // In one process the first command's log stays.
    let _ = log::init(settings.logging.level, format);
    for notice in &settings.notices {
        tracing::warn!(
            setting = notice.key(),
            reason = notice.reason(),
            "a setting changes nothing"
        );
    }
}

/// The database that the settings name.
fn database_url(location: &DatabaseLocation) -> Result<DatabaseUrl, crate::store::UrlFault> {
    use secrecy::ExposeSecret as _;
    match location {
        DatabaseLocation::Sqlite(path) => Ok(DatabaseUrl::Sqlite(path.clone())),
        DatabaseLocation::OceanBase(url) => DatabaseUrl::parse(url.expose_secret()),
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
