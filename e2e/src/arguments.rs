//! What `e2e/run` tells this program.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::plan;

/// Runs scenarios on a cluster that is there.
#[derive(Debug, Parser)]
#[command(name = "powercontext-e2e")]
pub(crate) enum Arguments {
    /// Only print what `run` would run.
    List(Choice),
    /// Run scenarios.
    Run {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        choice: Choice,
    },
    /// Make one deployment, give it something to remember, and leave it running.
    Demo(Place),
}

/// Which scenarios.
#[derive(Debug, clap::Args)]
pub(crate) struct Choice {
    /// Scenarios to run, by name; all of the set without one.
    #[arg(value_parser = PossibleValuesParser::new(plan::names()))]
    pub(crate) scenarios: Vec<String>,
    /// Only the scenarios that `make test` runs.
    #[arg(long)]
    pub(crate) short: bool,
    /// Most scenarios that run at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) at_once: u16,
}

/// Where they run, and what is there.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// File by which an administrator reaches the cluster.
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: PathBuf,
    /// Folder with kubectl and helm.
    #[arg(long)]
    pub(crate) programs: PathBuf,
    /// Address of this machine, or of this network namespace, that pods reach.
    #[arg(long)]
    pub(crate) host: Ipv4Addr,
    /// Image with the operator and every role.
    #[arg(long)]
    pub(crate) image: String,
    /// The same of the next release.
    #[arg(long)]
    pub(crate) next_image: String,
    /// The OceanBase kernel, `mysql://root@host:port`.
    #[arg(long, env = "POWERCONTEXT_TEST_OCEANBASE_URL")]
    pub(crate) kernel: String,
    /// The API server's audit log, where this machine has it.
    #[arg(long)]
    pub(crate) audit_log: Option<PathBuf>,
}
