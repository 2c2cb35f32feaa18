//! The checked settings, and the rules between them.
//!
//! Every section reads all its settings before it gives up on one, so that all faults are told together. A rule between
//! two settings is checked only where both are good by themselves.

use std::num::NonZeroU16;
use std::path::PathBuf;

use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;

use super::access::{AccessSettings, HttpSettings, reach};
use super::fault::{ConfigFault, Origin};
use super::generation::{GenerationSettings, generation};
use super::keys;
use super::names::{DatabaseKind, DatabaseLocation, ExtractionProfile, LogFormat};
use super::notice::Notice;
use super::reader::{Given, Reader, Refused};
use super::spans::{TracingSettings, spans};

/// Everything a single node needs to know. Nothing in here is out of range.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub http: HttpSettings,
    /// What it asks of its callers.
    pub access: AccessSettings,
    /// What it stores in.
    pub database: DatabaseSettings,
    /// Which deployment it belongs to.
    pub deployment: DeploymentSettings,
    /// How long processes count as alive.
    pub coordination: CoordinationSettings,
    /// How it runs work.
    pub worker: WorkerSettings,
    /// How long requests wait.
    pub operations: OperationsSettings,
    /// The Memory family.
    pub memory: MemorySettings,
    /// The model; `None`: this node admits work and does not run it.
    pub generation: Option<GenerationSettings>,
    /// What it logs.
    pub logging: LoggingSettings,
    /// Whether it serves `/metrics`.
    pub metrics: bool,
    /// Where spans go; `None`: none are recorded.
    pub tracing: Option<TracingSettings>,
    /// What is set in vain.
    pub notices: Vec<Notice>,
}

/// What the server stores in.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// Where it is.
    pub location: DatabaseLocation,
    /// Most connections to OceanBase, 4 to 1000.
    pub connections_max: u32,
}

/// Which deployment the process belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentSettings {
    /// Its name, 1 to 128 characters.
    pub id: String,
    /// What all its replicas have in common, 1 to 128 characters.
    pub behavior_revision: String,
}

/// How long processes count as alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinationSettings {
    /// Length of the lease of a process.
    pub member_ttl: Span,
    /// How often it is renewed; three times this is at most the length.
    pub member_heartbeat: Span,
}

/// How work is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Most runs at once, 1 to 256.
    pub concurrency: u32,
    /// Length of a claim.
    pub lease: Span,
    /// How often a claim is renewed; three times this is less than the length.
    pub heartbeat: Span,
    /// How long runs may go on after a request to end; less than the length of a claim.
    pub shutdown_grace: Span,
    /// Longest pause between two looks for work.
    pub poll: Span,
}

/// How long requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationsSettings {
    /// Wait of a flush that does not say; at most the maximum.
    pub default_wait: Span,
    /// Longest wait, at most 30 s.
    pub maximum_wait: Span,
    /// Pause between two looks of those who wait.
    pub poll: Span,
}

/// The Memory family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    /// Most sources of one run, 1 to 100.
    pub window_sources_max: u32,
    /// What the sources are.
    pub profile: ExtractionProfile,
    /// Most runs at once, 1 to 256.
    pub workers_max: NonZeroU16,
    /// Longest run.
    pub timeout: Span,
    /// What follows a failed run.
    pub retry: RetryPolicy,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggingSettings {
    /// Least severe level.
    pub level: tracing::Level,
    /// How lines look.
    pub format: LogFormat,
}

/// Name of the SQLite file in the data folder.
const DATABASE_FILE: &str = "powercontext.db";

/// Reads every section.
pub(super) fn check(mut reader: Reader) -> Result<Settings, Vec<ConfigFault>> {
    match sections(&mut reader) {
        Ok(settings) => {
            let faults = reader.into_faults();
            if faults.is_empty() { Ok(settings) } else { Err(faults) }
        }
        Err(Refused) => Err(reader.into_faults()),
    }
}

fn sections(r: &mut Reader) -> Result<Settings, Refused> {
    let (http, access) = reach(r);
    let database = database(r);
    let deployment = deployment(r);
    let coordination = coordination(r);
    let memory_workers = memory_workers(r);
    let worker = worker(r, memory_workers.as_ref().ok().copied());
    let retry = bounded_retry(r);
    let operations = operations(r);
    let memory = memory(r, memory_workers, retry);
    let generation = generation(r);
    let logging = logging(r);
    let metrics = r.get(&keys::METRICS_ENABLED);
    let tracing = spans(r);
    let scheduler_path = r.optional(&keys::SCHEDULER_PATH);
    let (access, is_token_idle) = access?;
    let is_path_ignored = scheduler_path?.is_some();
    let notices = [
        (is_path_ignored, Notice::SchedulerPathIgnored),
        (is_token_idle, Notice::TokenUnused),
    ];
    let notices = notices
        .into_iter()
        .filter_map(|(holds, notice)| holds.then_some(notice));
    Ok(Settings {
        http: http?,
        access,
        database: database?,
        deployment: deployment?,
        coordination: coordination?,
        worker: worker?,
        operations: operations?,
        memory: memory?,
        generation: generation?,
        logging: logging?,
        metrics: metrics?.value,
        tracing: tracing?,
        notices: notices.collect(),
    })
}

fn database(r: &mut Reader) -> Result<DatabaseSettings, Refused> {
    let kind = r.optional(&keys::DATABASE_KIND);
    let url = r.optional(&keys::DATABASE_URL);
    let size = r.get(&keys::DATABASE_POOL_SIZE);
    let home = r.optional(&keys::HOME);
    let (kind, url) = (kind?, url?);
    let location = match (url, kind) {
        (Some(url), Some(kind)) if url.value.kind() != kind.value => {
            let other = match kind.value {
                DatabaseKind::Sqlite => "a SQLite file",
                DatabaseKind::OceanBase => "OceanBase",
            };
            let reason = format!("does not name {other}, which {} asks for", keys::DATABASE_KIND.name);
            return Err(r.refuse(&keys::DATABASE_URL, url.origin, reason));
        }
        (Some(url), _) => url.value,
        (None, Some(kind)) if kind.value == DatabaseKind::OceanBase => {
            let reason = format!("must be set, because {} is oceanbase", keys::DATABASE_KIND.name);
            return Err(r.refuse(&keys::DATABASE_URL, Origin::Default, reason));
        }
        (None, _) => DatabaseLocation::Sqlite(data_folder(r, home?)?.join(DATABASE_FILE)),
    };
    Ok(DatabaseSettings {
        location,
        connections_max: size?.value,
    })
}

fn data_folder(r: &mut Reader, home: Option<Given<PathBuf>>) -> Result<PathBuf, Refused> {
    if let Some(home) = home {
        return Ok(home.value);
    }
    let data = r.environment(keys::DATA_HOME).map(PathBuf::from);
    let data = data.or_else(|| {
        r.environment(keys::USER_HOME)
            .map(|home| PathBuf::from(home).join(".local/share"))
    });
    data.map(|data| data.join("powercontext")).ok_or_else(|| {
        let reason = format!(
            "must be set, because neither {} nor {} nor {} says where a file could stand",
            keys::HOME.name,
            keys::DATA_HOME,
            keys::USER_HOME
        );
        r.refuse(&keys::DATABASE_URL, Origin::Default, reason)
    })
}

fn deployment(r: &mut Reader) -> Result<DeploymentSettings, Refused> {
    let mode = r.get(&keys::DEPLOYMENT_MODE);
    let role = r.get(&keys::DEPLOYMENT_ROLE);
    let id = r.get(&keys::DEPLOYMENT_ID);
    let revision = r.get(&keys::DEPLOYMENT_BEHAVIOR_REVISION);
    mode?;
    role?;
    Ok(DeploymentSettings {
        id: id?.value,
        behavior_revision: revision?.value,
    })
}

fn coordination(r: &mut Reader) -> Result<CoordinationSettings, Refused> {
    let ttl = r.get(&keys::COORDINATION_MEMBER_TTL_SECONDS);
    let heartbeat = r.get(&keys::COORDINATION_MEMBER_HEARTBEAT_SECONDS);
    let (ttl, heartbeat) = (ttl?, heartbeat?);
    if thrice(heartbeat.value) > ttl.value {
        let reason = format!(
            "three times it must be at most {}",
            keys::COORDINATION_MEMBER_TTL_SECONDS.name
        );
        return Err(r.refuse(&keys::COORDINATION_MEMBER_HEARTBEAT_SECONDS, heartbeat.origin, reason));
    }
    Ok(CoordinationSettings {
        member_ttl: ttl.value,
        member_heartbeat: heartbeat.value,
    })
}

fn thrice(span: Span) -> Span {
    Span::millis(span.as_millis() * 3)
}

fn worker(r: &mut Reader, memory_workers: Option<NonZeroU16>) -> Result<WorkerSettings, Refused> {
    let concurrency = r.optional(&keys::WORKER_CONCURRENCY);
    let lease = r.get(&keys::WORKER_LEASE_SECONDS);
    let heartbeat = r.get(&keys::WORKER_HEARTBEAT_SECONDS);
    let grace = r.get(&keys::WORKER_SHUTDOWN_GRACE_SECONDS);
    let poll = r.get(&keys::WORKER_POLL_SECONDS);
    let lease = lease?.value;
    if let Ok(heartbeat) = &heartbeat
        && thrice(heartbeat.value) >= lease
    {
        let reason = format!("three times it must be less than {}", keys::WORKER_LEASE_SECONDS.name);
        r.refuse(&keys::WORKER_HEARTBEAT_SECONDS, heartbeat.origin, reason);
    }
    if let Ok(grace) = &grace
        && grace.value >= lease
    {
        let reason = format!("must be less than {}", keys::WORKER_LEASE_SECONDS.name);
        r.refuse(&keys::WORKER_SHUTDOWN_GRACE_SECONDS, grace.origin, reason);
    }
    let sum = memory_workers.map(|n| u32::from(n.get()));
    Ok(WorkerSettings {
        concurrency: concurrency?.map(|n| n.value).or(sum).ok_or(Refused)?,
        lease,
        heartbeat: heartbeat?.value,
        shutdown_grace: grace?.value,
        poll: poll?.value,
    })
}

fn bounded_retry(r: &mut Reader) -> Result<RetryPolicy, Refused> {
    let attempts = r.get(&keys::WORKER_MAX_ATTEMPTS);
    let base = r.get(&keys::WORKER_RETRY_BASE_SECONDS);
    let max = r.get(&keys::WORKER_RETRY_MAX_SECONDS);
    let (base, max) = (base?, max?);
    if max.value < base.value {
        let reason = format!("must be at least {}", keys::WORKER_RETRY_BASE_SECONDS.name);
        return Err(r.refuse(&keys::WORKER_RETRY_MAX_SECONDS, max.origin, reason));
    }
    Ok(RetryPolicy::Bounded {
        attempts_max: attempts?.value,
        base: base.value,
        max: max.value,
    })
}

fn operations(r: &mut Reader) -> Result<OperationsSettings, Refused> {
    let default = r.get(&keys::OPERATIONS_DEFAULT_WAIT_SECONDS);
    let maximum = r.get(&keys::OPERATIONS_MAXIMUM_WAIT_SECONDS);
    let poll = r.get(&keys::OPERATIONS_POLL_SECONDS);
    let (default, maximum) = (default?, maximum?);
    if default.value > maximum.value {
        let reason = format!("must be at most {}", keys::OPERATIONS_MAXIMUM_WAIT_SECONDS.name);
        return Err(r.refuse(&keys::OPERATIONS_DEFAULT_WAIT_SECONDS, default.origin, reason));
    }
    Ok(OperationsSettings {
        default_wait: default.value,
        maximum_wait: maximum.value,
        poll: poll?.value,
    })
}

fn memory_workers(r: &mut Reader) -> Result<NonZeroU16, Refused> {
    let workers = r.get(&keys::RUNTIME_MEMORY_MAX_WORKERS)?.value;
    let workers = u16::try_from(workers).ok().and_then(NonZeroU16::new);
    Ok(workers.expect("the rule is 1 to 256"))
}

fn memory(
    r: &mut Reader,
    workers: Result<NonZeroU16, Refused>,
    bounded: Result<RetryPolicy, Refused>,
) -> Result<MemorySettings, Refused> {
    let window = r.get(&keys::RUNTIME_SOURCE_WINDOW_LIMIT);
    let profile = r.get(&keys::RUNTIME_MEMORY_EXTRACTION_PROFILE);
    let timeout = r.get(&keys::RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS);
    let is_bounded = r.get(&keys::RUNTIME_MEMORY_RETRY);
    let bounded = bounded?;
    Ok(MemorySettings {
        window_sources_max: window?.value,
        profile: profile?.value,
        workers_max: workers?,
        timeout: timeout?.value,
        retry: if is_bounded?.value {
            bounded
        } else {
            RetryPolicy::UNBOUNDED
        },
    })
}

fn logging(r: &mut Reader) -> Result<LoggingSettings, Refused> {
    let level = r.get(&keys::LOGGING_LEVEL);
    let format = r.get(&keys::LOGGING_FORMAT);
    Ok(LoggingSettings {
        level: level?.value,
        format: format?.value,
    })
}
