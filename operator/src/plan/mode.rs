//! The coordination mode: a change takes every Scheduler down before it is stored, so two modes never live at once.
//!
//! The status holds the mode that the Schedulers run in. Until the Job that stores the new one has succeeded, no
//! Scheduler and no background process is started, whatever else the spec says.

use powercontext_crds::conditions::Reason;
use powercontext_crds::v1alpha1::SupervisorMode;
use serde_json::Value;

use super::seen::{JobSeen, JobState};
use super::{Action, Draft, Gate};
use crate::controller::build::SWITCH_MODE;
use crate::names::Role;
use crate::object::{Key, Kind};

/// Variable in which a Scheduler's pods carry the mode.
const MODE_VARIABLE: &str = "POWERCONTEXT_SERVER_RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE";

/// Plans the mode's next step; [`Gate::Closed`] keeps Schedulers and background processes down.
pub(super) fn step(draft: &mut Draft<'_>, migrated: &Gate) -> Gate {
    let wanted = draft.input.deployment.spec.supervisor.mode.as_str();
    let current = draft.status.mode.clone().or_else(|| live_mode(draft));
    match current {
        None => {
            draft.status.mode = Some(wanted.to_owned());
            Gate::Open
        }
        Some(current) if current == wanted => {
            draft.status.mode = Some(current);
            clean_up(draft);
            Gate::Open
        }
        Some(current) => {
            draft.status.mode = Some(current);
            if *migrated != Gate::Open {
                // The Job runs the new image, which may need the new schema. What runs stays up meanwhile.
                return Gate::Closed(Reason::Waiting, "the change of mode waits for the migration".to_owned());
            }
            switch(draft, wanted)
        }
    }
}

/// What a status that was lost said: the mode of the pods that there are.
fn live_mode(draft: &Draft<'_>) -> Option<String> {
    let base = &draft.input.deployment.base;
    Role::ALL.into_iter().filter(|role| role.schedules()).find_map(|role| {
        let key = Key {
            kind: Kind::Deployment,
            name: base.role(role),
        };
        let env = draft.live(&key)?.pointer("/spec/template/spec/containers/0/env")?;
        let variable = env.as_array()?.iter().find(|one| one["name"] == MODE_VARIABLE)?;
        let mode = variable["value"].as_str()?;
        let known = [SupervisorMode::Global, SupervisorMode::Dedicated].map(SupervisorMode::as_str);
        known.contains(&mode).then(|| mode.to_owned())
    })
}

/// Finished Jobs of earlier changes go, so that a later change back can use their name.
fn clean_up(draft: &mut Draft<'_>) {
    if draft.input.status.mode.as_deref() != draft.status.mode.as_deref() {
        return;
    }
    let observed = draft.input.observed;
    for job in observed.jobs(SWITCH_MODE, &draft.input.deployment.uid) {
        if !job.is_leaving() {
            let name = job.name().to_owned();
            draft.actions.push(Action::Delete(Key { kind: Kind::Job, name }));
        }
    }
}

fn switch(draft: &mut Draft<'_>, wanted: &str) -> Gate {
    let job = &draft.input.objects.switch_mode;
    let live = draft.live(&job.key).filter(|live| draft.is_ours(live));
    let state = live.map(|live| JobSeen { live }.state());
    if state == Some(JobState::Succeeded) {
        draft.status.mode = Some(wanted.to_owned());
        return Gate::Open;
    }
    if let Some(closed) = take_down(draft) {
        return closed;
    }
    let closed = |message: &str| Gate::Closed(Reason::SwitchingMode, message.to_owned());
    match (live, state) {
        (Some(live), Some(JobState::Failed)) => {
            let message = format!(
                "Job {} failed; remove it to try again, or set the mode back",
                job.key.name
            );
            if live["metadata"]["annotations"][crate::names::DESIRED_HASH]
                != job.manifest["metadata"]["annotations"][crate::names::DESIRED_HASH]
            {
                draft.actions.push(Action::Delete(job.key.clone()));
            }
            draft.trouble(Reason::ModeSwitchFailed, message.clone());
            Gate::Closed(Reason::ModeSwitchFailed, message)
        }
        (Some(_), _) => closed("the new mode is being stored"),
        (None, _) if draft.live(&job.key).is_some() => {
            draft.taken(&job.key);
            closed("a Job of that name is not ours")
        }
        (None, _) => {
            draft.actions.push(Action::Apply(Box::new(job.clone())));
            closed("the new mode is being stored")
        }
    }
}

/// Scales everything that schedules to nothing and waits until no pod of it is left, terminating ones included.
fn take_down(draft: &mut Draft<'_>) -> Option<Gate> {
    let mut left = 0;
    for role in Role::ALL.into_iter().filter(|role| role.schedules()) {
        let key = Key {
            kind: Kind::Deployment,
            name: draft.input.deployment.base.role(role),
        };
        let wanted = draft.live(&key).and_then(|live| live.pointer("/spec/replicas"));
        if wanted.and_then(Value::as_i64).is_some_and(|replicas| replicas > 0) {
            let down = draft.input.objects.roles[&role].with_replicas(0);
            draft.actions.push(Action::Apply(Box::new(down)));
            left += 1;
        }
        left += draft.input.observed.pods_of(role.as_str()).count();
    }
    (left > 0).then(|| {
        let message = "waits until every Scheduler of the old mode is gone".to_owned();
        Gate::Closed(Reason::SwitchingMode, message)
    })
}
