//! What this process is in its deployment: mode, role, and what its replicas have in common.
//!
//! `RUNTIME_ARTIFACT_PROCESSING_ROLE` is the older name of a role: `api` or `background` without a mode means a distributed
//! deployment with that role; unset or `all` it says nothing; against another word it is a fault.

use powercontext_core::supervise::member::Role;
use powercontext_core::supervise::mode::Mode;
use powercontext_core::time::Span;

use super::fault::Origin;
use super::keys;
use super::names::DatabaseLocation;
use super::reader::{Given, Reader, Refused};
use super::settings::{DatabaseSettings, Settings, thrice};

/// What the settings are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A role that runs.
    Role,
    /// A command that needs the database alone. A distributed deployment need not say its role then.
    Database,
}

/// How many server processes a deployment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeploymentMode {
    /// One, which does everything.
    SingleNode,
    /// Several, each with its role.
    Distributed,
}

/// Which deployment the process belongs to, and what it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentSettings {
    /// One process, or several.
    pub mode: DeploymentMode,
    /// What this one does; [`Role::All`] for a command of a distributed deployment that runs no role.
    pub role: Role,
    /// Its name, 1 to 128 characters.
    pub id: String,
    /// What all its replicas have in common, 1 to 128 characters.
    pub behavior_revision: String,
}

/// How families are supervised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisionSettings {
    /// One Supervisor for all families, or one for each.
    pub mode: Mode,
    /// Length of a leader's term.
    pub lease: Span,
    /// How often it is renewed; three times this is at most the length.
    pub renew: Span,
    /// Scopes read at once, 1 to 100.
    pub page_size: u32,
    /// Version in which this process writes payloads, one of [`PAYLOAD_VERSIONS`](powercontext_core::limits::PAYLOAD_VERSIONS).
    pub emits: u32,
    /// Whether a distributed deployment may use a server that says it is seekdb.
    pub allow_seekdb: bool,
}

/// How long what is over is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// How long an ended item is kept.
    pub retention: Span,
    /// Rows deleted at once, 1 to 500.
    pub batch: u32,
    /// Pause between two clean-ups.
    pub interval: Span,
}

pub(super) fn deployment(r: &mut Reader, purpose: Purpose) -> Result<DeploymentSettings, Refused> {
    let mode = r.optional(&keys::DEPLOYMENT_MODE);
    let role = r.optional(&keys::DEPLOYMENT_ROLE);
    let older = r.optional(&keys::RUNTIME_ARTIFACT_PROCESSING_ROLE);
    let id = r.get(&keys::DEPLOYMENT_ID);
    let revision = r.get(&keys::DEPLOYMENT_BEHAVIOR_REVISION);
    let external = r.optional(&keys::EXTERNAL_SKILLS);
    let older = older?.filter(|older| older.value != Role::All);
    let (mode, role) = place(r, purpose, mode?, role?, older)?;
    if mode == DeploymentMode::Distributed
        && let Some(external) = external?
    {
        let reason = "names targets on this host, which a distributed deployment cannot have";
        // Noted: what else the deployment cannot have is told beside it.
        r.refuse(&keys::EXTERNAL_SKILLS, external.origin, reason);
    }
    Ok(DeploymentSettings {
        mode,
        role,
        id: id?.value,
        behavior_revision: revision?.value,
    })
}

fn place(
    r: &mut Reader,
    purpose: Purpose,
    mode: Option<Given<DeploymentMode>>,
    role: Option<Given<Role>>,
    older: Option<Given<Role>>,
) -> Result<(DeploymentMode, Role), Refused> {
    if let (Some(role), Some(older)) = (&role, &older)
        && role.value != older.value
    {
        let reason = format!("says another role than {}", keys::DEPLOYMENT_ROLE.name);
        return Err(r.refuse(&keys::RUNTIME_ARTIFACT_PROCESSING_ROLE, older.origin, reason));
    }
    let is_implied = older.is_some();
    let mode = match (mode, is_implied) {
        (Some(mode), _) => mode.value,
        (None, true) => DeploymentMode::Distributed,
        (None, false) => DeploymentMode::SingleNode,
    };
    match (mode, role.or(older)) {
        (DeploymentMode::SingleNode, None) => Ok((mode, Role::All)),
        (DeploymentMode::SingleNode, Some(role)) if role.value == Role::All => Ok((mode, Role::All)),
        (DeploymentMode::SingleNode, Some(role)) => {
            let reason = format!(
                "a single node does everything; this role needs {} to be distributed",
                keys::DEPLOYMENT_MODE.name
            );
            let refused = if is_implied {
                r.refuse(&keys::RUNTIME_ARTIFACT_PROCESSING_ROLE, role.origin, reason)
            } else {
                r.refuse(&keys::DEPLOYMENT_ROLE, role.origin, reason)
            };
            Err(refused)
        }
        (DeploymentMode::Distributed, None) if purpose == Purpose::Database => Ok((mode, Role::All)),
        (DeploymentMode::Distributed, role) => match role {
            Some(role) if role.value != Role::All => Ok((mode, role.value)),
            role => {
                let reason = format!(
                    "must be api, scheduler, worker or background, because {} is distributed",
                    keys::DEPLOYMENT_MODE.name
                );
                let origin = role.map_or(Origin::Default, |role| role.origin);
                // Noted: what no role of such a deployment can have is told beside it.
                r.refuse(&keys::DEPLOYMENT_ROLE, origin, reason);
                Ok((mode, Role::All))
            }
        },
    }
}

/// What a distributed deployment asks of its database: a server that several processes can share, and room in the pool.
pub(super) fn fits(
    r: &mut Reader,
    purpose: Purpose,
    deployment: &DeploymentSettings,
    database: &DatabaseSettings,
) -> Result<(), Refused> {
    if purpose == Purpose::Database {
        return Ok(());
    }
    let is_file = matches!(database.location, DatabaseLocation::Sqlite(_));
    if is_file && deployment.mode == DeploymentMode::Distributed {
        let reason = "a SQLite file belongs to one process; a distributed deployment needs OceanBase";
        let origin = r.origin(&keys::DATABASE_URL);
        return Err(r.refuse(&keys::DATABASE_URL, origin, reason));
    }
    let least = connections_min(deployment.role);
    if !is_file && database.connections_max < least {
        let reason = format!("the role {} needs at least {least}", deployment.role);
        let origin = r.origin(&keys::DATABASE_POOL_SIZE);
        return Err(r.refuse(&keys::DATABASE_POOL_SIZE, origin, reason));
    }
    Ok(())
}

/// Fewest connections with which a role does its work; one more is kept for heartbeats alone.
pub(super) const fn connections_min(role: Role) -> u32 {
    match role {
        Role::Scheduler | Role::Worker => 2,
        Role::All | Role::Api | Role::Background => 4,
    }
}

pub(super) fn supervision(r: &mut Reader) -> Result<SupervisionSettings, Refused> {
    let mode = r.get(&keys::RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE);
    let lease = r.get(&keys::COORDINATION_SCHEDULER_LEASE_SECONDS);
    let renew = r.get(&keys::COORDINATION_SCHEDULER_RENEW_SECONDS);
    let page_size = r.get(&keys::COORDINATION_SCAN_PAGE_SIZE);
    let version = r.get(&keys::COORDINATION_EMIT_PAYLOAD_VERSION);
    let allow_seekdb = r.get(&keys::COORDINATION_ALLOW_SEEKDB_SERVER);
    let (lease, renew) = (lease?, renew?);
    if thrice(renew.value) > lease.value {
        let name = keys::COORDINATION_SCHEDULER_LEASE_SECONDS.name;
        let reason = format!("three times it must be at most {name}");
        return Err(r.refuse(&keys::COORDINATION_SCHEDULER_RENEW_SECONDS, renew.origin, reason));
    }
    Ok(SupervisionSettings {
        mode: mode?.value,
        lease: lease.value,
        renew: renew.value,
        page_size: page_size?.value,
        emits: version?.value,
        allow_seekdb: allow_seekdb?.value,
    })
}

pub(super) fn maintenance(r: &mut Reader) -> Result<MaintenanceSettings, Refused> {
    let retention = r.get(&keys::OPERATIONS_RETENTION_DAYS);
    let batch = r.get(&keys::OPERATIONS_CLEANUP_BATCH_SIZE);
    let interval = r.get(&keys::OPERATIONS_CLEANUP_INTERVAL_SECONDS);
    Ok(MaintenanceSettings {
        retention: Span::seconds(u64::from(retention?.value) * 86_400),
        batch: batch?.value,
        interval: interval?.value,
    })
}

/// When Memory is checked; the shorter name is an older one.
pub(super) fn memory_schedule(r: &mut Reader) -> Result<Option<Given<Span>>, Refused> {
    let named = r.optional(&keys::RUNTIME_MEMORY_SCHEDULE_SECONDS);
    let older = r.optional(&keys::RUNTIME_SCHEDULE_SECONDS);
    match (named?, older?) {
        (Some(named), Some(older)) if named.value != older.value => {
            let reason = format!("differs from {}", keys::RUNTIME_MEMORY_SCHEDULE_SECONDS.name);
            Err(r.refuse(&keys::RUNTIME_SCHEDULE_SECONDS, older.origin, reason))
        }
        (named, older) => Ok(named.or(older)),
    }
}

/// Settings of families that this build does not have: each is refused by its own rule.
pub(super) fn absent_families(r: &mut Reader) -> Result<(), Refused> {
    let topic = r.optional(&keys::RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS);
    let experience = r.optional(&keys::RUNTIME_EXPERIENCE_SCHEDULE_SECONDS);
    let skill = r.optional(&keys::RUNTIME_SKILL_SCHEDULE_SECONDS);
    let handoff = r.optional(&keys::RUNTIME_HANDOFF_SCHEDULE_SECONDS);
    let profile = r.get(&keys::RUNTIME_PROFILE_SCHEDULE_ENABLED);
    topic?;
    experience?;
    skill?;
    handoff?;
    profile.map(|_| ())
}

impl Settings {
    /// Whether this process only serves health and metrics.
    pub fn is_health_only(&self) -> bool {
        !self.deployment.role.serves()
    }
}
