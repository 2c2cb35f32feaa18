//! Members of a deployment, and whether they fit together.
//!
//! Live members of one behaviour revision must agree on what they offer (`contract_digest`), those that lead or run work also
//! on how they do it (`execution_digest`). What most of them say is expected; of equally many, what the earliest says. The
//! odd member alone is `misconfigured`, so one stray process takes nobody else down. Members of another revision may live
//! beside them while a roll-out lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::ids::MemberId;
use crate::time::DbTime;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Everything, alone.
    All,
    /// Serves clients.
    Api,
    /// Leads, or stands by to lead.
    Scheduler,
    /// Runs work.
    Worker,
    /// Leads and runs work.
    Background,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::All, Self::Api, Self::Scheduler, Self::Worker, Self::Background];

    /// The stored name, which is also that of the setting and the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Api => "api",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Background => "background",
        }
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// Whether such a process is a candidate to lead.
    pub const fn leads(self) -> bool {
        matches!(self, Self::All | Self::Scheduler | Self::Background)
    }

    /// Whether such a process runs work.
    pub const fn works(self) -> bool {
        matches!(self, Self::All | Self::Worker | Self::Background)
    }

    /// Whether such a process serves clients.
    pub const fn serves(self) -> bool {
        matches!(self, Self::All | Self::Api)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A process as it announces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// New at each start.
    pub id: MemberId,
    /// What it does.
    pub role: Role,
    /// Version of its build.
    pub build: String,
    /// Schema revisions that it works on.
    pub schema: RangeInclusive<u32>,
    /// Payload versions that it reads.
    pub payload: RangeInclusive<u32>,
    /// Name of what its replicas have in common.
    pub revision: String,
    /// Digest of its bindings and of the families that can be triggered.
    pub contract: String,
    /// Digest of schedules, budgets, timeouts and retry; `None` for a role that neither leads nor works.
    pub execution: Option<String>,
    /// When it announced itself, on the database's clock.
    pub started_at: DbTime,
}

/// Why a member does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Odd {
    /// It offers other bindings or families.
    #[error("its bindings or families differ from those of the other members of its behavior revision")]
    Contract,
    /// It would lead or run otherwise.
    #[error(
        "its schedules, budgets, timeouts or retries differ from those of the other members of its behavior revision"
    )]
    Execution,
    /// It works on another schema or reads other payloads.
    #[error("the schema or payload versions of most members of its behavior revision exclude its own")]
    Versions,
}

/// Whether `me` fits the live members; `me` may or may not be among `live`.
///
/// # Errors
/// [`Odd`], the first of its reasons.
pub fn judge(me: &Member, live: &[Member]) -> Result<(), Odd> {
    let others = live.iter().filter(|member| member.id != me.id);
    let peers: Vec<&Member> = others
        .filter(|member| member.revision == me.revision)
        .chain([me])
        .collect();
    if expected(peers.iter().map(|member| (*member, member.contract.as_str()))) != Some(&me.contract) {
        return Err(Odd::Contract);
    }
    let meets = |member: &Member| overlap(&member.schema, &me.schema) && overlap(&member.payload, &me.payload);
    if expected(peers.iter().map(|member| (*member, meets(member)))) != Some(true) {
        return Err(Odd::Versions);
    }
    let executions = peers
        .iter()
        .filter_map(|member| member.execution.as_deref().map(|digest| (*member, digest)));
    match (&me.execution, expected(executions)) {
        (Some(own), Some(most)) if own != most => Err(Odd::Execution),
        _ => Ok(()),
    }
}

fn overlap(a: &RangeInclusive<u32>, b: &RangeInclusive<u32>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

/// What most say; of equally many, what the earliest member says, by its start and then its id.
fn expected<'m, T: Ord + Copy>(said: impl Iterator<Item = (&'m Member, T)>) -> Option<T> {
    let mut groups: BTreeMap<T, (usize, (DbTime, &MemberId))> = BTreeMap::new();
    for (member, what) in said {
        let age = (member.started_at, &member.id);
        let group = groups.entry(what).or_insert((0, age));
        *group = (group.0 + 1, group.1.min(age));
    }
    let best = groups
        .into_iter()
        .min_by_key(|(_, (count, age))| (std::cmp::Reverse(*count), *age));
    best.map(|(what, _)| what)
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
