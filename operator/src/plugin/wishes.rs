//! What a person wishes of the operator, as a change of the resource: approval, another try, a pause. Pure.
//!
//! The operator reads an approval as the hash of the very target whose plan was shown, so one that comes too late for a changed
//! spec approves nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use powercontext_crds::conditions::{ConditionType, Reason};
use powercontext_crds::v1alpha1::{MigrationPolicy, PowerContextDeployment, SchemaStatus};
use serde_json::{Value, json};

use crate::names::{APPROVE_MIGRATION, RETRY_MIGRATION};

/// What is wished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// The migration may begin; only to that target, where one is named.
    Approve { target: Option<String> },
    /// A migration that was given up is tried again; the token is new each time.
    RetryMigration { token: String },
    /// Nothing is changed.
    Pause,
    /// Things go on.
    Resume,
}

/// What becomes of a wish.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// The resource is changed.
    Write {
        /// A merge patch.
        patch: Value,
        /// What is told once it is written.
        said: String,
    },
    /// It is so already.
    Already(String),
    /// It means nothing now, and why.
    Impossible(String),
}

/// What a wish comes to for a deployment as it is.
pub(super) fn decide(resource: &PowerContextDeployment, wish: &Wish) -> Decision {
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    match wish {
        Wish::Approve { target } => approve(resource, name, target.as_deref()),
        Wish::RetryMigration { token } => retry(resource, name, token),
        Wish::Pause | Wish::Resume => {
            let paused = *wish == Wish::Pause;
            let now = if paused { "paused" } else { "not paused" };
            if resource.spec.paused == paused {
                return Decision::Already(format!("{name} is {now} already"));
            }
            Decision::Write {
                patch: json!({ "spec": { "paused": paused } }),
                said: if paused {
                    format!("{name} is paused: the operator changes nothing, what runs goes on running")
                } else {
                    format!("{name} goes on")
                },
            }
        }
    }
}

fn approve(resource: &PowerContextDeployment, name: &str, wanted: Option<&str>) -> Decision {
    if resource.spec.migration.policy == MigrationPolicy::Auto {
        return Decision::Impossible(format!(
            "{name} needs no approval: spec.migration.policy is Auto, so the operator migrates by itself"
        ));
    }
    if !is_seen(resource) {
        return Decision::Impossible(unseen(name));
    }
    let schema = schema(resource);
    let Some(target) = schema.target_hash.filter(|_| waits_for_approval(resource)) else {
        let said = migrated(resource).map_or_else(String::new, |one| format!(": {}: {}", one.reason, one.message));
        return Decision::Already(format!("no migration of {name} waits for an approval{said}"));
    };
    if wanted.is_some_and(|wanted| wanted != target) {
        return Decision::Impossible(format!(
            "the migration of {name} that waits has the target {target}, not the one that was read; look at it again with `status`"
        ));
    }
    if annotation(resource, APPROVE_MIGRATION) == Some(&target) {
        return Decision::Already(format!(
            "the migration of {name} to target {target} is approved already"
        ));
    }
    let steps = match schema.plan.as_slice() {
        [] => "no step is known yet".to_owned(),
        steps => steps.join("; "),
    };
    Decision::Write {
        patch: annotate(APPROVE_MIGRATION, &target),
        said: format!("the migration of {name} to target {target} is approved: {steps}"),
    }
}

fn retry(resource: &PowerContextDeployment, name: &str, token: &str) -> Decision {
    if !is_seen(resource) {
        return Decision::Impossible(unseen(name));
    }
    let Some(failure) = schema(resource).last_failure else {
        let said = migrated(resource).map_or_else(String::new, |one| format!(": {}: {}", one.reason, one.message));
        return Decision::Already(format!("no migration of {name} has failed{said}"));
    };
    Decision::Write {
        patch: annotate(RETRY_MIGRATION, token),
        said: format!("the migration of {name}, which ended as {failure}, is tried again"),
    }
}

/// Whether the operator has done what was written.
pub(super) fn is_followed(resource: &PowerContextDeployment, wish: &Wish) -> bool {
    match wish {
        Wish::Approve { .. } => !waits_for_approval(resource),
        Wish::RetryMigration { token } => schema(resource).retry_token.as_ref() == Some(token),
        Wish::Pause | Wish::Resume => is_seen(resource),
    }
}

/// Whether the status is about the spec that is stored.
pub(super) fn is_seen(resource: &PowerContextDeployment) -> bool {
    let seen = resource.status.as_ref().and_then(|status| status.observed_generation);
    seen.is_some() && seen == resource.metadata.generation
}

fn unseen(name: &str) -> String {
    format!("the operator has not looked at the newest spec of {name} yet; `status` says whether it runs")
}

fn schema(resource: &PowerContextDeployment) -> SchemaStatus {
    resource.status.clone().unwrap_or_default().schema
}

fn migrated(resource: &PowerContextDeployment) -> Option<&Condition> {
    let conditions = &resource.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|one| one.type_ == ConditionType::Migrated.as_str())
}

fn waits_for_approval(resource: &PowerContextDeployment) -> bool {
    migrated(resource).is_some_and(|one| one.reason == Reason::ApprovalRequired.as_str())
}

fn annotation<'a>(resource: &'a PowerContextDeployment, key: &str) -> Option<&'a String> {
    resource.metadata.annotations.as_ref()?.get(key)
}

fn annotate(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

#[cfg(test)]
mod tests {
    use powercontext_crds::v1alpha1::Status;

    use super::*;

    /// A deployment of that policy whose migration stands so.
    fn deployment(policy: &str, reason: &str, failure: Option<&str>) -> PowerContextDeployment {
        let mut resource = crate::testing::resource(&json!({ "migration": { "policy": policy } }));
        let condition = json!({ "type": "Migrated", "status": "False", "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "observedGeneration": 1, "conditions": [condition],
            "schema": { "targetHash": "t1", "plan": ["8 a (additive)"], "lastFailure": failure } });
        resource.status = Some(serde_json::from_value::<Status>(status).expect("a status"));
        resource
    }

    fn patch(decision: &Decision) -> Option<&Value> {
        match decision {
            Decision::Write { patch, .. } => Some(patch),
            _ => None,
        }
    }

    #[test]
    fn an_approval_names_the_target_that_waits_and_no_other() {
        let any = Wish::Approve { target: None };
        let waits = deployment("Supervised", "ApprovalRequired", None);
        let wanted = json!({ "metadata": { "annotations": { APPROVE_MIGRATION: "t1" } } });
        assert_eq!(patch(&decide(&waits, &any)), Some(&wanted));
        let read = |target: &str| Wish::Approve {
            target: Some(target.to_owned()),
        };
        assert_eq!(patch(&decide(&waits, &read("t1"))), Some(&wanted));
        assert!(matches!(decide(&waits, &read("t0")), Decision::Impossible(_)));
        let mut approved = waits.clone();
        approved.metadata.annotations = Some([(APPROVE_MIGRATION.to_owned(), "t1".to_owned())].into());
        assert!(matches!(decide(&approved, &any), Decision::Already(_)));
        assert!(matches!(
            decide(&deployment("Supervised", "MigrationSucceeded", None), &any),
            Decision::Already(_)
        ));
        assert!(matches!(
            decide(&deployment("Auto", "Migrating", None), &any),
            Decision::Impossible(_)
        ));
        let mut unseen = waits;
        unseen.metadata.generation = Some(2);
        assert!(matches!(decide(&unseen, &any), Decision::Impossible(_)));
    }

    #[test]
    fn only_a_migration_that_failed_is_tried_again() {
        let wish = Wish::RetryMigration {
            token: "now".to_owned(),
        };
        let failed = deployment("Auto", "MigrationRefused", Some("refused"));
        let wanted = json!({ "metadata": { "annotations": { RETRY_MIGRATION: "now" } } });
        assert_eq!(patch(&decide(&failed, &wish)), Some(&wanted));
        assert!(matches!(
            decide(&deployment("Auto", "Migrating", None), &wish),
            Decision::Already(_)
        ));
    }

    #[test]
    fn a_pause_is_written_once_and_taken_back_once() {
        let running = deployment("Auto", "MigrationSucceeded", None);
        let mut paused = running.clone();
        paused.spec.paused = true;
        for (resource, wish, written) in [
            (&running, Wish::Pause, Some(true)),
            (&paused, Wish::Resume, Some(false)),
            (&paused, Wish::Pause, None),
            (&running, Wish::Resume, None),
        ] {
            let decision = decide(resource, &wish);
            let wanted = written.map(|paused| json!({ "spec": { "paused": paused } }));
            assert_eq!(patch(&decision), wanted.as_ref(), "{wish:?}");
        }
    }

    #[test]
    fn a_wish_is_followed_when_the_status_says_so() {
        let mut resource = deployment("Supervised", "ApprovalRequired", Some("refused"));
        let approve = Wish::Approve { target: None };
        let retry = Wish::RetryMigration {
            token: "now".to_owned(),
        };
        for wish in [&approve, &retry] {
            assert!(!is_followed(&resource, wish), "{wish:?}");
        }
        assert!(is_followed(&resource, &Wish::Pause));
        resource.metadata.generation = Some(2);
        assert!(!is_followed(&resource, &Wish::Pause));
        let mut done = deployment("Supervised", "Migrating", None);
        done.status.get_or_insert_default().schema.retry_token = Some("now".to_owned());
        for wish in [&approve, &retry] {
            assert!(is_followed(&done, wish), "{wish:?}");
        }
    }
}
