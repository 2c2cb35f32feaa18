//! Forecasts of whole stories, as the plugin prints them, against golden files.

use serde_json::json;

use super::*;
use crate::golden;
use crate::plugin::plan::printed;
use crate::testing::{merge, resource, secrets};

const NEXT: &str = "registry.example/powercontext:0.2.0";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

/// A resource that nothing is there of.
fn fresh(spec: &Value) -> Scene {
    Scene {
        resource: resource(spec),
        read: secrets(),
        observed: Observed::default(),
        facts: Facts::default(),
        now: at(1_000_000),
    }
}

/// A deployment that is completely rolled out, at schema revision 8, after an edit.
fn running(spec: &Value, edit: &Value) -> Scene {
    let Scene {
        mut resource,
        read,
        observed,
        facts,
        now,
    } = fresh(spec);
    let mut world = World {
        deployment: validate(&resource, &read).expect("valid"),
        status: Status::default(),
        observed,
        facts,
        now,
        objects_made: 0,
    };
    let (_, end) = world.run();
    assert_eq!(end, End::Reached);
    world.status.schema.revision = Some(8);
    let mut manifest = serde_json::to_value(&resource).expect("JSON");
    merge(&mut manifest["spec"], edit);
    manifest["metadata"]["generation"] = 2.into();
    resource = serde_json::from_value(manifest).expect("a resource");
    resource.status = Some(world.status);
    Scene {
        resource,
        read,
        observed: world.observed,
        // A person knows only what the status says.
        facts: Facts::default(),
        now,
    }
}

#[test]
fn each_story_is_told_in_the_order_in_which_the_operator_takes_its_steps() {
    let small = json!({ "api": { "replicas": 1 }, "scheduler": { "replicas": 1 }, "worker": { "replicas": 1 } });
    let supervised = json!({ "image": NEXT, "migration": { "policy": "Supervised" } });
    let new_setting =
        json!({ "supervisor": { "memory": { "scheduleSeconds": 60 } }, "networkPolicy": { "enabled": false } });
    let scale = json!({ "worker": { "replicas": 1 }, "api": { "replicas": 0 } });
    let paused = json!({ "paused": true, "worker": { "replicas": 3 } });
    for (name, spec, edit) in [
        ("nothing", json!({}), json!({})),
        ("image", json!({}), json!({ "image": NEXT })),
        ("supervised", small.clone(), supervised),
        ("scale", json!({}), scale),
        ("setting", small.clone(), new_setting),
        ("mode", small.clone(), json!({ "supervisor": { "mode": "dedicated" } })),
        ("paused", small, paused),
    ] {
        let told = printed(forecast(running(&spec, &edit)));
        golden::check(&format!("plan-{name}.txt"), &told);
    }
    golden::check("plan-fresh.txt", &printed(forecast(fresh(&json!({})))));
}

#[test]
fn a_spec_that_cannot_be_followed_has_a_reason_and_no_step() {
    let mut scene = fresh(&json!({}));
    scene.read.secrets.clear();
    let told = forecast(scene);
    assert!(told.steps.is_empty());
    let End::Refused { reason, message } = told.end else {
        panic!("{:?}", told.end);
    };
    assert_eq!(reason, "SecretMissing");
    assert!(message.contains("does not exist"), "{message}");
}

#[test]
fn what_goes_no_further_says_why() {
    let mut scene = running(&json!({}), &json!({ "image": NEXT }));
    // Somebody else's Deployment stands in the way.
    for (key, live) in &mut scene.observed.objects {
        if key.name == "pc-worker" {
            live["metadata"]["ownerReferences"] = json!([]);
        }
    }
    let told = forecast(scene);
    let End::Stuck { reason, message } = &told.end else {
        panic!("{told:?}");
    };
    assert_eq!(reason, "NameTaken");
    assert!(message.contains("pc-worker"), "{message}");
}

#[test]
fn a_refused_migration_stays_refused_until_somebody_asks() {
    let mut scene = running(&json!({}), &json!({ "image": NEXT }));
    let target = validate(&scene.resource, &scene.read).expect("valid").target_hash;
    let schema = &mut scene.resource.status.get_or_insert_default().schema;
    schema.target_hash = Some(target);
    schema.last_failure = Some("refused".to_owned());
    schema.attempts = 1;
    let told = forecast(scene);
    assert!(
        matches!(&told.end, End::Stuck { reason, .. } if reason == "MigrationRefused"),
        "{told:?}"
    );
}

#[test]
fn no_forecast_repeats_a_secret() {
    let told = printed(forecast(fresh(&json!({}))));
    assert!(!told.contains("canary"), "{told}");
}
