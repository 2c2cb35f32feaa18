//! The operator: arguments, wiring, shutdown. It exits when it loses the lease, so that two never act at once.
//!
//! Under the name `kubectl-powercontext` it is a plugin of kubectl instead, and nothing of the operator is started.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use futures_util::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client, Config};
use powercontext_operator::check::{Subject, check};
use powercontext_operator::controller::Context;
use powercontext_operator::controller::dereference::Asker;
use powercontext_operator::controller::watch::Watches;
use powercontext_operator::health::{self, Pages, Readiness, Token};
use powercontext_operator::leader::Elector;
use powercontext_operator::metrics::Metrics;
use powercontext_operator::names::FIELD_MANAGER;
use powercontext_operator::object::Kind;
use powercontext_operator::plugin::args::PluginArguments;
use powercontext_operator::{plugin, rt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// It gives back to the system what a list or a crowd of reconciles needed for a moment; the one of the C library keeps it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long `check` waits for a roll-out that is under way.
const PATIENCE: Duration = Duration::from_secs(90);

/// Brings every PowerContextDeployment to what its spec says.
#[derive(Debug, Parser)]
#[command(name = "powercontext-operator", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look from outside whether an installed operator can do its work; change nothing.
    Check(CheckArguments),
    /// Be the plugin of kubectl, as under the name `kubectl-powercontext`.
    Kubectl(PluginArguments),
}

/// What both need to know.
#[derive(Debug, Args)]
struct CommonArguments {
    /// A namespace to look after; may be given several times. Without one: the whole cluster.
    #[arg(long = "namespace", env = "POWERCONTEXT_OPERATOR_NAMESPACES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Name of the lease.
    #[arg(long, env = "POWERCONTEXT_OPERATOR_LEASE", default_value = FIELD_MANAGER)]
    lease: String,
    /// Namespace of the operator, and of the lease.
    #[arg(long, env = "POD_NAMESPACE")]
    pod_namespace: Option<String>,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Port of health and metrics.
    #[arg(long, env = "POWERCONTEXT_OPERATOR_PORT", default_value_t = 8080)]
    port: u16,
    /// Run without a lease. Only where there is surely one replica.
    #[arg(long, env = "POWERCONTEXT_OPERATOR_NO_LEADER_ELECTION")]
    no_leader_election: bool,
    /// Name of this replica in the lease.
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
    /// Least severe messages that are logged: error, warn, info, debug or trace.
    #[arg(long, env = "POWERCONTEXT_OPERATOR_LOG_LEVEL", default_value = "info")]
    log_level: tracing::Level,
}

#[derive(Debug, Args)]
struct CheckArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Where the operator's health and metrics are, such as `http://powercontext-operator:8080`.
    #[arg(long)]
    url: String,
}

fn main() -> anyhow::Result<ExitCode> {
    let command = if plugin::is_called(std::env::args_os().next().as_deref()) {
        Err(PluginArguments::parse())
    } else {
        match Arguments::parse() {
            Arguments {
                command: Some(Command::Kubectl(arguments)),
                ..
            } => Err(arguments),
            arguments => Ok(arguments),
        }
    };
    // Crates of the workspace bring two of them, and a client that finds two and no choice refuses to be made.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    if provider.install_default().is_err() {
        anyhow::bail!("another provider of cryptography is installed already");
    }
    // It waits nearly always, and a second thread would only be a second heap.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let arguments = match command {
        // A person reads its answer, so it keeps no log.
        Err(arguments) => return Ok(runtime.block_on(plugin::run(arguments)).into()),
        Ok(arguments) => arguments,
    };
    start_log(arguments.run.log_level);
    match arguments.command {
        Some(Command::Check(arguments)) => runtime.block_on(look(arguments))?,
        _ => runtime.block_on(run(arguments.run))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// JSON lines on standard error. Other crates may log what they were sent once they are asked for details, so they never are.
fn start_log(level: tracing::Level) {
    let targets = Targets::new()
        .with_default(tracing::Level::WARN.min(level))
        // It logs what it also returns, and what it returns is logged where it is handled.
        .with_target("kube_client", LevelFilter::OFF)
        .with_target("powercontext_operator", level);
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines).with(targets).init();
}

/// Prints each promise that holds; the first that does not is the error.
async fn look(arguments: CheckArguments) -> anyhow::Result<()> {
    let client = client().await?;
    let CommonArguments {
        namespaces,
        lease,
        pod_namespace,
    } = arguments.common;
    let namespace = pod_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let subject = Subject {
        url: arguments.url,
        namespaces,
        lease: (namespace, lease),
        token: health::token_of_environment(),
        patience: PATIENCE,
    };
    check(&client, &subject, |promise| println!("true: {promise}")).await?;
    Ok(())
}

async fn client() -> anyhow::Result<Client> {
    let config = Config::infer().await.context("finding the API server")?;
    Client::try_from(config).context("making a client of the API server")
}

async fn run(arguments: RunArguments) -> anyhow::Result<()> {
    let token = health::token_of_environment();
    let token = token.map(|token| Token::new(&token).context("the token of the metrics is empty or holds a blank"));
    let token = token.transpose()?;
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let metrics = Metrics::new().context("making the metrics")?;
    let ready = Readiness::default();
    let listener = health::bind(arguments.port).await.context("opening the port")?;
    let pages = Pages {
        ready: ready.clone(),
        metrics: metrics.clone(),
        token,
    };
    let serving = rt::spawn(health::serve(listener, pages, stop.clone()));

    let client = client().await?;
    let namespace = arguments
        .common
        .pod_namespace
        .clone()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    // A replica that waits for the lease is as ready as it can be.
    ready.set(true);
    let me = identity(&arguments);
    let mut elector = Elector::new(
        Api::<Lease>::namespaced(client.clone(), &namespace),
        arguments.common.lease.clone(),
        me.clone(),
    );
    let outcome = if arguments.no_leader_election || elector.acquire(&stop).await {
        tracing::info!(identity = me, "leading");
        metrics.leads.set(1);
        lead(&arguments, &client, &metrics, &ready, &me, (&mut elector, &stop)).await
    } else {
        Ok(())
    };
    stop.cancel();
    serving.await.context("serving health and metrics")?;
    outcome
}

/// Starts the watches of every scope, which reconcile until the token is cancelled. Ready from when all have been filled.
async fn watch(
    arguments: &RunArguments,
    client: &Client,
    metrics: &Metrics,
    ready: &Readiness,
    me: &str,
    working: &CancellationToken,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let (group, version, ..) = Kind::PodMonitor.names();
    let with_monitors = client
        .list_api_group_resources(&format!("{group}/{version}"))
        .await
        .is_ok();
    let namespaces = &arguments.common.namespaces;
    let scopes: Vec<Option<&str>> = if namespaces.is_empty() {
        vec![None]
    } else {
        namespaces.iter().map(|name| Some(name.as_str())).collect()
    };
    let unfilled = Arc::new(AtomicUsize::new(scopes.len()));
    let mut first: Option<Arc<Context>> = None;
    let mut work = Vec::new();
    ready.set(false);
    for scope in scopes {
        let watches = Watches::new(client, scope, with_monitors);
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: Some(me.to_owned()),
        };
        let mut context = Context::new(
            client.clone(),
            watches.caches(),
            Recorder::new(client.clone(), reporter),
            Asker::new().context("making a client of the roles")?,
            metrics.clone(),
            arguments.common.pod_namespace.clone(),
        );
        if let Some(first) = &first {
            context = context.sharing(first);
        }
        let context = Arc::new(context);
        first.get_or_insert_with(|| Arc::clone(&context));
        let (ready, unfilled) = (ready.clone(), Arc::clone(&unfilled));
        let filled = move || {
            if unfilled.fetch_sub(1, Ordering::Relaxed) == 1 {
                ready.set(true);
            }
        };
        let over = working.clone().cancelled_owned();
        work.push(rt::spawn(watches.run(context, over, filled)));
    }
    Ok(work)
}

/// Reconciles until it is asked to stop or loses the lease.
async fn lead(
    arguments: &RunArguments,
    client: &Client,
    metrics: &Metrics,
    ready: &Readiness,
    me: &str,
    (elector, stop): (&mut Elector, &CancellationToken),
) -> anyhow::Result<()> {
    let working = CancellationToken::new();
    let mut work = watch(arguments, client, metrics, ready, me, &working).await?;
    let kept = if arguments.no_leader_election {
        stop.cancelled().await;
        true
    } else {
        // The lease is given back only after the last reconcile has ended.
        let held = CancellationToken::new();
        let holding = elector.hold(&held);
        let ending = async {
            stop.cancelled().await;
            working.cancel();
            join_all(work.drain(..)).await;
            held.cancel();
        };
        let (kept, ()) = tokio::join!(
            async {
                let kept = holding.await;
                if !kept {
                    // Nothing may be written any more: the process ends with whatever is in flight.
                    tracing::error!("the lease is lost");
                    std::process::exit(1);
                }
                kept
            },
            ending
        );
        kept
    };
    working.cancel();
    join_all(work.drain(..)).await;
    metrics.leads.set(0);
    anyhow::ensure!(kept, "the lease was lost");
    Ok(())
}

/// Another name in every process: the pod's, and the number of the process for a restart in the same pod.
fn identity(arguments: &RunArguments) -> String {
    let pod = arguments.pod_name.as_deref().unwrap_or(FIELD_MANAGER);
    format!("{pod}_{}_{}", std::process::id(), rt::time_of_day().as_second())
}

fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    rt::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop");
        stop.cancel();
    });
    Ok(())
}
