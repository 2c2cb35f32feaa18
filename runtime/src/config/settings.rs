//! The checked settings, and the rules between them.
//!
//! Every section reads all its settings before it gives up on one, so that all faults are told together. A rule between
//! two settings is checked only where both are good by themselves.

use std::num::NonZeroU16;
use std::path::PathBuf;

use powercontext_core::supervise::member::Role;
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;

use super::access::{AccessSettings, HttpSettings, reach};
use super::deployment::{
    DeploymentMode, DeploymentSettings, MaintenanceSettings, Purpose, SupervisionSettings, absent_families, deployment,
    fits, maintenance, memory_schedule, supervision,
};
use super::fault::{ConfigFault, Origin};
use super::generation::{GenerationSettings, generation};
use super::keys;
use super::names::{DatabaseKind, DatabaseLocation, ExtractionProfile, LogFormat};
use super::notice::Notice;
use super::reader::{Given, Reader, Refused};
use super::spans::{TracingSettings, spans};

/// Everything a process needs to know. Nothing in here is out of range.
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
    /// How families are supervised.
    pub supervision: SupervisionSettings,
    /// How long what is over is kept.
    pub maintenance: MaintenanceSettings,
    /// How it runs work.
    pub worker: WorkerSettings,
    /// How long requests wait.
    pub operations: OperationsSettings,
    /// The Memory family.
    pub memory: MemorySettings,
    /// The model; `None`: this process admits work and does not run it. Schedulers have none whatever is set, and an API only
    /// where it is let.
    pub generation: Option<GenerationSettings>,
    /// What it logs.
    pub logging: LoggingSettings,
    /// Whether it serves `/metrics`.
    pub metrics: bool,
    /// Where spans go; `None`: none are recorded.
    pub tracing: Option<TracingSettings>,
    /// What is set in vain.
    pub notices: Vec<Notice>,
    /// Older names that are in use.
    pub aliases: Vec<&'static str>,
}

/// What the server stores in.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// Where it is.
    pub location: DatabaseLocation,
    /// Most connections to OceanBase, 2 to 1000, and enough for the role.
    pub connections_max: u32,
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
    /// Most runs at once, 1 to 256; `None` for no cap.
    pub workers_max: Option<NonZeroU16>,
    /// How often it is checked by itself; `None`: never.
    pub schedule: Option<Span>,
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

/// Runs at once where nothing says how many.
const CONCURRENCY: u32 = 4;
/// Name of the SQLite file in the data folder.
const DATABASE_FILE: &str = "powercontext.db";

/// Reads every section.
pub(super) fn check(mut reader: Reader, purpose: Purpose) -> Result<Settings, Vec<ConfigFault>> {
    match sections(&mut reader, purpose) {
        Ok(settings) => {
            let faults = reader.into_faults();
            if faults.is_empty() { Ok(settings) } else { Err(faults) }
        }
        Err(Refused) => Err(reader.into_faults()),
    }
}

fn sections(r: &mut Reader, purpose: Purpose) -> Result<Settings, Refused> {
    let deployment = deployment(r, purpose);
    let role = deployment.as_ref().map_or(Role::All, |deployment| deployment.role);
    let (http, access) = reach(r, role.serves() && purpose == Purpose::Role);
    let database = database(r);
    let fits = match (&deployment, &database) {
        (Ok(deployment), Ok(database)) => fits(r, purpose, deployment, database),
        _ => Err(Refused),
    };
    let coordination = coordination(r);
    let supervision = supervision(r);
    let is_alone = deployment
        .as_ref()
        .is_ok_and(|it| it.mode == DeploymentMode::SingleNode);
    let memory_workers = memory_workers(r, is_alone);
    let worker = worker(r, memory_workers);
    let retry = bounded_retry(r);
    let operations = operations(r);
    let maintenance = maintenance(r);
    let schedule = memory_schedule(r);
    let generation = held_generation(r, role);
    if let Ok(generation) = &generation
        && purpose == Purpose::Role
    {
        needs_model(
            r,
            role,
            generation.is_some(),
            schedule.as_ref().ok().and_then(Option::as_ref),
        );
    }
    let memory = memory(r, memory_workers, retry, schedule);
    let absent = absent_families(r);
    let logging = logging(r);
    let metrics = r.get(&keys::METRICS_ENABLED);
    let tracing = spans(r);
    let scheduler_path = r.optional(&keys::SCHEDULER_PATH);
    let has_external = r
        .text(keys::EXTERNAL_SKILLS.name)
        .is_some_and(|(text, _)| !text.is_empty());
    let (access, is_token_idle) = access?;
    let is_path_ignored = scheduler_path?.is_some();
    absent?;
    fits?;
    let notices = [
        (has_external, Notice::ExternalSkillsIgnored),
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
        supervision: supervision?,
        maintenance: maintenance?,
        worker: worker?,
        operations: operations?,
        memory: memory?,
        generation: generation?,
        logging: logging?,
        metrics: metrics?.value,
        tracing: tracing?,
        notices: notices.collect(),
        aliases: aliases(r),
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

/// The older names that are set.
fn aliases(r: &Reader) -> Vec<&'static str> {
    let older = [
        keys::RUNTIME_SCHEDULE_SECONDS.name,
        keys::RUNTIME_ARTIFACT_PROCESSING_ROLE.name,
    ];
    older.into_iter().filter(|name| r.text(name).is_some()).collect()
}

/// The model as far as the role may hold one. A Scheduler has no use for a key, and an API only where it is let.
fn held_generation(r: &mut Reader, role: Role) -> Result<Option<GenerationSettings>, Refused> {
    let is_let = r.get(&keys::INFERENCE_API_ACCESS)?.value;
    if role.works() || (role == Role::Api && is_let) {
        generation(r)
    } else {
        Ok(None)
    }
}

/// A role that runs work needs a model, and so does a single node that would check by itself.
fn needs_model(r: &mut Reader, role: Role, has_model: bool, schedule: Option<&Given<Span>>) {
    if has_model || !role.works() {
        return;
    }
    if role != Role::All {
        let reason = format!("must be set, because the role {role} runs work");
        r.refuse(&keys::INFERENCE_GENERATION_MODEL, Origin::Default, reason);
    } else if let Some(schedule) = schedule {
        let reason = format!(
            "needs {}, without which nothing could run",
            keys::INFERENCE_GENERATION_MODEL.name
        );
        r.refuse(&keys::RUNTIME_MEMORY_SCHEDULE_SECONDS, schedule.origin, reason);
    }
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

pub(super) fn thrice(span: Span) -> Span {
    Span::millis(span.as_millis() * 3)
}

fn worker(r: &mut Reader, memory_workers: Result<Option<NonZeroU16>, Refused>) -> Result<WorkerSettings, Refused> {
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
    let sum = memory_workers
        .ok()
        .map(|workers| workers.map_or(CONCURRENCY, |n| u32::from(n.get())));
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

/// The cap of Memory; a single node has one also where nobody set it.
fn memory_workers(r: &mut Reader, is_alone: bool) -> Result<Option<NonZeroU16>, Refused> {
    let workers = r.optional(&keys::RUNTIME_MEMORY_MAX_WORKERS)?.map(|given| given.value);
    let workers = workers.or(is_alone.then_some(CONCURRENCY));
    Ok(workers.map(|workers| {
        let workers = u16::try_from(workers).ok().and_then(NonZeroU16::new);
        workers.expect("the rule is 1 to 256")
    }))
}

fn memory(
    r: &mut Reader,
    workers: Result<Option<NonZeroU16>, Refused>,
    bounded: Result<RetryPolicy, Refused>,
    schedule: Result<Option<Given<Span>>, Refused>,
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
        schedule: schedule?.map(|given| given.value),
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
