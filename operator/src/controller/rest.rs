//! Whether anything is new since a pass that found nothing to do.
//!
//! A plan is a function of what was read. At rest every deployment is looked at twice a minute, and nearly always all of that
//! is what it was; then the same plan would follow, which was empty, and is not made again.

use powercontext_crds::v1alpha1::Status;
use secrecy::ExposeSecret as _;

use super::validate::{Dereferenced, SecretFault};
use crate::names::hash;
use crate::plan::{Facts, Plan, PodSeen, REST_SECONDS};

/// Everything that a plan is made from, as its digest. The time is no part of it: a plan in which something is due is never at
/// rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basis(String);

impl Basis {
    /// Of the resource in that version, the secrets that it names, its live objects and pods, and what its roles report.
    pub fn of(version: &str, read: &Dereferenced, objects: &[&str], pods: &[PodSeen], facts: &Facts) -> Self {
        let mut parts = vec![version.to_owned()];
        for (named, value) in &read.secrets {
            let value = match value {
                Ok(value) => hash([value.expose_secret()]),
                Err(SecretFault::Missing) => "missing".to_owned(),
                Err(SecretFault::KeyMissing) => "no key".to_owned(),
                Err(SecretFault::NotText) => "no text".to_owned(),
            };
            parts.push(format!("{named:?} {value}"));
        }
        parts.push(format!("{pods:?} {facts:?}"));
        let parts = parts.iter().map(String::as_str);
        Self(hash(parts.chain(objects.iter().copied())))
    }
}

/// Whether a plan that was followed leaves nothing to do, to tell or to wait for.
pub fn is_at_rest(plan: &Plan, stored: Option<&Status>) -> bool {
    plan.actions.is_empty() && plan.requeue_seconds == REST_SECONDS && stored == Some(&plan.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{reference, secrets};

    #[test]
    fn whatever_a_plan_is_made_from_makes_another_basis() {
        let (read, facts) = (secrets(), Facts::default());
        let pods = [PodSeen::default()];
        let before = Basis::of("1", &read, &["a", "b"], &pods, &facts);
        assert_eq!(Basis::of("1", &secrets(), &["a", "b"], &pods, &facts), before);
        let mut rotated = secrets();
        rotated
            .secrets
            .insert(reference("pc-model", "key"), Ok("another".to_owned().into()));
        let mut gone = secrets();
        gone.secrets
            .insert(reference("pc-model", "key"), Err(SecretFault::Missing));
        let ready = [PodSeen {
            ready: true,
            ..PodSeen::default()
        }];
        let told = Facts {
            schema_revision: Some(7),
            ..Facts::default()
        };
        for (what, other) in [
            ("the resource", Basis::of("2", &read, &["a", "b"], &pods, &facts)),
            ("a secret's value", Basis::of("1", &rotated, &["a", "b"], &pods, &facts)),
            (
                "a secret that is gone",
                Basis::of("1", &gone, &["a", "b"], &pods, &facts),
            ),
            ("an object", Basis::of("1", &read, &["a", "c"], &pods, &facts)),
            ("where one ends", Basis::of("1", &read, &["ab"], &pods, &facts)),
            ("an object less", Basis::of("1", &read, &["a"], &pods, &facts)),
            ("a pod", Basis::of("1", &read, &["a", "b"], &ready, &facts)),
            ("a fact", Basis::of("1", &read, &["a", "b"], &pods, &told)),
        ] {
            assert_ne!(other, before, "{what}");
        }
    }

    #[test]
    fn a_plan_with_an_action_an_untold_status_or_something_due_is_no_rest() {
        let plan = Plan {
            actions: Vec::new(),
            status: Status::default(),
            requeue_seconds: REST_SECONDS,
        };
        let stored = Status::default();
        assert!(is_at_rest(&plan, Some(&stored)));
        assert!(!is_at_rest(&plan, None));
        let other = Status {
            mode: Some("global".to_owned()),
            ..Status::default()
        };
        assert!(!is_at_rest(&plan, Some(&other)));
        let due = Plan {
            requeue_seconds: 3,
            ..plan.clone()
        };
        assert!(!is_at_rest(&due, Some(&stored)));
        let cost = crate::plan::Action::DeletionCost {
            pod: "w".to_owned(),
            cost: 1,
        };
        let acts = Plan {
            actions: vec![cost],
            ..plan
        };
        assert!(!is_at_rest(&acts, Some(&stored)));
    }
}
