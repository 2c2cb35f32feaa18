//! What the caches keep of an object: whose it is, and as little of the rest as a decision needs.
//!
//! A hundred deployments are a thousand objects. As trees of maps they take four times what their text takes, and only those of
//! one deployment are looked at in a reconcile; so they are kept as text, without the record of who manages which field. Of a
//! pod what was seen of it is kept.

use std::borrow::Cow;

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::reflector::Lookup;
use kube::runtime::watcher::Event;
use serde_json::Value;

use crate::names::DEPLOYMENT;
use crate::object::Kind;

/// An object in a cache.
#[derive(Debug, Clone)]
pub struct Kept<T> {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The deployment that its label names.
    pub deployment: Option<String>,
    /// What is kept of it.
    pub data: T,
}

/// The text of an object.
pub type Text = Box<str>;

impl<T> Kept<T> {
    /// What is kept of an object.
    pub fn of<K: ResourceExt>(object: K, keep: impl FnOnce(K) -> T) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            deployment: object.labels().get(DEPLOYMENT).cloned(),
            data: keep(object),
        }
    }

    /// What is kept of the object in a watch's event.
    pub fn in_event<K: ResourceExt>(event: Event<K>, keep: impl Fn(K) -> T) -> Event<Self> {
        match event {
            Event::Apply(object) => Event::Apply(Self::of(object, keep)),
            Event::InitApply(object) => Event::InitApply(Self::of(object, keep)),
            Event::Delete(object) => Event::Delete(Self::of(object, keep)),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
        }
    }

    /// Whether it belongs to that deployment.
    pub fn is_of(&self, namespace: &str, deployment: &str) -> bool {
        self.namespace == namespace && self.deployment.as_deref() == Some(deployment)
    }
}

impl Kept<Text> {
    /// The object, as it is compared with what is wanted.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_default()
    }
}

/// An object as a tree. The items of a list do not say what they are, those of a watch do; here all of them do.
pub fn value(object: &DynamicObject, kind: Kind) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    let (group, version, kind, _) = kind.names();
    let is_core = group.is_empty();
    value["apiVersion"] = if is_core {
        version.into()
    } else {
        format!("{group}/{version}").into()
    };
    value["kind"] = kind.into();
    value
}

/// The text of an object that a cache keeps.
pub fn text(mut object: DynamicObject, kind: Kind) -> Text {
    object.metadata.managed_fields = None;
    value(&object, kind).to_string().into()
}

impl<T> Lookup for Kept<T> {
    type DynamicType = ();

    fn kind((): &()) -> Cow<'_, str> {
        "Kept".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "kept".into()
    }

    fn name(&self) -> Option<Cow<'_, str>> {
        Some(self.name.as_str().into())
    }

    fn namespace(&self) -> Option<Cow<'_, str>> {
        Some(self.namespace.as_str().into())
    }

    fn resource_version(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn uid(&self) -> Option<Cow<'_, str>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kept_object_says_what_it_is_whose_it_is_and_not_who_manages_its_fields() {
        let listed = json!({
            "metadata": {
                "name": "x", "namespace": "n", "labels": { DEPLOYMENT: "pc" },
                "managedFields": [{ "manager": "m" }],
            },
            "spec": { "a": 1 },
        });
        let object: DynamicObject = serde_json::from_value(listed).expect("an object");
        let kept = Kept::of(object, |object| text(object, Kind::Deployment));
        assert!(kept.is_of("n", "pc") && !kept.is_of("n", "other") && !kept.is_of("other", "pc"));
        let value = kept.value();
        assert_eq!(
            (&value["apiVersion"], &value["kind"]),
            (&json!("apps/v1"), &json!("Deployment"))
        );
        assert_eq!(value["spec"]["a"], 1);
        assert!(!kept.data.contains("managedFields"));
    }
}
