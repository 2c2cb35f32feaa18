//! `status`: a deployment as a tree, made from the resource and its events. Pure but for `run`.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::{PowerContextDeployment, RoleStatus, Status};
use serde::Serialize;

use super::args::StatusArguments;
use super::cluster::Cluster;
use super::fault::PluginError;
use super::operator::{self, OperatorSeen};
use super::print::{Colour, Paint, age, count, document, show};
use super::wishes::is_seen;
use super::{DONE, STUCK, UNDER_WAY};
use crate::rt;

/// Events that are shown, the newest last.
const EVENTS_MAX: usize = 8;

/// Everything that the tree shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    namespace: String,
    name: String,
    generation: i64,
    image: String,
    paused: bool,
    /// Whether the status is about the stored spec.
    is_seen: bool,
    /// What is known of the operator, where it has not seen the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    status: Status,
    /// `None`: whoever asks may not list them.
    events: Option<Vec<EventSeen>>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct EventSeen {
    time: String,
    warning: bool,
    reason: String,
    note: String,
}

/// Reads a deployment and prints it.
pub(super) async fn run(cluster: &Cluster, arguments: &StatusArguments) -> Result<u8, PluginError> {
    let resource = cluster.find(arguments.target.name.as_deref()).await?;
    let events = match cluster
        .events_of(resource.metadata.uid.as_deref().unwrap_or_default())
        .await
    {
        Ok(events) => Some(last(&events)),
        Err(PluginError::Forbidden(_)) => None,
        Err(error) => return Err(error),
    };
    let operator = if is_seen(&resource) {
        None
    } else {
        Some(operator::look(cluster).await)
    };
    let report = report(&resource, events, operator.as_ref());
    let text = document(&report, arguments.output)?;
    let text = text.unwrap_or_else(|| tree(&report, rt::time_of_day(), Paint::of_output()));
    show(&text);
    Ok(exit(&report))
}

fn report(
    resource: &PowerContextDeployment,
    events: Option<Vec<EventSeen>>,
    operator: Option<&OperatorSeen>,
) -> Report {
    let meta = &resource.metadata;
    Report {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        image: resource.spec.image.clone(),
        paused: resource.spec.paused,
        is_seen: is_seen(resource),
        operator: operator.map(ToString::to_string),
        status: resource.status.clone().unwrap_or_default(),
        events,
    }
}

/// The last events, the newest last.
fn last(events: &[Event]) -> Vec<EventSeen> {
    let mut seen: Vec<(Timestamp, EventSeen)> = events.iter().map(event).collect();
    seen.sort_by_key(|(time, _)| *time);
    let first = seen.len().saturating_sub(EVENTS_MAX);
    seen.split_off(first).into_iter().map(|(_, event)| event).collect()
}

fn event(event: &Event) -> (Timestamp, EventSeen) {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let time = series.map(|time| time.0);
    let time = time.or(event.last_timestamp.as_ref().map(|time| time.0));
    let time = time
        .or(event.event_time.as_ref().map(|time| time.0))
        .unwrap_or_default();
    let seen = EventSeen {
        time: time.to_string(),
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        note: event.message.clone().unwrap_or_default(),
    };
    (time, seen)
}

fn condition(status: &Status, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|one| one.type_ == kind.as_str())
}

fn holds(status: &Status, kind: ConditionType) -> bool {
    condition(status, kind).is_some_and(|one| one.status == "True")
}

/// What a script may go by.
fn exit(report: &Report) -> u8 {
    let status = &report.status;
    if report.is_seen && holds(status, ConditionType::Ready) && !report.paused {
        DONE
    } else if holds(status, ConditionType::Degraded)
        || holds(status, ConditionType::UpgradeBlocked)
        || condition(status, ConditionType::Migrated).is_some_and(|one| one.reason == Reason::ApprovalRequired.as_str())
    {
        STUCK
    } else {
        UNDER_WAY
    }
}

/// A branch of the tree: a name, what stands beside it, and what is below.
#[derive(Debug, Default)]
struct Branch {
    name: String,
    text: String,
    below: Vec<String>,
}

impl Branch {
    fn new(name: &str, text: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            text: text.into(),
            below: Vec::new(),
        }
    }
}

/// The tree.
fn tree(report: &Report, now: Timestamp, paint: Paint) -> String {
    let status = &report.status;
    let (word, colour) = match exit(report) {
        DONE => ("ready", Colour::Green),
        STUCK => ("needs somebody", Colour::Red),
        _ if report.paused => ("paused", Colour::Yellow),
        _ => ("on its way", Colour::Yellow),
    };
    let mut branches = vec![Branch::new("image", report.image.as_str())];
    if !report.is_seen {
        let seen = status.observed_generation.map_or_else(
            || "it has seen nothing yet".to_owned(),
            |seen| format!("it has seen generation {seen}, and everything below is about that one"),
        );
        let mut branch = Branch::new(
            "operator",
            format!("the spec is generation {}; {seen}", report.generation),
        );
        branch.below.extend(report.operator.clone());
        branches.push(branch);
    }
    branches.push(conditions(status, now, paint));
    branches.push(schema(status));
    branches.push(roles(status));
    branches.push(Branch::new("leaders", leaders(status)));
    branches.push(Branch::new("queue", queue(status)));
    branches.push(events(report, now, paint));
    let name = paint.text(Colour::Bold, &report.name);
    let mut text = format!(
        "{name} in namespace {}: {}\n",
        report.namespace,
        paint.text(colour, word)
    );
    let width = branches
        .iter()
        .map(|branch| branch.name.len())
        .max()
        .unwrap_or_default();
    let end = branches.len() - 1;
    for (number, branch) in branches.iter().enumerate() {
        let (knee, bar) = if number == end {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        let line = format!("{knee} {:<width$}  {}", branch.name, branch.text);
        text.push_str(line.trim_end());
        text.push('\n');
        let last = branch.below.len().saturating_sub(1);
        for (number, below) in branch.below.iter().enumerate() {
            let knee = if number == last { "└─" } else { "├─" };
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{bar} {knee} {below}");
        }
    }
    text
}

/// The conditions that say something: not those of trouble where there is none, nor one that repeats `Ready`.
fn conditions(status: &Status, now: Timestamp, paint: Paint) -> Branch {
    let ready = condition(status, ConditionType::Ready).map(|one| one.reason.as_str());
    let says = |one: &&Condition| {
        let is_silent = one.reason == Reason::AsExpected.as_str();
        let repeats = one.type_ == ConditionType::Progressing.as_str() && ready == Some(one.reason.as_str());
        !is_silent && !repeats
    };
    let shown: Vec<&Condition> = status.conditions.iter().filter(says).collect();
    let widest = |of: fn(&Condition) -> usize| shown.iter().map(|one| of(one)).max().unwrap_or_default();
    let kind_width = widest(|one| one.type_.len());
    let reason_width = widest(|one| one.reason.len());
    let line = |one: &&Condition| {
        let bad_when_true = [ConditionType::Degraded, ConditionType::UpgradeBlocked];
        let is_bad = bad_when_true.iter().any(|kind| kind.as_str() == one.type_);
        let is_pause = one.type_ == ConditionType::Paused.as_str();
        let (mark, colour) = match (one.status == "True", is_bad, is_pause) {
            (true, true, _) => ("✗", Colour::Red),
            (true, false, false) => ("✓", Colour::Green),
            _ => ("·", Colour::Yellow),
        };
        let since = now.as_second() - one.last_transition_time.0.as_second();
        let line = format!(
            "{} {:<kind_width$}  {:<reason_width$}  {:>4}  {}",
            paint.text(colour, mark),
            one.type_,
            one.reason,
            age(since),
            one.message
        );
        line.trim_end().to_owned()
    };
    Branch {
        name: "conditions".to_owned(),
        text: if shown.is_empty() {
            "none yet".to_owned()
        } else {
            String::new()
        },
        below: shown.iter().map(line).collect(),
    }
}

fn schema(status: &Status) -> Branch {
    let schema = &status.schema;
    let mut text = match schema.revision {
        Some(revision) => format!("revision {revision}"),
        None => "revision not known yet".to_owned(),
    };
    if let Some(image) = schema.image_revision.filter(|image| Some(*image) != schema.revision) {
        let _ = write!(text, ", the image works on {image}");
    }
    let is_done = schema.target_hash.is_some() && schema.target_hash == schema.completed_hash;
    text.push_str(if is_done {
        ", migrated"
    } else {
        ", not migrated to the target"
    });
    let mut branch = Branch::new("schema", text);
    if !is_done {
        branch
            .below
            .extend(schema.target_hash.iter().map(|target| format!("target {target}")));
        branch
            .below
            .extend(schema.job_name.iter().map(|job| format!("Job {job}")));
    }
    if let Some(failure) = &schema.last_failure {
        let attempts = count(i64::from(schema.attempts), "attempt");
        branch.below.push(format!("{attempts} ended, the last as {failure}"));
    }
    if !is_done {
        branch
            .below
            .extend(schema.plan.iter().map(|step| format!("step {step}")));
    }
    branch
}

fn roles(status: &Status) -> Branch {
    let all = [
        ("api", &status.roles.api),
        ("scheduler", &status.roles.scheduler),
        ("worker", &status.roles.worker),
        ("background", &status.roles.background),
    ];
    let line = |name: &str, role: &RoleStatus| {
        let build = role
            .build
            .as_deref()
            .map_or_else(String::new, |build| format!("  build {build}"));
        let updated = if role.updated == role.desired && role.replicas == role.desired {
            String::new()
        } else {
            format!(", {} of {} updated", role.updated, role.replicas)
        };
        format!("{name:<10}  {} of {} ready{updated}{build}", role.ready, role.desired)
    };
    let is_there = |role: &RoleStatus| role.desired > 0 || role.replicas > 0;
    let mut branch = Branch::new(
        "roles",
        status
            .mode
            .as_deref()
            .map_or_else(String::new, |mode| format!("mode {mode}")),
    );
    let there = all.into_iter().filter(|(_, role)| is_there(role));
    branch.below = there.map(|(name, role)| line(name, role)).collect();
    if branch.below.is_empty() {
        branch.below.push("none yet".to_owned());
    }
    branch
}

fn leaders(status: &Status) -> String {
    let told: Vec<String> = status
        .leaders
        .iter()
        .map(|leader| {
            let pod = leader.pod.as_deref().unwrap_or("a pod that is not known");
            format!("{}: {pod} (fence {})", leader.lease, leader.fence)
        })
        .collect();
    if told.is_empty() {
        "nobody is known to lead".to_owned()
    } else {
        told.join(", ")
    }
}

fn queue(status: &Status) -> String {
    let Some(queue) = &status.queue else {
        return "not known yet".to_owned();
    };
    let told: Vec<String> = queue
        .depth
        .iter()
        .filter(|(_, items)| **items > 0)
        .map(|(state, items)| format!("{items} {state}"))
        .collect();
    if told.is_empty() {
        return "empty".to_owned();
    }
    let oldest = queue.oldest_age_seconds.filter(|seconds| *seconds > 0);
    let oldest = oldest.map_or_else(String::new, |seconds| {
        format!("; the oldest waits for {}", age(seconds))
    });
    format!("{}{oldest}", told.join(", "))
}

fn events(report: &Report, now: Timestamp, paint: Paint) -> Branch {
    let Some(events) = &report.events else {
        return Branch::new(
            "events",
            format!("you may not list events in namespace {}", report.namespace),
        );
    };
    let width = events.iter().map(|event| event.reason.len()).max().unwrap_or_default();
    let line = |event: &EventSeen| {
        let time: Timestamp = event.time.parse().unwrap_or_default();
        let colour = if event.warning { Colour::Red } else { Colour::Faint };
        let reason = paint.text(colour, &format!("{:<width$}", event.reason));
        format!(
            "{:>4}  {reason}  {}",
            age(now.as_second() - time.as_second()),
            event.note
        )
    };
    Branch {
        name: "events".to_owned(),
        text: if events.is_empty() {
            "none".to_owned()
        } else {
            String::new()
        },
        below: events.iter().map(line).collect(),
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
