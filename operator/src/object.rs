//! An object that the operator manages, as the manifest it applies, and whether the cluster already has it so.
//!
//! The comparison asks whether everything that is *wanted* stands in the live object; what others added (defaults, another
//! manager's annotations, an autoscaler's replicas) is theirs. A wanted field that was dropped is noticed by the hash of
//! the whole manifest, which is one of its annotations.

use serde::Serialize;
use serde_json::Value;

use crate::names::{self, DESIRED_HASH};
use crate::quantity;

/// Kinds of objects that the operator manages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Identity of the pods.
    ServiceAccount,
    /// In front of the APIs.
    Service,
    /// A role.
    Deployment,
    /// A migration or a change of mode.
    Job,
    /// How many pods may be moved away.
    PodDisruptionBudget,
    /// Who may open connections.
    NetworkPolicy,
    /// Scales the APIs.
    HorizontalPodAutoscaler,
    /// Leads to the Service.
    Ingress,
    /// Collects metrics, where the Prometheus operator is installed.
    PodMonitor,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::ServiceAccount,
        Self::Service,
        Self::Deployment,
        Self::Job,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
        Self::HorizontalPodAutoscaler,
        Self::Ingress,
        Self::PodMonitor,
    ];

    /// Group, version, kind and plural.
    pub const fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::Job => ("batch", "v1", "Job", "jobs"),
            Self::PodDisruptionBudget => ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::NetworkPolicy => ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
            Self::HorizontalPodAutoscaler => (
                "autoscaling",
                "v2",
                "HorizontalPodAutoscaler",
                "horizontalpodautoscalers",
            ),
            Self::Ingress => ("networking.k8s.io", "v1", "Ingress", "ingresses"),
            Self::PodMonitor => ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
        }
    }

    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        self.names().2
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its name in the deployment's namespace.
    pub name: String,
}

/// An object as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Which.
    pub key: Key,
    /// What is applied.
    pub manifest: Value,
}

impl Object {
    /// From a typed object, whose `metadata.name` must be set.
    pub fn new(kind: Kind, typed: &impl Serialize) -> Self {
        let manifest = serde_json::to_value(typed).expect("an object of the API is JSON");
        Self::from_manifest(kind, manifest)
    }

    /// From a manifest.
    pub fn from_manifest(kind: Kind, mut manifest: Value) -> Self {
        // The types write a status where the API has one; it is not ours to say.
        if let Some(fields) = manifest.as_object_mut() {
            fields.remove("status");
        }
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut object = Self {
            key: Key { kind, name },
            manifest,
        };
        object.seal();
        object
    }

    /// Writes the hash of everything else into the annotation. The number of pods is no part of it: an autoscaler changes it,
    /// and a Deployment always has one, so it cannot be dropped unnoticed.
    fn seal(&mut self) {
        let mut rest = self.manifest.clone();
        if let Some(annotations) = rest["metadata"]["annotations"].as_object_mut() {
            annotations.remove(DESIRED_HASH);
        }
        if is_empty(&rest["metadata"]["annotations"]) {
            rest["metadata"]["annotations"] = Value::Null;
        }
        if self.key.kind == Kind::Deployment {
            rest["spec"]["replicas"] = Value::Null;
        }
        let digest = names::hash([rest.to_string().as_str()])[..16].to_owned();
        self.manifest["metadata"]["annotations"][DESIRED_HASH] = Value::String(digest);
    }

    /// The same Deployment with another number of pods.
    #[must_use]
    pub fn with_replicas(&self, replicas: i32) -> Self {
        let mut other = self.clone();
        other.manifest["spec"]["replicas"] = replicas.into();
        other
    }

    /// Whether the live object is already so.
    pub fn is_in(&self, live: &Value) -> bool {
        covers(live, &self.manifest)
    }

    /// A text at a JSON pointer of the manifest.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.manifest.pointer(pointer).and_then(Value::as_str)
    }
}

/// Fields of opaque parts whose value is an amount, which the API server stores in another spelling.
const AMOUNTS: [&str; 3] = ["sizeLimit", "divisor", "storage"];

fn is_same_amount(live: &Value, wanted: &Value) -> bool {
    let canonical = |value: &Value| value.as_str().and_then(quantity::canonical);
    canonical(wanted).is_some_and(|wanted| canonical(live) == Some(wanted))
}

/// Whether everything wanted stands in what there is.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match live.get(key) {
            Some(live) if AMOUNTS.contains(&key.as_str()) && is_same_amount(live, wanted) => true,
            Some(live) => covers(live, wanted),
            None => is_empty(wanted),
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}

/// What the API server does not store where it is the zero value of a field.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
    }
}

/// The uid of the controller that owns a live object.
pub fn owner(live: &Value) -> Option<&str> {
    let owners = live.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    owner["uid"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Object {
        let manifest =
            json!({ "metadata": { "name": "x" }, "spec": { "replicas": 2, "list": [{ "a": 1 }], "none": {} } });
        Object::from_manifest(Kind::Deployment, manifest)
    }

    #[test]
    fn what_others_added_is_no_difference() {
        let object = object();
        let mut live = object.manifest.clone();
        live["spec"]["extra"] = json!(1);
        live["spec"]["list"][0]["b"] = json!(2);
        live["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = json!("now");
        live["spec"].as_object_mut().expect("an object").remove("none");
        assert!(object.is_in(&live));
    }

    #[test]
    fn what_is_wanted_and_changed_removed_or_no_longer_wanted_is_a_difference() {
        let object = object();
        for (pointer, value) in [
            ("/spec/replicas", json!(3)),
            ("/spec/list", json!([])),
            ("/spec/list/0/a", json!(2)),
        ] {
            let mut live = object.manifest.clone();
            *live.pointer_mut(pointer).expect("it is there") = value;
            assert!(!object.is_in(&live), "{pointer}");
        }
        let mut fewer = object.manifest.clone();
        fewer["spec"].as_object_mut().expect("an object").remove("list");
        assert!(!Object::from_manifest(Kind::Deployment, fewer).is_in(&object.manifest));
    }

    #[test]
    fn the_hash_does_not_depend_on_an_earlier_hash() {
        let once = object();
        let twice = Object::from_manifest(Kind::Deployment, once.manifest.clone());
        assert_eq!(once, twice);
        let annotations = |object: &Object| object.manifest["metadata"]["annotations"].clone();
        assert_eq!(annotations(&once), annotations(&once.with_replicas(5)));
    }
}
