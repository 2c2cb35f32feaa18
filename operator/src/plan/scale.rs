//! How many pods a role should have now, and which of its Workers go first when there should be fewer.
//!
//! A ReplicaSet that shrinks takes the pods with the lowest deletion cost first. The cost is the number of runs a Worker
//! holds, and it is written only in the pass that lowers the number of pods; at other times it would be a write for nothing.

use powercontext_crds::conditions::Reason;

use super::seen::DeploymentSeen;
use super::{Action, Draft};
use crate::controller::build::replicas;
use crate::names::Role;

/// Cost of a Worker that did not say what it holds: it may be busy.
const UNKNOWN_COST: i32 = 1_000;

/// Pods that the role should have: the spec's number, or what the autoscaler made of it within its limits.
pub(super) fn desired(draft: &Draft<'_>, role: Role, live: Option<DeploymentSeen<'_>>) -> i32 {
    let spec = &draft.input.deployment.spec;
    let number = replicas(draft.input.deployment, role);
    match (role, &spec.autoscaling.api, live) {
        (Role::Api, Some(scaling), Some(live)) => live.wanted().clamp(scaling.min_replicas, scaling.max_replicas),
        _ => number,
    }
}

/// Before Workers become fewer: what each of them holds.
pub(super) fn costs(draft: &mut Draft<'_>, role: Role, live: DeploymentSeen<'_>, replicas: i32) {
    if !role.works() || replicas >= live.wanted() {
        return;
    }
    let observed = draft.input.observed;
    for pod in observed.pods_of(role.as_str()).filter(|pod| !pod.terminating) {
        let held = draft.input.facts.in_flight.get(&pod.name);
        let cost = held.map_or(UNKNOWN_COST, |held| i32::try_from(*held).unwrap_or(UNKNOWN_COST));
        if pod.deletion_cost.unwrap_or_default() != cost {
            let pod = pod.name.clone();
            draft.actions.push(Action::DeletionCost { pod, cost });
        }
    }
}

/// Whether surplus Workers are still finishing what they hold.
pub(super) fn draining(draft: &Draft<'_>, role: Role, replicas: i32) -> Option<(Reason, String)> {
    if !role.works() {
        return None;
    }
    let leaving = draft
        .input
        .observed
        .pods_of(role.as_str())
        .filter(|pod| pod.terminating)
        .count();
    let alive = draft
        .input
        .observed
        .pods_of(role.as_str())
        .filter(|pod| !pod.terminating)
        .count();
    let is_surplus = leaving > 0 && i32::try_from(alive).unwrap_or(i32::MAX) <= replicas;
    is_surplus.then(|| (Reason::Draining, format!("{leaving} {role} pods finish what they hold")))
}
