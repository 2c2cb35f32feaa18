//! The migration: one deterministic Job a target, and no role of the target before it succeeded.
//!
//! The end of an attempt is counted by the Job's uid, and the Job is only taken away once the stored status holds the
//! count, so an operator that dies in between counts neither twice nor not at all. Success is stored in the status; from
//! then on the Job may be gone. A refused or misconfigured migration is not repeated, unless what it would be given changed
//! or a person asks for it.

use k8s_openapi::jiff::Timestamp;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::{MigrationPolicy, SchemaStatus};

use super::conditions::Verdict;
use super::seen::{JobSeen, JobState, MigrateReport, PodSeen, Trouble};
use super::{Action, Draft, Gate};
use crate::controller::build::{MIGRATE, PLAN};
use crate::names::{APPROVE_MIGRATION, DESIRED_HASH, RETRY_MIGRATION};
use crate::object::{Key, Kind};

/// How a failed attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Exit 1.
    Refused,
    /// Exit 2.
    Misconfigured,
    /// Exit 3.
    Unreachable,
    /// Ended by the system, by an unknown code, or without a trace.
    Lost,
}

impl Failure {
    const ALL: [Self; 4] = [Self::Refused, Self::Misconfigured, Self::Unreachable, Self::Lost];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Misconfigured => "misconfigured",
            Self::Unreachable => "unreachable",
            Self::Lost => "lost",
        }
    }

    /// What the migrator said itself counts: whoever ended its process after that, or took its pod away, changed nothing.
    fn of(pods: &[&PodSeen]) -> Self {
        let told = pods.iter().find_map(|pod| pod.report.as_ref()?.code);
        let exit = pods.iter().find_map(|pod| pod.exit.as_ref());
        let ended = exit.filter(|exit| !exit.by_system).map(|exit| exit.code);
        match told.or(ended) {
            Some(1) => Self::Refused,
            Some(2) => Self::Misconfigured,
            Some(3) => Self::Unreachable,
            _ => Self::Lost,
        }
    }
}

/// Plans the migration's next step.
pub(super) fn step(draft: &mut Draft<'_>) -> Gate {
    begin(draft);
    remove_plans(draft);
    let gate = decide(draft);
    let blocked = matches!(&gate, Gate::Closed(Reason::SchemaAhead, _));
    let (migrated, block) = match &gate {
        Gate::Open => (
            Verdict::yes(Reason::MigrationSucceeded, "the schema is the one that the image needs"),
            Verdict::no(Reason::AsExpected, ""),
        ),
        Gate::Closed(reason, message) => (
            Verdict::no(*reason, message),
            if blocked {
                Verdict::yes(Reason::SchemaAhead, message)
            } else {
                Verdict::no(Reason::AsExpected, "")
            },
        ),
    };
    draft.conditions.set(ConditionType::Migrated, migrated);
    draft.conditions.set(ConditionType::UpgradeBlocked, block);
    if let Gate::Closed(reason, message) = &gate
        && matches!(
            reason,
            Reason::MigrationRefused
                | Reason::MigrationMisconfigured
                | Reason::MigrationFailed
                | Reason::ImagePullFailed
                | Reason::PodNotCreated
                | Reason::SchemaAhead
        )
    {
        draft.trouble(*reason, message.clone());
    }
    gate
}

/// A new target and a person's wish to try again begin a new count.
fn begin(draft: &mut Draft<'_>) {
    let deployment = draft.input.deployment;
    let schema = &mut draft.status.schema;
    if schema.target_hash.as_ref() != Some(&deployment.target_hash) {
        *schema = SchemaStatus {
            target_hash: Some(deployment.target_hash.clone()),
            job_name: Some(draft.input.objects.migrate.key.name.clone()),
            completed_hash: schema.completed_hash.take(),
            revision: schema.revision,
            retry_token: schema.retry_token.take(),
            ..SchemaStatus::default()
        };
    }
    let wish = deployment.annotations.get(RETRY_MIGRATION);
    if wish.is_some() && schema.retry_token.as_ref() != wish {
        schema.retry_token = wish.cloned();
        forget_failures(schema);
    }
}

/// The Job whose end was counted stays counted, so that it is taken away and not counted again.
fn forget_failures(schema: &mut SchemaStatus) {
    schema.attempts = 0;
    schema.last_failure = None;
    schema.last_attempt_time = None;
}

fn decide(draft: &mut Draft<'_>) -> Gate {
    let deployment = draft.input.deployment;
    let objects = draft.input.objects;
    if let Some(closed) = remove_stale(draft, &objects.migrate.key) {
        return closed;
    }
    if draft.status.schema.completed_hash.as_ref() == Some(&deployment.target_hash) {
        return Gate::Open;
    }
    match draft.live(&objects.migrate.key) {
        None => begin_attempt(draft),
        Some(live) if !draft.is_ours(live) => {
            draft.taken(&objects.migrate.key);
            Gate::Closed(
                Reason::NameTaken,
                format!("Job {} is not ours", objects.migrate.key.name),
            )
        }
        Some(live) => follow(draft, JobSeen { live }),
    }
}

/// Jobs of other targets go. One that is in the middle of its work is left to finish: two migrators would only wait for
/// each other, and a step that ran to its end need not run again.
fn remove_stale(draft: &mut Draft<'_>, current: &Key) -> Option<Gate> {
    let observed = draft.input.observed;
    let mut waits = None;
    for job in observed.jobs(MIGRATE, &draft.input.deployment.uid) {
        if job.name() == current.name || job.is_leaving() {
            continue;
        }
        if job.state() == JobState::Active && observed.pods_of_job(job.name()).any(|pod| pod.running) {
            let message = format!("Job {} of an earlier target is still at work", job.name());
            waits = Some(Gate::Closed(Reason::Migrating, message));
        } else {
            draft.actions.push(Action::Delete(key_of(job)));
        }
    }
    waits
}

fn key_of(job: JobSeen<'_>) -> Key {
    Key {
        kind: Kind::Job,
        name: job.name().to_owned(),
    }
}

/// Whether the migration may begin as far as people are concerned.
fn is_approved(draft: &Draft<'_>) -> bool {
    let deployment = draft.input.deployment;
    deployment.spec.migration.policy == MigrationPolicy::Auto
        || deployment.annotations.get(APPROVE_MIGRATION) == Some(&deployment.target_hash)
}

/// There is no Job: make one, unless something forbids it.
fn begin_attempt(draft: &mut Draft<'_>) -> Gate {
    if let Some(closed) = given_up(draft) {
        return closed;
    }
    if !is_approved(draft) {
        let plan = look_ahead(draft);
        let target = &draft.input.deployment.target_hash;
        let message = format!("{plan}; waits for the annotation {APPROVE_MIGRATION}: {target}");
        return Gate::Closed(Reason::ApprovalRequired, message);
    }
    if let Some(closed) = not_yet(draft) {
        return closed;
    }
    let job = draft.input.objects.migrate.clone();
    let message = format!("Job {} is being made", job.key.name);
    draft.actions.push(Action::Apply(Box::new(job)));
    Gate::Closed(Reason::Migrating, message)
}

/// What the person who approves should know: a Job asks the migrator for its plan, which changes nothing.
fn look_ahead(draft: &mut Draft<'_>) -> &'static str {
    const TOLD: &str = "the plan is in status.schema.plan";
    const ASKED: &str = "the plan is being made";
    const NONE: &str = "the plan could not be made; the log of its Job says why";
    if draft.status.schema.image_revision.is_some() {
        return TOLD;
    }
    let job = &draft.input.objects.plan;
    let Some(live) = draft.live(&job.key) else {
        draft.actions.push(Action::Apply(Box::new(job.clone())));
        return ASKED;
    };
    if !draft.is_ours(live) {
        draft.taken(&job.key);
        return NONE;
    }
    if (JobSeen { live }).state() == JobState::Active {
        return ASKED;
    }
    let observed = draft.input.observed;
    let report = observed.pods_of_job(&job.key.name).find_map(|pod| pod.report.as_ref());
    let Some(report) = report else { return NONE };
    let schema = &mut draft.status.schema;
    note(schema, report);
    schema.revision = Some(report.current);
    TOLD
}

/// Plans that are stored, or of another target, or no longer waited for.
fn remove_plans(draft: &mut Draft<'_>) {
    let stored = &draft.input.status.schema;
    let current = &draft.input.objects.plan.key.name;
    let is_stored = stored.image_revision.is_some() && stored.target_hash == draft.status.schema.target_hash;
    let is_waited_for = !is_stored && !is_approved(draft);
    let observed = draft.input.observed;
    for job in observed.jobs(PLAN, &draft.input.deployment.uid) {
        let is_wanted = is_waited_for && job.name() == current;
        if !job.is_leaving() && !is_wanted {
            draft.actions.push(Action::Delete(key_of(job)));
        }
    }
}

fn follow(draft: &mut Draft<'_>, job: JobSeen<'_>) -> Gate {
    let observed = draft.input.observed;
    let pods: Vec<&PodSeen> = observed.pods_of_job(job.name()).collect();
    let report = pods.iter().find_map(|pod| pod.report.as_ref());
    // How it ended counts, also when it is being removed already.
    match job.state() {
        JobState::Succeeded => {
            succeed(draft, report);
            Gate::Open
        }
        JobState::Active if job.is_leaving() => {
            Gate::Closed(Reason::Migrating, format!("Job {} is being removed", job.name()))
        }
        JobState::Active => active(draft, job, &pods),
        JobState::Failed => {
            let is_stored = draft.input.status.schema.last_job_uid.as_deref() == Some(job.uid());
            if draft.status.schema.last_job_uid.as_deref() != Some(job.uid()) {
                count(draft, job, Failure::of(&pods), report);
            }
            if is_changed(draft, job) {
                // What it would be given is not what it failed with.
                forget_failures(&mut draft.status.schema);
            }
            let closed = given_up(draft).or_else(|| not_yet(draft));
            if closed.is_none() && is_stored && !job.is_leaving() {
                draft.actions.push(Action::Delete(key_of(job)));
            }
            closed.unwrap_or_else(|| {
                Gate::Closed(
                    Reason::MigrationRetrying,
                    "the next attempt is being prepared".to_owned(),
                )
            })
        }
    }
}

/// A Job that runs, or would like to.
fn active(draft: &mut Draft<'_>, job: JobSeen<'_>, pods: &[&PodSeen]) -> Gate {
    let trouble = pods
        .iter()
        .find_map(|pod| pod.trouble.as_ref().map(|trouble| (&pod.name, trouble)));
    if !pods.iter().any(|pod| pod.running) && is_changed(draft, job) {
        draft.actions.push(Action::Delete(key_of(job)));
        return Gate::Closed(
            Reason::Migrating,
            "the Job is made anew from the changed spec".to_owned(),
        );
    }
    match trouble {
        None if pods.is_empty() => Gate::Closed(
            Reason::Migrating,
            format!("Job {} has no pod yet; its events say why if none comes", job.name()),
        ),
        None | Some((_, Trouble::Crash { .. })) => {
            Gate::Closed(Reason::Migrating, format!("Job {} is at work", job.name()))
        }
        Some((pod, Trouble::Image { image, reason })) => Gate::Closed(
            Reason::ImagePullFailed,
            format!("pod {pod} cannot pull image {image}: {reason}"),
        ),
        Some((pod, Trouble::NotCreated { reason })) => {
            Gate::Closed(Reason::PodNotCreated, format!("pod {pod} does not start: {reason}"))
        }
    }
}

/// Whether the Job was made from other inputs than a new one would be. A Job itself can never be changed.
fn is_changed(draft: &Draft<'_>, job: JobSeen<'_>) -> bool {
    let made_from = job.live["metadata"]["annotations"][DESIRED_HASH].as_str();
    let wanted = draft.input.objects.migrate.manifest["metadata"]["annotations"][DESIRED_HASH].as_str();
    made_from != wanted
}

fn succeed(draft: &mut Draft<'_>, report: Option<&MigrateReport>) {
    let target = draft.input.deployment.target_hash.clone();
    let schema = &mut draft.status.schema;
    schema.completed_hash = Some(target);
    forget_failures(schema);
    if let Some(report) = report {
        note(schema, report);
        schema.revision = Some(report.current.max(report.target));
    }
}

fn note(schema: &mut SchemaStatus, report: &MigrateReport) {
    schema.image_revision = Some(report.target);
    schema.image_payload_version = report.payload_version;
    schema.plan = report
        .steps
        .iter()
        .map(|step| {
            let kind = if step.additive { "additive" } else { "not additive" };
            format!("{} {} ({kind})", step.revision, step.name)
        })
        .collect();
}

fn count(draft: &mut Draft<'_>, job: JobSeen<'_>, failure: Failure, report: Option<&MigrateReport>) {
    let now = draft.input.now;
    let schema = &mut draft.status.schema;
    schema.attempts += 1;
    schema.last_job_uid = Some(job.uid().to_owned());
    schema.last_failure = Some(failure.as_str().to_owned());
    schema.last_attempt_time = Some(now.to_string());
    if let Some(report) = report {
        note(schema, report);
        if report.current > 0 {
            schema.revision = Some(report.current);
        }
    }
}

/// Why there will be no further attempt.
fn given_up(draft: &Draft<'_>) -> Option<Gate> {
    let schema = &draft.status.schema;
    let failure = schema.last_failure.as_deref()?;
    let failure = Failure::ALL.into_iter().find(|one| one.as_str() == failure)?;
    let retries = draft.input.deployment.spec.migration.retries;
    let ahead = schema.revision > schema.image_revision && schema.image_revision.is_some();
    let (reason, message) = match failure {
        Failure::Refused if ahead => (
            Reason::SchemaAhead,
            "the image is older than the oldest that may work on the schema; what runs is left alone (exit 1)"
                .to_owned(),
        ),
        Failure::Refused => (
            Reason::MigrationRefused,
            format!("the migrator refused the database (exit 1); its log says why. {AGAIN}"),
        ),
        Failure::Misconfigured => (
            Reason::MigrationMisconfigured,
            format!("the migrator refused its settings (exit 2); its log says which. {AGAIN}"),
        ),
        Failure::Unreachable | Failure::Lost if schema.attempts > retries => (
            Reason::MigrationFailed,
            format!(
                "{} attempts failed, the last as {}. {AGAIN}",
                schema.attempts,
                failure.as_str()
            ),
        ),
        Failure::Unreachable | Failure::Lost => return None,
    };
    Some(Gate::Closed(reason, message))
}

const AGAIN: &str = "It is tried again when its inputs change or the annotation powercontext.io/retry-migration does";

/// Whether the gap after the last attempt is not over.
fn not_yet(draft: &mut Draft<'_>) -> Option<Gate> {
    let schema = &draft.status.schema;
    let last: Timestamp = schema.last_attempt_time.as_deref()?.parse().ok()?;
    let spec = &draft.input.deployment.spec.migration;
    let gap = gap_seconds(spec.backoff_seconds, spec.backoff_max_seconds, schema.attempts);
    let left = last.as_second() + gap - draft.input.now.as_second();
    if left <= 0 {
        return None;
    }
    let message = format!("attempt {} ended; the next begins {gap} s after it", schema.attempts);
    draft.due_in(left);
    Some(Gate::Closed(Reason::MigrationRetrying, message))
}

/// Seconds after that many attempts: doubling up to a bound.
fn gap_seconds(first: i64, most: i64, attempts: i32) -> i64 {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or_default().min(30);
    first.saturating_mul(1 << doublings).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::seen::Exit;

    #[test]
    fn a_failure_is_what_the_migrator_said_else_how_it_ended() {
        let by_itself = |code| Exit { code, by_system: false };
        let by_system = |code| Exit { code, by_system: true };
        for (told, exit, failure) in [
            (None, None, Failure::Lost),
            (None, Some(by_itself(1)), Failure::Refused),
            (None, Some(by_itself(2)), Failure::Misconfigured),
            (None, Some(by_itself(3)), Failure::Unreachable),
            (None, Some(by_itself(9)), Failure::Lost),
            (None, Some(by_system(137)), Failure::Lost),
            (None, Some(by_system(1)), Failure::Lost),
            (Some(1), Some(by_itself(1)), Failure::Refused),
            (Some(2), Some(by_system(137)), Failure::Misconfigured),
            (Some(3), None, Failure::Unreachable),
            // It was done, and was killed before its process had ended; the next one finds nothing to do.
            (Some(0), Some(by_system(137)), Failure::Lost),
        ] {
            let pod = PodSeen {
                exit: exit.clone(),
                report: told.map(|code| MigrateReport {
                    code: Some(code),
                    ..MigrateReport::default()
                }),
                ..PodSeen::default()
            };
            assert_eq!(Failure::of(&[&pod]), failure, "{told:?} {exit:?}");
        }
        assert_eq!(Failure::of(&[]), Failure::Lost);
    }

    #[test]
    fn gaps_double_up_to_their_bound_for_any_number_of_attempts() {
        let gaps: Vec<_> = (1..=8).map(|attempts| gap_seconds(10, 600, attempts)).collect();
        assert_eq!(gaps, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(gap_seconds(3600, 86_400, i32::MAX), 86_400);
    }
}
