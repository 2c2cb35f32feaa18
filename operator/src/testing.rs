//! Small resources for tests, made from JSON as the API server would hand them over.

use std::collections::BTreeMap;

use powercontext_crds::v1alpha1::{PowerContextDeployment, SecretKeyRef};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::controller::validate::{Dereferenced, ValidDeployment, validate};

/// A database URL with a password that may appear nowhere.
pub(crate) const URL: &str = "mysql://u:canary-5b1c@db.example:2881/pc";

/// The smallest resource.
pub(crate) fn manifest() -> Value {
    json!({
        "apiVersion": "powercontext.io/v1alpha1",
        "kind": "PowerContextDeployment",
        "metadata": { "name": "pc", "namespace": "default", "uid": "uid-1", "generation": 1 },
        "spec": {
            "image": "registry.example/powercontext:0.1.0",
            "database": { "urlSecretRef": { "name": "pc-database", "key": "url" } },
            "auth": { "tokenSecretRef": { "name": "pc-auth", "key": "token" } },
            "inference": { "generation": { "provider": "openai-chat", "model": "gpt-x",
                "apiKeySecretRef": { "name": "pc-model", "key": "key" } } },
        }
    })
}

/// The smallest resource with other values in some places of its spec.
pub(crate) fn resource(spec: &Value) -> PowerContextDeployment {
    let mut manifest = manifest();
    merge(&mut manifest["spec"], spec);
    serde_json::from_value(manifest).expect("a resource")
}

/// Writes one object over another, member by member.
pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The secrets that the smallest resource names.
pub(crate) fn secrets() -> Dereferenced {
    let named = [
        ("pc-database", "url", URL),
        ("pc-auth", "token", "canary-token"),
        ("pc-model", "key", "canary-key"),
    ];
    let secrets: BTreeMap<_, _> = named
        .into_iter()
        .map(|(name, key, value)| (reference(name, key), Ok(SecretString::from(value))))
        .collect();
    Dereferenced {
        operator_namespace: Some("powercontext-system".to_owned()),
        secrets,
    }
}

/// A reference.
pub(crate) fn reference(name: &str, key: &str) -> SecretKeyRef {
    SecretKeyRef {
        name: name.to_owned(),
        key: key.to_owned(),
    }
}

/// The smallest deployment with other values in some places of its spec, checked.
pub(crate) fn valid(spec: &Value) -> ValidDeployment {
    validate(&resource(spec), &secrets()).expect("a valid deployment")
}
