//! Conditions as they are written, and whether a status has to be written at all.
//!
//! A condition keeps the time of its last change unless its status flips. Numbers that move while nothing happens (queue,
//! leaders) are written at most every 30 seconds, unless a condition changes with them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::Status;

/// Seconds between two writes of a status of which only numbers changed.
const NUMBERS_SECONDS: i64 = 30;

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    holds: bool,
    reason: String,
    message: String,
}

impl Verdict {
    pub(super) fn yes(reason: Reason, message: &str) -> Self {
        Self::new(true, reason, message)
    }

    pub(super) fn no(reason: Reason, message: &str) -> Self {
        Self::new(false, reason, message)
    }

    pub(super) fn new(holds: bool, reason: Reason, message: &str) -> Self {
        Self {
            holds,
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
        }
    }
}

/// The conditions of a plan.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions(BTreeMap<ConditionType, (Verdict, Option<Reason>)>);

impl Conditions {
    pub(super) fn set(&mut self, kind: ConditionType, verdict: Verdict) {
        let reason = Reason::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == verdict.reason);
        self.0.insert(kind, (verdict, reason));
    }

    /// Why a condition does not hold.
    pub(super) fn unmet(&self, kind: ConditionType) -> Option<(Reason, String)> {
        let (verdict, reason) = self.0.get(&kind)?;
        let reason = reason.unwrap_or(Reason::Waiting);
        (!verdict.holds).then(|| (reason, verdict.message.clone()))
    }

    /// As the status lists them.
    pub(super) fn written(&self, old: &[Condition], generation: i64, now: Timestamp) -> Vec<Condition> {
        let condition = |kind: ConditionType, verdict: &Verdict| {
            let status = if verdict.holds { "True" } else { "False" };
            let before = old
                .iter()
                .find(|one| one.type_ == kind.as_str() && one.status == status);
            Condition {
                type_: kind.as_str().to_owned(),
                status: status.to_owned(),
                reason: verdict.reason.clone(),
                message: verdict.message.clone(),
                observed_generation: Some(generation),
                last_transition_time: before.map_or(Time(now), |one| one.last_transition_time.clone()),
            }
        };
        self.0
            .iter()
            .map(|(kind, (verdict, _))| condition(*kind, verdict))
            .collect()
    }
}

/// What a condition said before.
pub(super) fn kept(old: &[Condition], kind: ConditionType) -> Option<Verdict> {
    let one = old.iter().find(|one| one.type_ == kind.as_str())?;
    Some(Verdict {
        holds: one.status == "True",
        reason: one.reason.clone(),
        message: one.message.clone(),
    })
}

/// A condition whose status or reason changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Its type.
    pub kind: String,
    /// What it is now.
    pub holds: bool,
    /// Why.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// The conditions that changed between two statuses. A condition that is new and says nothing is no transition.
pub fn transitions(old: &Status, new: &Status) -> Vec<Transition> {
    let changed = new.conditions.iter().filter(|now| {
        let before = old.conditions.iter().find(|before| before.type_ == now.type_);
        match before {
            Some(before) => (&before.status, &before.reason) != (&now.status, &now.reason),
            None => now.reason != Reason::AsExpected.as_str(),
        }
    });
    changed
        .map(|now| Transition {
            kind: now.type_.clone(),
            holds: now.status == "True",
            reason: now.reason.clone(),
            message: now.message.clone(),
        })
        .collect()
}

/// The status to write, if one has to be written; `last` is when this operator wrote the last one.
pub fn to_write(old: &Status, new: &Status, last: Option<Timestamp>, now: Timestamp) -> Option<Status> {
    if old == new {
        return None;
    }
    let without_numbers = |status: &Status| Status {
        queue: None,
        leaders: Vec::new(),
        ..status.clone()
    };
    let is_numbers_only = without_numbers(old) == without_numbers(new);
    let is_early = last.is_some_and(|last| now.as_second() - last.as_second() < NUMBERS_SECONDS);
    (!(is_numbers_only && is_early)).then(|| new.clone())
}

#[cfg(test)]
mod tests {
    use powercontext_crds::v1alpha1::QueueStatus;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn status(holds: bool, reason: Reason, queued: i64) -> Status {
        let mut conditions = Conditions::default();
        conditions.set(ConditionType::Ready, Verdict::new(holds, reason, "m"));
        Status {
            conditions: conditions.written(&[], 1, at(100)),
            queue: Some(QueueStatus {
                depth: [("queued".to_owned(), queued)].into(),
                oldest_age_seconds: None,
            }),
            ..Status::default()
        }
    }

    #[test]
    fn the_time_of_a_condition_moves_only_when_its_status_flips() {
        let old = status(false, Reason::Waiting, 0).conditions;
        let mut conditions = Conditions::default();
        conditions.set(ConditionType::Ready, Verdict::no(Reason::RollingOut, "other"));
        assert_eq!(
            conditions.written(&old, 2, at(200))[0].last_transition_time,
            Time(at(100))
        );
        conditions.set(ConditionType::Ready, Verdict::yes(Reason::Complete, "other"));
        assert_eq!(
            conditions.written(&old, 2, at(200))[0].last_transition_time,
            Time(at(200))
        );
    }

    #[test]
    fn a_minute_of_a_changing_queue_is_written_at_most_twice() {
        let mut stored = status(true, Reason::Complete, 0);
        let mut last = None;
        let mut writes = 0;
        for second in 0..60 {
            let new = status(true, Reason::Complete, second);
            if let Some(write) = to_write(&stored, &new, last, at(second)) {
                stored = write;
                last = Some(at(second));
                writes += 1;
            }
        }
        assert_eq!(writes, 2);
    }

    #[test]
    fn a_changed_condition_is_written_at_once_and_an_unchanged_status_never() {
        let old = status(true, Reason::Complete, 0);
        assert_eq!(to_write(&old, &old, None, at(0)), None);
        let new = status(false, Reason::PodsNotReady, 1);
        assert!(to_write(&old, &new, Some(at(99)), at(100)).is_some());
    }

    #[test]
    fn only_what_changed_is_a_transition() {
        let old = status(true, Reason::Complete, 0);
        assert_eq!(transitions(&old, &status(true, Reason::Complete, 5)), []);
        let changed = transitions(&old, &status(false, Reason::RollingOut, 0));
        assert_eq!((changed.len(), changed[0].holds), (1, false));
        assert_eq!(
            transitions(&Status::default(), &status(false, Reason::AsExpected, 0)),
            []
        );
    }
}
