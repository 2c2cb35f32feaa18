//! The tree of a deployment in each of its states, against golden files.

use serde_json::{Value, json};

use super::*;
use crate::golden;
use crate::testing::{merge, resource};

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().expect("a time")
}

fn one(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T22:00:00Z" })
}

/// Everything is well, with other values in some places.
fn status(changes: &Value) -> Value {
    let role = |number: i32| json!({ "desired": number, "replicas": number, "ready": number, "updated": number, "build": "0c5d8a" });
    let mut status = json!({
        "observedGeneration": 1,
        "conditions": [
            one("Ready", "True", "Complete", "everything is rolled out and ready"),
            one("Progressing", "False", "Complete", "everything is rolled out"),
            one("Degraded", "False", "AsExpected", ""),
            one("Migrated", "True", "MigrationSucceeded", "the schema is the one that the image needs"),
            one("Paused", "False", "AsExpected", ""),
        ],
        "schema": { "targetHash": "93bf", "completedHash": "93bf", "revision": 8, "imageRevision": 8, "jobName": "pc-migrate-93bf" },
        "roles": { "api": role(2), "scheduler": role(2), "worker": role(3) },
        "mode": "global",
        "leaders": [{ "lease": "global", "pod": "pc-scheduler-1", "fence": 7 }],
        "queue": { "depth": { "queued": 3, "running": 1, "failed": 0 }, "oldestAgeSeconds": 40 },
    });
    merge(&mut status, changes);
    status
}

fn told(generation: i64, status: Option<Value>, events: Option<Vec<Event>>, operator: Option<&OperatorSeen>) -> Report {
    let mut resource = resource(&json!({}));
    resource.metadata.generation = Some(generation);
    resource.status = status.map(|status| serde_json::from_value(status).expect("a status"));
    report(&resource, events.map(|events| last(&events)), operator)
}

fn happened(at: &str, kind: &str, reason: &str, message: &str) -> Event {
    serde_json::from_value(
        json!({ "metadata": {}, "involvedObject": {}, "eventTime": at, "type": kind, "reason": reason,
        "message": message }),
    )
    .expect("an event")
}

#[test]
fn a_tree_says_how_a_deployment_stands() {
    let events = vec![
        happened(
            "2026-01-01T22:05:00.000000Z",
            "Normal",
            "Complete",
            "Ready is true: everything is rolled out and ready",
        ),
        happened(
            "2026-01-01T22:00:00.000000Z",
            "Normal",
            "Migrating",
            "Migrated is false: Job pc-migrate-93bf is at work",
        ),
    ];
    let waits = json!({
        "conditions": [
            one("Ready", "False", "ApprovalRequired", "waits"),
            one("Migrated", "False", "ApprovalRequired", "the plan is in status.schema.plan"),
        ],
        "schema": { "completedHash": null, "revision": 7, "plan": ["8 fairness (additive)"] },
        "roles": { "api": { "updated": 1, "replicas": 3 } }, "leaders": [], "queue": null,
    });
    let image = "pod pc-worker-1 cannot pull image x: ErrImagePull";
    let broken = json!({
        "conditions": [one("Ready", "False", "ImagePullFailed", image), one("Degraded", "True", "ImagePullFailed", image)],
        "schema": { "lastFailure": "lost", "attempts": 1 },
        "queue": { "depth": { "queued": 0, "running": 0 }, "oldestAgeSeconds": 0 },
    });
    let warning = vec![happened(
        "2026-01-01T23:59:30.000000Z",
        "Warning",
        "ImagePullFailed",
        image,
    )];
    for (name, report) in [
        ("ready", told(1, Some(status(&json!({}))), Some(events), None)),
        ("approval", told(1, Some(status(&waits)), Some(Vec::new()), None)),
        ("broken", told(1, Some(status(&broken)), Some(warning), None)),
        (
            "unseen",
            told(2, Some(status(&json!({}))), None, Some(&OperatorSeen::Nowhere)),
        ),
        ("new", told(1, None, Some(Vec::new()), Some(&OperatorSeen::Hidden))),
    ] {
        golden::check(&format!("status-{name}.txt"), &tree(&report, now(), Paint::OFF));
    }
}

#[test]
fn the_exit_tells_ready_from_on_its_way_and_from_stuck() {
    let of = |changes: &Value| exit(&told(1, Some(status(changes)), None, None));
    let conditions = |all: &[Value]| json!({ "conditions": all });
    assert_eq!(of(&json!({})), DONE);
    let rolls = one("Ready", "False", "RollingOut", "");
    assert_eq!(of(&conditions(std::slice::from_ref(&rolls))), UNDER_WAY);
    for stuck in [
        one("Degraded", "True", "SecretMissing", ""),
        one("UpgradeBlocked", "True", "SchemaAhead", ""),
        one("Migrated", "False", "ApprovalRequired", ""),
    ] {
        assert_eq!(of(&conditions(&[rolls.clone(), stuck])), STUCK);
    }
    // Ready, but about another spec.
    assert_eq!(exit(&told(2, Some(status(&json!({}))), None, None)), UNDER_WAY);
    let mut paused = told(1, Some(status(&json!({}))), None, None);
    paused.paused = true;
    assert_eq!(exit(&paused), UNDER_WAY);
}

#[test]
fn the_newest_events_are_shown_and_come_last() {
    let events: Vec<Event> = (0..20)
        .rev()
        .map(|minute| {
            happened(
                &format!("2026-01-01T22:{minute:02}:00.000000Z"),
                "Normal",
                &format!("R{minute}"),
                "m",
            )
        })
        .collect();
    let seen = last(&events);
    assert_eq!(seen.len(), EVENTS_MAX);
    assert_eq!(
        (seen[0].reason.as_str(), seen[EVENTS_MAX - 1].reason.as_str()),
        ("R12", "R19")
    );
}
