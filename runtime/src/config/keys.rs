//! The table: every setting with its group, default, rule and meaning.
//!
//! A setting that is not here is not read. The meaning is the setting's doc comment; units stand in the rule. The order is
//! that of the reference and of the faults.

use std::borrow::Cow;

use super::generation::{BaseUrl, Headers, Model, ModelSettings};
use powercontext_core::limits::PAYLOAD_VERSION_MAX;
use powercontext_core::supervise::member::Role;
use powercontext_core::supervise::mode::Mode;

use super::deployment::DeploymentMode;
use super::names::{DatabaseKind, ExtractionProfile, Folder, Host, Location, LogFormat};
use super::rule::{Flag, Ignored, Label, Millis, NO_PROCESSOR, NoProcessor, OneOf, Rule, Seconds, Secret, Whole};
use super::spans::{Collector, CollectorHeaders};

/// Prefix of all variables of the server but the few that other programs share.
pub const PREFIX: &str = "POWERCONTEXT_SERVER_";

/// What holds when nobody sets a setting.
#[derive(Debug, Clone, Copy)]
pub(super) enum Default {
    /// As if this text were set.
    Text(&'static str),
    /// Unset is a value of its own; this says which.
    Unset(&'static str),
}

/// A setting.
pub(super) struct Key<R: 'static> {
    pub(super) name: &'static str,
    pub(super) rule: R,
    pub(super) default: Default,
    pub(super) help: &'static [&'static str],
}

/// A setting, as the reference shows it.
pub(super) trait Documented: Sync {
    fn name(&self) -> &'static str;
    fn accepted(&self) -> Cow<'static, str>;
    fn default(&self) -> Default;
    fn help(&self) -> &'static [&'static str];
    fn shown(&self, text: &str) -> Option<String>;
    fn is_empty_unset(&self) -> bool;
}

impl<R: Rule> Documented for Key<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn accepted(&self) -> Cow<'static, str> {
        self.rule.accepted()
    }

    fn default(&self) -> Default {
        self.default
    }

    fn help(&self) -> &'static [&'static str] {
        self.help
    }

    fn shown(&self, text: &str) -> Option<String> {
        self.rule.shown(text)
    }

    fn is_empty_unset(&self) -> bool {
        self.rule.is_empty_unset()
    }
}

/// Settings under one heading.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) keys: &'static [&'static dyn Documented],
}

macro_rules! keys {
    ($($title:literal { $($(#[doc = $help:literal])+ $key:ident $(as $name:literal)?: $rule:ty = $value:expr, $default:expr;)+ })+) => {
        $($(
            $(#[doc = $help])+
            pub(super) static $key: Key<$rule> = Key {
                name: keys!(@name $key $($name)?),
                rule: $value,
                default: $default,
                help: &[$($help),+],
            };
        )+)+

        /// Every setting.
        pub(super) static GROUPS: &[Group] = &[$(Group { title: $title, keys: &[$(&$key),+] }),+];
    };
    (@name $key:ident) => { concat!("POWERCONTEXT_SERVER_", stringify!($key)) };
    (@name $key:ident $name:literal) => { $name };
}

use self::Default::{Text, Unset};

/// Longest time that any setting may name, in seconds: a day.
const DAY: u64 = 86_400;
const DAY_MS: u64 = DAY * 1000;
/// Longest pause between two checks of a family, in milliseconds: 31 days.
const MONTH_MS: u64 = 31 * DAY_MS;

const LEVELS: &[(&str, tracing::Level)] = &[
    ("TRACE", tracing::Level::TRACE),
    ("DEBUG", tracing::Level::DEBUG),
    ("INFO", tracing::Level::INFO),
    ("WARNING", tracing::Level::WARN),
    ("WARN", tracing::Level::WARN),
    ("ERROR", tracing::Level::ERROR),
    ("CRITICAL", tracing::Level::ERROR),
];

const fn one_of<T>(names: &'static [(&'static str, T)]) -> OneOf<T> {
    OneOf {
        names,
        any_case: false,
        refused: &[],
    }
}

keys! {
    "HTTP" {
        /// Address to listen on; `::` is every one, also where the machine has no IPv6. One that other machines reach needs `AUTH_ENABLED`, or `ALLOW_UNAUTHENTICATED_NON_LOOPBACK`.
        HTTP_HOST: Host = Host, Text("127.0.0.1");
        /// Port to listen on.
        HTTP_PORT: Whole = Whole(1..=65_535), Text("8000");
        /// How long a process that was asked to end goes on taking connections, each for one answer, so that a balancer learns that it leaves.
        HTTP_LEAVE_SECONDS: Seconds = Seconds(0..=300), Text("0");
        /// Whether callers must bear `AUTH_TOKEN`. The health routes stay open.
        AUTH_ENABLED: Flag = Flag, Text("false");
        /// The token, sent as `Authorization: Bearer TOKEN`. Needed where `AUTH_ENABLED` is true, and of no use where it is not. Secret.
        AUTH_TOKEN: Secret = Secret, Unset("no token");
        /// Listen on an address that other machines reach although nobody has to authenticate. Everything captured is then open to them.
        ALLOW_UNAUTHENTICATED_NON_LOOPBACK: Flag = Flag, Text("false");
        /// Whether each principal is kept to `RATE_LIMIT_REQUESTS`, counted over all replicas in the database.
        RATE_LIMIT_ENABLED: Flag = Flag, Text("false");
        /// Most requests of a principal in a window. Health, `/metrics`, and ten reads a second of operations that go on do not count.
        RATE_LIMIT_REQUESTS: Whole = Whole(1..=1_000_000), Text("120");
        /// Length of a window. Windows begin at whole multiples of it on the database's clock.
        RATE_LIMIT_WINDOW_SECONDS: Seconds = Seconds(1..=DAY), Text("60");
    }
    "Database" {
        /// Which database: only to be sure that `DATABASE_URL` names the one that was meant.
        DATABASE_KIND: OneOf<DatabaseKind> = OneOf {
            names: &[("sqlite", DatabaseKind::Sqlite), ("oceanbase", DatabaseKind::OceanBase)],
            any_case: false,
            refused: &[("seekdb", "seekdb is not supported as a database of the server; use sqlite or oceanbase")],
        }, Unset("what `DATABASE_URL` names");
        /// The database. May hold a password and is never shown.
        DATABASE_URL: Location = Location, Unset("powercontext.db in the data folder");
        /// Most connections to OceanBase, at least 4 where clients are served and for `background`. One more is kept for heartbeats. SQLite has one writer and a few readers whatever this says.
        DATABASE_POOL_SIZE: Whole = Whole(2..=1000), Text("16");
        /// Data folder: where the SQLite file stands when `DATABASE_URL` is unset.
        HOME as "POWERCONTEXT_HOME": Folder = Folder, Unset("`$XDG_DATA_HOME/powercontext`, or `$HOME/.local/share/powercontext`");
    }
    "Deployment" {
        /// Whether one process does everything, or several share the work over OceanBase.
        DEPLOYMENT_MODE: OneOf<DeploymentMode> = one_of(&[
            ("single_node", DeploymentMode::SingleNode),
            ("distributed", DeploymentMode::Distributed),
        ]), Unset("single_node, or distributed where `RUNTIME_ARTIFACT_PROCESSING_ROLE` names a role");
        /// What this process does. A single node does everything.
        DEPLOYMENT_ROLE: OneOf<Role> = one_of(&[
            ("all", Role::All),
            ("api", Role::Api),
            ("scheduler", Role::Scheduler),
            ("worker", Role::Worker),
            ("background", Role::Background),
        ]), Unset("all; a distributed deployment needs one of the others");
        /// Name of the deployment, a label only.
        DEPLOYMENT_ID: Label = Label { chars_max: 128 }, Text("local");
        /// Name of what all replicas must have in common.
        DEPLOYMENT_BEHAVIOR_REVISION: Label = Label { chars_max: 128 }, Text("default");
        /// Of no use: work is scheduled in the database. Accepted from older configurations, and the log says that it is ignored.
        SCHEDULER_PATH: Ignored = Ignored, Unset("nothing");
    }
    "Coordination" {
        /// How long a process that stopped renewing still counts as alive: on OceanBase the start of a single node waits for it.
        COORDINATION_MEMBER_TTL_SECONDS: Seconds = Seconds(3..=DAY), Text("30");
        /// How often a process says that it is alive. Three times it is at most the TTL.
        COORDINATION_MEMBER_HEARTBEAT_SECONDS: Seconds = Seconds(1..=DAY), Text("10");
        /// How long a leader that stopped renewing keeps its term. On SQLite, where one process owns the file, nothing expires.
        COORDINATION_SCHEDULER_LEASE_SECONDS: Seconds = Seconds(3..=DAY), Text("30");
        /// How often a leader renews its term. Three times it is at most the lease.
        COORDINATION_SCHEDULER_RENEW_SECONDS: Seconds = Seconds(1..=DAY), Text("10");
        /// Scopes that a leader reads at once.
        COORDINATION_SCAN_PAGE_SIZE: Whole = Whole(1..=100), Text("100");
        /// Version in which payloads are written.
        COORDINATION_EMIT_PAYLOAD_VERSION: Whole = Whole(1..=PAYLOAD_VERSION_MAX), Text("1");
        /// Let a distributed deployment use a server that says it is seekdb. For test rigs.
        COORDINATION_ALLOW_SEEKDB_SERVER: Flag = Flag, Text("false");
    }
    "Worker" {
        /// Most runs at once.
        WORKER_CONCURRENCY: Whole = Whole(1..=256), Unset("`RUNTIME_MEMORY_MAX_WORKERS`; 4 in a distributed deployment");
        /// How long a claimed item is kept from others without a heartbeat. On SQLite, where one process owns the file, nothing expires.
        WORKER_LEASE_SECONDS: Seconds = Seconds(3..=DAY), Text("120");
        /// How often a running item's lease is renewed. Three times it is less than the lease.
        WORKER_HEARTBEAT_SECONDS: Seconds = Seconds(1..=DAY), Text("30");
        /// How long running items may go on after SIGTERM. Less than the lease.
        WORKER_SHUTDOWN_GRACE_SECONDS: Seconds = Seconds(0..=DAY), Text("90");
        /// Attempts of a bounded family before its item fails and waits for an operator.
        WORKER_MAX_ATTEMPTS: Whole = Whole(1..=100), Text("5");
        /// Ceiling of a bounded family's first delay; it doubles with each attempt.
        WORKER_RETRY_BASE_SECONDS: Millis = Millis(1..=DAY_MS), Text("2");
        /// Ceiling of every delay of a bounded family. At least `WORKER_RETRY_BASE_SECONDS`.
        WORKER_RETRY_MAX_SECONDS: Millis = Millis(1..=DAY_MS), Text("300");
        /// Longest pause between two looks for work when nothing wakes the Worker.
        WORKER_POLL_SECONDS: Millis = Millis(1..=60_000), Text("1");
    }
    "Operations" {
        /// How long a flush waits for its end if the request does not say. At most `OPERATIONS_MAXIMUM_WAIT_SECONDS`.
        OPERATIONS_DEFAULT_WAIT_SECONDS: Seconds = Seconds(0..=30), Text("8");
        /// Longest wait that a request may ask for.
        OPERATIONS_MAXIMUM_WAIT_SECONDS: Seconds = Seconds(0..=30), Text("30");
        /// How often waiting flushes look at the database when nothing wakes them.
        OPERATIONS_POLL_SECONDS: Millis = Millis(1..=30_000), Text("0.2");
        /// How long operations that have succeeded or were cancelled are kept.
        OPERATIONS_RETENTION_DAYS: Whole = Whole(1..=36_500), Text("30");
        /// Rows that maintenance deletes at once.
        OPERATIONS_CLEANUP_BATCH_SIZE: Whole = Whole(1..=500), Text("500");
        /// Pause between two clean-ups; one that leaves something over goes on at once.
        OPERATIONS_CLEANUP_INTERVAL_SECONDS: Seconds = Seconds(1..=DAY), Text("3600");
    }
    "Runtime" {
        /// Most Sources that one run reads.
        RUNTIME_SOURCE_WINDOW_LIMIT: Whole = Whole(1..=100), Text("100");
        /// What kind of text Memory is extracted from.
        RUNTIME_MEMORY_EXTRACTION_PROFILE: OneOf<ExtractionProfile> = one_of(&[
            ("coding", ExtractionProfile::Coding),
            ("conversation", ExtractionProfile::Conversation),
        ]), Text("coding");
        /// Most Memory runs at once, over all processes of a deployment.
        RUNTIME_MEMORY_MAX_WORKERS: Whole = Whole(1..=256), Unset("4; no cap in a distributed deployment");
        /// How often Memory is extracted from what was captured by itself.
        RUNTIME_MEMORY_SCHEDULE_SECONDS: Millis = Millis(1..=MONTH_MS), Unset("only on request");
        /// Older name of `RUNTIME_MEMORY_SCHEDULE_SECONDS`.
        RUNTIME_SCHEDULE_SECONDS: Millis = Millis(1..=MONTH_MS), Unset("`RUNTIME_MEMORY_SCHEDULE_SECONDS`");
        /// Longest Memory run.
        RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS: Millis = Millis(1..=DAY_MS), Text("600");
        /// Whether Memory gives up after `WORKER_MAX_ATTEMPTS`, or tries for ever with delays from 30 s to 30 min.
        RUNTIME_MEMORY_RETRY: OneOf<bool> = one_of(&[("bounded", true), ("unbounded", false)]), Text("bounded");
        /// One Supervisor for all families, or one for each. `powercontext server switch-mode` changes the stored mode.
        RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE: OneOf<Mode> = one_of(&[
            ("global", Mode::Global),
            ("dedicated", Mode::Dedicated),
        ]), Text("global");
        /// Older name of a role: `api` or `background` without `DEPLOYMENT_MODE` means a distributed deployment with that role.
        RUNTIME_ARTIFACT_PROCESSING_ROLE: OneOf<Role> = one_of(&[
            ("all", Role::All),
            ("api", Role::Api),
            ("background", Role::Background),
        ]), Unset("it says nothing, as `all` does");
        /// This build has no processor for it.
        RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS: NoProcessor = NoProcessor, Unset("never");
        /// This build has no processor for it.
        RUNTIME_EXPERIENCE_SCHEDULE_SECONDS: NoProcessor = NoProcessor, Unset("never");
        /// This build has no processor for it.
        RUNTIME_PROFILE_SCHEDULE_ENABLED: OneOf<()> = OneOf {
            names: &[("false", ())],
            any_case: true,
            refused: &[("true", NO_PROCESSOR), ("1", NO_PROCESSOR), ("yes", NO_PROCESSOR), ("on", NO_PROCESSOR)],
        }, Text("false");
        /// Nothing of this family is scheduled.
        RUNTIME_SKILL_SCHEDULE_SECONDS: NoProcessor = NoProcessor, Unset("never");
        /// Nothing of this family is scheduled.
        RUNTIME_HANDOFF_SCHEDULE_SECONDS: NoProcessor = NoProcessor, Unset("never");
        /// Targets of external skills on this host. A distributed deployment cannot have them; this release does nothing with them.
        EXTERNAL_SKILLS: Ignored = Ignored, Unset("none");
    }
    "Inference" {
        /// Whether a process of the role `api` holds the model as well. Schedulers never do.
        INFERENCE_API_ACCESS: Flag = Flag, Text("false");
        /// The model that generates. Without one, work is admitted and waits.
        INFERENCE_GENERATION_MODEL: Model = Model, Unset("no model");
        /// Address of its provider, up to and including the version.
        INFERENCE_GENERATION_BASE_URL: BaseUrl = BaseUrl, Unset("https://api.openai.com/v1 or https://api.anthropic.com/v1, which need their key");
        /// Plain http to a provider on another machine, as inside a cluster: prompts, answers and keys can be read on their way.
        ALLOW_INSECURE_HTTP: Flag = Flag, Text("false");
        /// More headers of every request. Secret.
        INFERENCE_GENERATION_HEADERS: Headers = Headers, Text("{}");
        /// More members of every request's body, such as `temperature` or `max_tokens`.
        INFERENCE_GENERATION_MODEL_SETTINGS: ModelSettings = ModelSettings, Text("{}");
        /// Context window of the model in tokens. A run reads as many Sources as fit into a part of it.
        INFERENCE_GENERATION_MODEL_CONTEXT_WINDOW_TOKENS: Whole = Whole(1_000..=100_000_000), Text("125000");
        /// Time for one answer, its repair included.
        INFERENCE_GENERATION_TIMEOUT_SECONDS: Millis = Millis(1..=DAY_MS), Text("30");
        /// Most requests for one answer: the first, and repairs of an answer that breaks its contract.
        INFERENCE_GENERATION_MAX_REQUESTS: Whole = Whole(1..=10), Text("2");
        /// Key for models of `openai-chat`, sent as a bearer token. Secret.
        OPENAI_API_KEY as "OPENAI_API_KEY": Secret = Secret, Unset("no key");
        /// Key for models of `anthropic`, sent as `x-api-key`. Secret.
        ANTHROPIC_API_KEY as "ANTHROPIC_API_KEY": Secret = Secret, Unset("no key");
    }
    "Observation" {
        /// Least severe messages that are logged.
        LOGGING_LEVEL: OneOf<tracing::Level> = OneOf { names: LEVELS, any_case: true, refused: &[] }, Text("INFO");
        /// How log lines look: for people, or one JSON object each.
        LOGGING_FORMAT: OneOf<LogFormat> = one_of(&[("console", LogFormat::Console), ("json", LogFormat::Json)]), Text("console");
        /// Whether `/metrics` is served.
        METRICS_ENABLED: Flag = Flag, Text("true");
        /// Whether spans are sent to a collector (OTLP over HTTP, protobuf).
        TRACING_ENABLED: Flag = Flag, Unset("true where `OTEL_EXPORTER_OTLP_ENDPOINT` is set");
        /// Address of the collector; `/v1/traces` is appended.
        OTEL_EXPORTER_OTLP_ENDPOINT as "OTEL_EXPORTER_OTLP_ENDPOINT": Collector = Collector, Unset("http://localhost:4318 where `TRACING_ENABLED` is true");
        /// Headers of every request to the collector. Secret.
        OTEL_EXPORTER_OTLP_HEADERS as "OTEL_EXPORTER_OTLP_HEADERS": CollectorHeaders = CollectorHeaders, Unset("no headers");
        /// Longest time for one batch of spans in milliseconds, tries again included. A collector that does not take it costs the batch and nothing else.
        OTEL_EXPORTER_OTLP_TIMEOUT as "OTEL_EXPORTER_OTLP_TIMEOUT": Whole = Whole(1..=60_000), Text("10000");
        /// Name of the service in its spans.
        OTEL_SERVICE_NAME as "OTEL_SERVICE_NAME": Label = Label { chars_max: 128 }, Text("powercontext");
    }
}

/// Where user data belongs, as the desktop says; read from the environment only and no settings of ours.
pub(super) const DATA_HOME: &str = "XDG_DATA_HOME";
/// The user's folder.
pub(super) const USER_HOME: &str = "HOME";
