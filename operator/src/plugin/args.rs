//! The plugin's command line. Flags that kubectl has mean what they mean there.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Most seconds that a wish is waited for.
const WAIT_SECONDS_MAX: u64 = 3600;

/// Looks at PowerContext deployments and does what they need a person for.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-powercontext",
    bin_name = "kubectl powercontext",
    version,
    after_help = "Exit status: 0 done (of `status`: ready), 1 failed, 2 wrong arguments, 3 not there, 4 forbidden, \
                  10 `status`: on its way or paused, 11 `status` and `plan`: somebody has to act."
)]
pub struct PluginArguments {
    /// Where to look.
    #[command(flatten)]
    pub place: Place,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster and namespace.
#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// Namespace; the context's where it is left out.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// Context of the kubeconfig; the current one where it is left out.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Kubeconfig; `$KUBECONFIG` or `~/.kube/config` where it is left out.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a deployment as a tree: conditions, schema, roles, leaders, queue, last events.
    Status(StatusArguments),
    /// Show what the operator would do, in order, for the spec that is stored or for one in a file.
    Plan(PlanArguments),
    /// Approve the migration that waits for it.
    Approve(ApproveArguments),
    /// Let a migration that was given up be tried again.
    RetryMigration(WishArguments),
    /// Let the operator change nothing until `resume`.
    Pause(WishArguments),
    /// Let the operator go on.
    Resume(WishArguments),
    /// Print what the pods of a role log, each line with its pod.
    Logs(LogsArguments),
    /// Look at operations and act on them, through an API pod.
    Operations(OperationsArguments),
}

/// Which deployment.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// Name of the deployment. May be left out where the namespace has one.
    pub name: Option<String>,
}

/// How something is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Which deployment.
    #[command(flatten)]
    pub target: Target,
    /// Form of what is shown.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// Which deployment.
    #[command(flatten)]
    pub target: Target,
    /// File with the resource as it would be applied; `-`: standard input. Nothing is stored.
    #[arg(short, long)]
    pub filename: Option<PathBuf>,
    /// Form of what is shown.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// What is wished of the operator.
#[derive(Debug, Args)]
pub struct WishArguments {
    /// Which deployment.
    #[command(flatten)]
    pub target: Target,
    /// Seconds to wait until the operator has followed; 0: do not wait.
    #[arg(long = "wait", default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=WAIT_SECONDS_MAX))]
    pub wait_seconds: u64,
}

/// `approve`.
#[derive(Debug, Args)]
pub struct ApproveArguments {
    /// Which deployment, and how long to wait.
    #[command(flatten)]
    pub wish: WishArguments,
    /// Approve only this target (`status.schema.targetHash`), the one whose plan was read.
    #[arg(long)]
    pub target: Option<String>,
}

/// Whose log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Component {
    /// The APIs.
    Api,
    /// The Schedulers.
    Scheduler,
    /// The Workers.
    Worker,
    /// Schedulers and Workers in one.
    Background,
    /// Migrations.
    Migrate,
    /// Looks at what a migration would do.
    Plan,
    /// Changes of the coordination mode.
    SwitchMode,
}

impl Component {
    /// As the label of the pods spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Background => "background",
            Self::Migrate => "migrate",
            Self::Plan => "plan",
            Self::SwitchMode => "switch-mode",
        }
    }
}

/// `logs`.
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// Whose log.
    #[arg(value_enum, value_name = "ROLE")]
    pub component: Component,
    /// Which deployment.
    #[command(flatten)]
    pub target: Target,
    /// Go on with what is logged later, also by pods that come later.
    #[arg(short, long)]
    pub follow: bool,
    /// Lines of each pod to begin with; all where it is left out, 10 with `--follow`.
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..))]
    pub tail: Option<i64>,
    /// Only what was logged in so many last seconds.
    #[arg(long = "since", value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(1..))]
    pub since_seconds: Option<i64>,
    /// The log of the container before the last restart.
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
    /// Print each line's time.
    #[arg(long)]
    pub timestamps: bool,
}

/// `operations`.
#[derive(Debug, Args)]
pub struct OperationsArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: OperationsCommand,
    /// Name of the deployment. May be left out where the namespace has one.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub deployment: Option<String>,
    /// Form of what is shown.
    #[arg(short, long, value_enum, default_value_t, global = true)]
    pub output: Format,
}

/// What to do with operations.
#[derive(Debug, Subcommand)]
pub enum OperationsCommand {
    /// Show operations, newest first.
    List(ListArguments),
    /// End operations that have not succeeded.
    Cancel(ActArguments),
    /// Queue failed operations again, each with a fresh budget of attempts.
    Retry(ActArguments),
}

/// Which operations are shown.
#[derive(Debug, Clone, Default, Args)]
pub struct ListArguments {
    /// Only of this scope.
    #[arg(long)]
    pub scope: Option<String>,
    /// Only of this kind: `memory_flush` or `experience_incubation`.
    #[arg(long)]
    pub kind: Option<String>,
    /// Only in this state: queued, running, `retry_wait`, cancelling, succeeded, failed or cancelled.
    #[arg(long)]
    pub status: Option<String>,
    /// Most operations that are shown.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// Which operations are acted on.
#[derive(Debug, Clone, Args)]
pub struct ActArguments {
    /// Their ids.
    #[arg(
        value_name = "ID",
        required_unless_present = "error_code",
        conflicts_with = "error_code"
    )]
    pub ids: Vec<String>,
    /// In place of ids: every failed operation with this error code, such as `provider_timeout`.
    #[arg(long)]
    pub error_code: Option<String>,
}
