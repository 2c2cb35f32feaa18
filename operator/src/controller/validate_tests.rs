//! What only Rust or the secrets can tell about a spec.

use secrecy::SecretString;
use serde_json::{Value, json};

use super::*;
use crate::testing::{URL, reference, resource, secrets, valid};

fn refusal(spec: &Value) -> Invalid {
    validate(&resource(spec), &secrets()).expect_err("invalid")
}

#[test]
fn each_role_gets_only_the_secrets_it_needs() {
    let deployment = valid(&json!({
        "database": { "roles": { "migrator": { "name": "pc-database", "key": "url" } } }
    }));
    for (role, provider) in [
        (Role::Api, false),
        (Role::Scheduler, false),
        (Role::Worker, true),
        (Role::Background, true),
    ] {
        assert_eq!(deployment.roles[&role].secrets.provider.is_some(), provider, "{role}");
    }
    assert_eq!(deployment.migrator.secrets.token, None);
    let open = valid(&json!({ "inference": { "apiAccess": true } }));
    assert!(open.roles[&Role::Api].secrets.provider.is_some());
    assert!(open.roles[&Role::Scheduler].secrets.provider.is_none());
}

#[test]
fn a_missing_secret_a_missing_key_and_a_useless_value_are_told_apart() {
    let database = reference("pc-database", "url");
    for (fault, reason) in [
        (Err(SecretFault::Missing), Reason::SecretMissing),
        (Err(SecretFault::KeyMissing), Reason::SecretKeyMissing),
        (Err(SecretFault::NotText), Reason::SecretInvalid),
        (Ok(SecretString::from("  ")), Reason::SecretInvalid),
        (Ok(SecretString::from("canary-5b1c")), Reason::SecretInvalid),
        (Ok(SecretString::from("mysql://canary-5b1c")), Reason::SecretInvalid),
    ] {
        let mut read = secrets();
        read.secrets.insert(database.clone(), fault);
        let invalid = validate(&resource(&json!({})), &read).expect_err("invalid");
        assert_eq!(invalid.reason, reason);
        assert!(invalid.message.contains("pc-database") && !invalid.message.contains("canary"));
    }
}

#[test]
fn the_target_changes_with_image_and_database_and_with_nothing_else() {
    let target = |spec: &Value| valid(spec).target_hash;
    let before = target(&json!({}));
    assert_eq!(
        before,
        target(&json!({ "worker": { "replicas": 7 }, "api": { "resources": { "requests": { "cpu": 1 } } } }))
    );
    assert_ne!(
        before,
        target(&json!({ "image": "registry.example/powercontext:0.2.0" }))
    );
    assert_ne!(before, target(&json!({ "database": { "identity": "other" } })));
    let with_url = |url: &str| {
        let mut read = secrets();
        read.secrets
            .insert(reference("pc-database", "url"), Ok(SecretString::from(url)));
        validate(&resource(&json!({})), &read).expect("valid").target_hash
    };
    assert_eq!(before, with_url(URL));
    assert_eq!(
        before,
        with_url("oceanbase://other:p%40ss@DB.example:2881/pc?ssl-mode=required")
    );
    assert_ne!(before, with_url("mysql://u:canary-5b1c@db.example:2881/other"));
}

#[test]
fn a_rotated_secret_changes_only_the_roles_that_use_it() {
    let before = valid(&json!({}));
    let mut read = secrets();
    read.secrets
        .insert(reference("pc-model", "key"), Ok(SecretString::from("new")));
    let after = validate(&resource(&json!({})), &read).expect("valid");
    for role in Role::ALL {
        let same = before.roles[&role].secrets_hash == after.roles[&role].secrets_hash;
        assert_eq!(same, !role.works(), "{role}");
    }
    assert_eq!(before.migrator.secrets_hash, after.migrator.secrets_hash);
}

#[test]
fn the_build_covers_image_and_supervisor_but_not_the_mode() {
    let build = |spec: &Value| valid(spec).build;
    let before = build(&json!({}));
    assert_eq!(before, build(&json!({ "supervisor": { "mode": "dedicated" } })));
    assert_ne!(
        before,
        build(&json!({ "supervisor": { "memory": { "scheduleSeconds": 60 } } }))
    );
    assert_ne!(before, build(&json!({ "image": "other" })));
}

#[test]
fn opaque_objects_and_amounts_are_checked_before_anything_is_applied() {
    for (spec, said) in [
        (
            json!({ "api": { "pod": { "affinity": { "nodeAffinity": 1 } } } }),
            "spec.api.pod.affinity",
        ),
        (
            json!({ "api": { "pod": { "affinity": { "nodeafinity": {} } } } }),
            "nodeafinity",
        ),
        (
            json!({ "worker": { "pod": { "extraVolumes": [{ "name": "v", "configmap": {} }] } } }),
            "extraVolumes[v]",
        ),
        (
            json!({ "migration": { "resources": { "limits": { "memory": "much" } } } }),
            "spec.migration.resources.limits.memory",
        ),
    ] {
        let invalid = refusal(&spec);
        assert_eq!(invalid.reason, Reason::InvalidSpec);
        assert!(invalid.message.contains(said), "{}", invalid.message);
    }
}

#[test]
fn every_secret_of_the_spec_is_read_once() {
    let named = named_secrets(&resource(&json!({})).spec);
    assert_eq!(named.len(), 3);
}
