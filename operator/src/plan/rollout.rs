//! Role after role: Workers and background processes, then Schedulers, then APIs; a roll-back the other way round.
//!
//! A role is rolled out when its Deployment is completely updated *and* its live members report the new build. Until then
//! the next role keeps the template it has. Changes that leave the template alone, such as the number of pods, wait for
//! nobody. Workers go back to an older image only when no work of a newer payload version is left.

use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::RoleStatus;

use super::conditions::Verdict;
use super::seen::{DeploymentSeen, Trouble};
use super::{Action, Draft, Gate, scale};
use crate::names::{Role, TEMPLATE_HASH};
use crate::object::Object;

/// Payload versions that an image runs whose migrator does not say: the first.
const FIRST_PAYLOAD_VERSION: i64 = 1;

/// How a role stands.
struct Standing {
    role: Role,
    desired: i32,
    verdict: Result<(), (Reason, String)>,
}

/// Plans the roles' next step.
pub(super) fn step(draft: &mut Draft<'_>, migrated: &Gate, moded: &Gate) {
    let mut order: Vec<&[Role]> = vec![&[Role::Worker, Role::Background], &[Role::Scheduler], &[Role::Api]];
    let back = is_back(draft);
    if back {
        order.reverse();
    }
    let mut blocked = match migrated {
        Gate::Open => None,
        Gate::Closed(_, message) => Some((Reason::Waiting, format!("waits for the migration: {message}"))),
    };
    let mut standings = Vec::new();
    for stage in order {
        let mut first_unsettled = None;
        for role in stage {
            let closed = mode_gate(*role, moded)
                .or_else(|| blocked.clone())
                .or_else(|| payload_gate(draft, *role, back));
            let standing = one(draft, *role, closed, moded);
            if let Err((_, message)) = &standing.verdict {
                first_unsettled.get_or_insert((Reason::Waiting, format!("waits for role {role}: {message}")));
            }
            standings.push(standing);
        }
        blocked = blocked.or(first_unsettled);
    }
    conclude(draft, &standings);
}

/// Whether the image is older than the schema.
fn is_back(draft: &Draft<'_>) -> bool {
    let schema = &draft.status.schema;
    schema.image_revision.is_some() && schema.revision > schema.image_revision
}

fn mode_gate(role: Role, moded: &Gate) -> Option<(Reason, String)> {
    match moded {
        Gate::Closed(reason, message) if role.schedules() => Some((*reason, message.clone())),
        _ => None,
    }
}

/// An older Worker may not meet work that it cannot run. Not knowing is no permission.
fn payload_gate(draft: &Draft<'_>, role: Role, back: bool) -> Option<(Reason, String)> {
    if !back || !role.works() {
        return None;
    }
    let version = draft
        .status
        .schema
        .image_payload_version
        .unwrap_or(FIRST_PAYLOAD_VERSION);
    match draft.input.facts.payloads_above(version) {
        Some(0) => None,
        Some(count) => Some((
            Reason::NewerPayloadsQueued,
            format!("{count} items of a payload version above {version} have not ended"),
        )),
        None => Some((
            Reason::NewerPayloadsQueued,
            "no role reports whether work of a newer payload version is left".to_owned(),
        )),
    }
}

/// Brings one role nearer to what it should be, and says how it stands.
fn one(draft: &mut Draft<'_>, role: Role, closed: Option<(Reason, String)>, moded: &Gate) -> Standing {
    let object = &draft.input.objects.roles[&role];
    let live = draft.live(&object.key);
    let seen = live.map(|live| DeploymentSeen { live });
    let desired = scale::desired(draft, role, seen);
    let wanted = object.with_replicas(desired);
    let standing = |verdict| Standing { role, desired, verdict };
    match live {
        Some(live) if !draft.is_ours(live) => {
            draft.taken(&object.key);
            standing(Err((
                Reason::NameTaken,
                format!("Deployment {} is not ours", object.key.name),
            )))
        }
        // An image that is new to the cluster may never run before its turn, and neither may one with no pods at all:
        // somebody may scale it up.
        None => {
            if let Some(why) = closed {
                return standing(Err(why));
            }
            draft.actions.push(Action::Apply(Box::new(wanted)));
            standing(Err((Reason::RollingOut, "the Deployment is being made".to_owned())))
        }
        Some(live) if wanted.is_in(live) => standing(settled(draft, role, DeploymentSeen { live }, desired)),
        Some(live) => {
            let mode_is_changing = *moded != Gate::Open && role.schedules();
            let may = closed.is_none() || (has_template(&wanted, live) && !mode_is_changing);
            if let (false, Some(why)) = (may, closed) {
                return standing(Err(why));
            }
            scale::costs(draft, role, DeploymentSeen { live }, desired);
            draft.actions.push(Action::Apply(Box::new(wanted)));
            standing(Err((Reason::RollingOut, "the Deployment is being changed".to_owned())))
        }
    }
}

fn has_template(wanted: &Object, live: &serde_json::Value) -> bool {
    let hash = &live["metadata"]["annotations"][TEMPLATE_HASH];
    hash.is_string() && *hash == wanted.manifest["metadata"]["annotations"][TEMPLATE_HASH]
}

/// Whether a Deployment that is as it should be has arrived there.
fn settled(draft: &mut Draft<'_>, role: Role, live: DeploymentSeen<'_>, desired: i32) -> Result<(), (Reason, String)> {
    if let Some(trouble) = pod_trouble(draft, role) {
        draft.trouble(trouble.0, trouble.1.clone());
        return Err(trouble);
    }
    // What the API server said to the pod may quote it, so only the kind of refusal is told.
    if let Some(reason) = live.replica_failure().filter(|_| live.is_current()) {
        let message = format!("no pod of role {role} can be made ({reason}); the events of its ReplicaSet say why");
        draft.trouble(Reason::PodNotCreated, message.clone());
        return Err((Reason::PodNotCreated, message));
    }
    if !live.is_rolled_out(desired) {
        let counts = format!(
            "{} of {desired} pods are updated, {} ready",
            live.updated(),
            live.ready()
        );
        let is_updated = live.is_current() && live.updated() == desired && live.replicas() == desired;
        let reason = if is_updated {
            Reason::PodsNotReady
        } else {
            Reason::RollingOut
        };
        return Err(scale::draining(draft, role, desired).unwrap_or((reason, counts)));
    }
    if let Some(draining) = scale::draining(draft, role, desired) {
        return Err(draining);
    }
    let build = &draft.input.deployment.build;
    let members = draft.input.facts.members_of(role, build);
    let was_there = stored(draft, role).build.as_ref() == Some(build);
    if are_there(members, desired, was_there) {
        return Ok(());
    }
    let told = members.map_or_else(|| "nobody reports".to_owned(), |members| members.to_string());
    let message = format!("members of build {build}: {told} of {desired}");
    Err((Reason::WaitingForMembers, message))
}

/// Whether enough members report the wanted build. A role that has been rolled out with it once stays so while nobody tells:
/// one answer that did not come in time says nothing about the pods, whose readiness is known otherwise. An answer that tells
/// too few counts at any time, and before the first roll-out no answer is a no.
fn are_there(told: Option<i64>, desired: i32, was_there: bool) -> bool {
    desired <= 0 || told.map_or(was_there, |told| told >= i64::from(desired))
}

/// What the stored status says of a role.
fn stored<'a>(draft: &Draft<'a>, role: Role) -> &'a RoleStatus {
    let roles = &draft.input.status.roles;
    match role {
        Role::Api => &roles.api,
        Role::Scheduler => &roles.scheduler,
        Role::Worker => &roles.worker,
        Role::Background => &roles.background,
    }
}

fn pod_trouble(draft: &Draft<'_>, role: Role) -> Option<(Reason, String)> {
    let pods = draft.input.observed.pods_of(role.as_str());
    let (pod, trouble) = pods
        .filter(|pod| !pod.terminating)
        .find_map(|pod| pod.trouble.as_ref().map(|trouble| (&pod.name, trouble)))?;
    Some(match trouble {
        Trouble::Image { image, reason } => (
            Reason::ImagePullFailed,
            format!("pod {pod} cannot pull image {image}: {reason}"),
        ),
        Trouble::Crash { code } => (
            Reason::ContainerCrashing,
            format!("pod {pod} ends again and again, last with exit {code}"),
        ),
        Trouble::NotCreated { reason } => (Reason::PodNotCreated, format!("pod {pod} does not start: {reason}")),
    })
}

/// Writes roles and their conditions into the status.
fn conclude(draft: &mut Draft<'_>, standings: &[Standing]) {
    for standing in standings {
        let status = role_status(draft, standing);
        let roles = &mut draft.status.roles;
        let slot = match standing.role {
            Role::Api => &mut roles.api,
            Role::Scheduler => &mut roles.scheduler,
            Role::Worker => &mut roles.worker,
            Role::Background => &mut roles.background,
        };
        *slot = status;
    }
    let selector = draft.input.deployment.base.selector(Role::Worker.as_str());
    let pairs: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    draft.status.worker_selector = Some(pairs.join(","));
    for (kind, own, also) in [
        (ConditionType::WorkersReady, Role::Worker, Some(Role::Background)),
        (ConditionType::SchedulersReady, Role::Scheduler, Some(Role::Background)),
        (ConditionType::ApisReady, Role::Api, None),
    ] {
        let of = |role: Role| standings.iter().find(|standing| standing.role == role);
        let concerned: Vec<_> = [Some(own), also].into_iter().flatten().filter_map(of).collect();
        let fault = concerned.iter().find_map(|standing| standing.verdict.as_ref().err());
        let desired: i32 = concerned.iter().map(|standing| standing.desired).sum();
        let verdict = match fault {
            Some((reason, message)) => Verdict::no(*reason, message),
            None if desired == 0 => Verdict::yes(Reason::ScaledToZero, "no pod is wanted"),
            None => Verdict::yes(Reason::Complete, "all pods run the wanted build and are ready"),
        };
        draft.conditions.set(kind, verdict);
    }
}

fn role_status(draft: &Draft<'_>, standing: &Standing) -> RoleStatus {
    let key = &draft.input.objects.roles[&standing.role].key;
    let live = draft.live(key).filter(|live| draft.is_ours(live));
    let seen = live.map(|live| DeploymentSeen { live });
    let old = stored(draft, standing.role);
    let build = if standing.verdict.is_ok() && standing.desired > 0 {
        Some(draft.input.deployment.build.clone())
    } else {
        old.build.clone()
    };
    RoleStatus {
        desired: standing.desired,
        replicas: seen.map_or(0, DeploymentSeen::replicas),
        ready: seen.map_or(0, DeploymentSeen::ready),
        updated: seen.map_or(0, DeploymentSeen::updated),
        build,
    }
}

#[cfg(test)]
mod tests {
    use super::are_there;

    #[test]
    fn a_missed_answer_takes_nothing_back_and_an_answer_of_too_few_does() {
        for (told, desired, was_there, are) in [
            // Nobody tells: as it was before.
            (None, 2, false, false),
            (None, 2, true, true),
            // Somebody tells: that counts, whatever was before.
            (Some(0), 2, true, false),
            (Some(1), 2, true, false),
            (Some(1), 2, false, false),
            (Some(2), 2, false, true),
            (Some(2), 2, true, true),
            // More than wanted: one that was replaced has not left yet.
            (Some(3), 2, false, true),
            // Nobody is wanted.
            (None, 0, false, true),
            (Some(0), 0, false, true),
        ] {
            assert_eq!(
                are_there(told, desired, was_there),
                are,
                "{told:?} of {desired}, {was_there}"
            );
        }
    }
}
