//! A distributed deployment on this machine: a migrator, two APIs, two Schedulers, two Workers as processes of their own, one
//! address before both APIs, the deterministic model, and a table of what they do until Ctrl-C.

mod front;
mod topology;
mod view;

use std::io::{IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use powercontext_core::time::Span;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::dev::model::{self, ModelOptions};
use crate::dev::process::{Home, Process, ProcessFault, io};
use crate::rt;
use crate::store::{DatabaseUrl, Db, DbLimits, OpenError, UrlFault};
use topology::{Deployment, Spec};

/// Longest wait for the schema; a fresh one takes a few seconds.
const MIGRATED_WITHIN: Duration = Duration::from_mins(2);
/// Longest wait for a process to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait for a process to end: runs may go on for their grace.
const STOP_WITHIN: Duration = Duration::from_secs(100);
/// Pause between two looks at a process that starts.
const LOOK: Duration = Duration::from_millis(50);
/// Pause between two tables.
const REFRESH: Duration = Duration::from_secs(1);
/// Between the front's port and the last one.
const PORTS: u16 = 6;

/// Arguments of `powercontext dev distributed`.
#[derive(Debug, clap::Args)]
pub struct DistributedArgs {
    /// OceanBase to use, such as `mysql://root@127.0.0.1:2881/test`
    #[arg(long, env = "POWERCONTEXT_DEV_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Port before both APIs; they and the others take the six after it
    #[arg(long, default_value_t = 8000, value_parser = clap::value_parser!(u16).range(1..=i64::from(u16::MAX - PORTS)))]
    pub port: u16,
    /// How often each scope with new Sources is processed without being asked, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub schedule_seconds: u32,
    /// Time before each answer of the model, in milliseconds
    #[arg(long, default_value_t = 0)]
    pub model_delay_ms: u64,
}

/// Why the deployment did not stand.
#[derive(Debug, thiserror::Error)]
pub enum DistributedError {
    /// The database's address.
    #[error("the database URL is not usable: {0}")]
    Url(#[from] UrlFault),
    /// A file is no place for several processes.
    #[error("a distributed deployment needs OceanBase; a file belongs to one process")]
    NotOceanBase,
    /// The database.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A process.
    #[error(transparent)]
    Process(#[from] ProcessFault),
}

/// Starts everything in order, shows it until `shutdown`, stops everything in the opposite order.
///
/// # Errors
/// [`DistributedError`]; what was started is stopped.
pub async fn run(args: DistributedArgs, shutdown: CancellationToken) -> Result<(), DistributedError> {
    let url = DatabaseUrl::parse(&args.database_url)?;
    if matches!(url, DatabaseUrl::Sqlite(_)) {
        return Err(DistributedError::NotOceanBase);
    }
    let home = Home::new()?;
    let stop = CancellationToken::new();
    let model = start_model(Duration::from_millis(args.model_delay_ms), stop.clone()).await?;
    let deployment = Deployment {
        database_url: &args.database_url,
        model,
        schedule_seconds: args.schedule_seconds,
        first_port: args.port,
    };
    migrate(&home, &deployment).await?;
    let mut processes = Vec::new();
    let shown = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        shown = stand(&home, &deployment, &url, &stop, &mut processes) => shown,
    };
    stop.cancel();
    let stopped = stop_all(processes).await;
    shown.and(stopped)
}

/// Starts every process and shows them; returns only when one of them fails.
async fn stand(
    home: &Home,
    deployment: &Deployment<'_>,
    url: &DatabaseUrl,
    stop: &CancellationToken,
    processes: &mut Vec<Process>,
) -> Result<(), DistributedError> {
    let mut apis = Vec::new();
    for spec in deployment.processes() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, spec.port));
        if spec.role == topology::Role::Api {
            apis.push(address);
        }
        processes.push(start(home, &spec)?);
        let process = processes.last_mut().expect("one was just added");
        wait_until_ready(process, address).await?;
        println!("{:<12} ready at http://{address}", spec.name);
    }
    let front = listen(deployment.first_port).await?;
    rt::spawn(front::serve(front, apis, stop.clone()));
    println!("both APIs in turn    http://127.0.0.1:{}\n", deployment.first_port);
    let db = Db::open(url, DbLimits::for_lease(Span::seconds(30), 2)).await?;
    show(&db, processes).await
}

async fn listen(port: u16) -> Result<TcpListener, ProcessFault> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    bound.map_err(io("the port before both APIs"))
}

async fn start_model(delay: Duration, stop: CancellationToken) -> Result<SocketAddr, ProcessFault> {
    let listener = listen(0).await?;
    let address = listener.local_addr().map_err(io("a port for the model"))?;
    let options = ModelOptions {
        delay,
        ..ModelOptions::default()
    };
    rt::spawn(model::serve(listener, options, stop));
    Ok(address)
}

async fn migrate(home: &Home, deployment: &Deployment<'_>) -> Result<(), ProcessFault> {
    let mut migrator = Process::start(home, "migrator", &["server", "migrate"], &deployment.migrator())?;
    migrator.ended(MIGRATED_WITHIN).await?;
    println!("{:<12} done", migrator.name());
    Ok(())
}

fn start(home: &Home, spec: &Spec) -> Result<Process, ProcessFault> {
    let port = spec.port.to_string();
    let args = ["server", "run", "--host", "127.0.0.1", "--port", &port];
    Process::start(home, &spec.name, &args, &spec.env)
}

async fn wait_until_ready(process: &mut Process, address: SocketAddr) -> Result<(), ProcessFault> {
    let give_up = rt::now() + READY_WITHIN;
    while !is_ready(address).await {
        process.still_runs()?;
        if rt::now() >= give_up {
            return Err(process.fault("was not ready in time".to_owned()));
        }
        rt::sleep(LOOK).await;
    }
    Ok(())
}

async fn is_ready(address: SocketAddr) -> bool {
    let answer = reqwest::get(format!("http://{address}/health/ready")).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

async fn show(db: &Db, processes: &mut [Process]) -> Result<(), DistributedError> {
    let is_live = std::io::stdout().is_terminal();
    let mut last = String::new();
    loop {
        for process in processes.iter_mut() {
            process.still_runs()?;
        }
        let table = match view::look(db).await {
            Ok(look) => look.table(),
            Err(error) => format!("the database does not answer: {error}"),
        };
        if table != last {
            if is_live {
                let lines = last.lines().count();
                // Up over the last table, and away with it.
                println!("{}\x1b[J{table}", "\x1b[1A".repeat(lines));
            } else {
                println!("{table}\n");
            }
            // Whoever does not read any more misses a table.
            let _ = std::io::stdout().flush();
            last = table;
        }
        rt::sleep(REFRESH).await;
    }
}

/// APIs first, then Schedulers, then Workers: nobody asks or admits any more while the last runs end.
async fn stop_all(processes: Vec<Process>) -> Result<(), DistributedError> {
    println!("\nstopping");
    let mut first = Ok(());
    for mut process in processes.into_iter().rev() {
        process.terminate();
        let ended = process.ended(STOP_WITHIN).await;
        if ended.is_ok() {
            println!("{:<12} ended", process.name());
        }
        first = first.and(ended);
    }
    Ok(first?)
}
