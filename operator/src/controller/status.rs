//! The status and the events: written when something changed and not otherwise.

use kube::api::PostParams;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Resource as _};
use powercontext_crds::conditions::ConditionType;
use powercontext_crds::v1alpha1::{PowerContextDeployment, Status};

use crate::error::{ReconcileError, Step, at};
use crate::metrics::Phase;
use crate::plan::{Transition, transitions};

const CONFLICT: u16 = 409;

/// Tries to write a status while others change the rest of the resource.
const TRIES: usize = 4;

/// Writes the status over the very one that was read. Somebody else's status in between is a conflict; somebody's label or
/// spec is none, for the new status says which generation it is about.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn write(
    api: &Api<PowerContextDeployment>,
    resource: &PowerContextDeployment,
    status: Status,
) -> Result<(), ReconcileError> {
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    let mut new = resource.clone();
    new.status = Some(status);
    for _ in 1..TRIES {
        match api.replace_status(name, &PostParams::default(), &new).await {
            Err(kube::Error::Api(refusal)) if refusal.code == CONFLICT => {}
            answer => return answer.map(drop).map_err(at(Step::Status)),
        }
        let Some(now) = api.get_opt(name).await.map_err(at(Step::Status))? else {
            // There is nothing left to tell a status of.
            return Ok(());
        };
        if now.metadata.uid != resource.metadata.uid || now.status != resource.status {
            break;
        }
        new.metadata.resource_version = now.metadata.resource_version;
    }
    let answer = api.replace_status(name, &PostParams::default(), &new).await;
    answer.map(drop).map_err(at(Step::Status))
}

/// Publishes an event for each condition that changed.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn publish(
    recorder: &Recorder,
    resource: &PowerContextDeployment,
    new: &Status,
) -> Result<(), ReconcileError> {
    let old = resource.status.clone().unwrap_or_default();
    // Progressing says what Ready says, the other way round.
    let progressing = ConditionType::Progressing.as_str();
    for transition in transitions(&old, new).into_iter().filter(|one| one.kind != progressing) {
        let event = event(&transition);
        let about = resource.object_ref(&());
        recorder.publish(&event, &about).await.map_err(at(Step::Event))?;
    }
    Ok(())
}

fn event(transition: &Transition) -> Event {
    Event {
        type_: if is_warning(transition) {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: transition.reason.clone(),
        note: Some(format!(
            "{} is {}: {}",
            transition.kind,
            if transition.holds { "true" } else { "false" },
            transition.message
        )),
        // Part of what makes an event another one: conditions that share a reason are told apart.
        action: transition.kind.clone(),
        secondary: None,
    }
}

/// What somebody should look at: it does not go away by waiting.
fn is_warning(transition: &Transition) -> bool {
    let bad = [ConditionType::Degraded, ConditionType::UpgradeBlocked];
    transition.holds && bad.iter().any(|kind| kind.as_str() == transition.kind)
}

/// How a status stands, for the metric.
pub fn phase(status: &Status) -> Phase {
    let holds = |kind: ConditionType| {
        let one = status.conditions.iter().find(|one| one.type_ == kind.as_str());
        one.is_some_and(|one| one.status == "True")
    };
    if holds(ConditionType::Paused) {
        Phase::Paused
    } else if holds(ConditionType::Degraded) {
        Phase::Degraded
    } else if holds(ConditionType::Ready) {
        Phase::Ready
    } else {
        Phase::Progressing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_somebody_is_a_warning() {
        let transition = |kind: ConditionType, holds| Transition {
            kind: kind.as_str().to_owned(),
            holds,
            reason: "R".to_owned(),
            message: "m".to_owned(),
        };
        assert!(is_warning(&transition(ConditionType::Degraded, true)));
        assert!(is_warning(&transition(ConditionType::UpgradeBlocked, true)));
        assert!(!is_warning(&transition(ConditionType::Degraded, false)));
        assert!(!is_warning(&transition(ConditionType::Ready, false)));
    }
}
