//! From what the resource says and what was read for it to a [`ValidDeployment`], or the one reason why not.
//!
//! The schema's rules have refused what can be known at admission. What is left is what only Rust or the secrets can tell:
//! objects of Kubernetes that are kept opaque, amounts, the form of a database URL. No message repeats a value.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Volume};
use powercontext_crds::conditions::Reason;
use powercontext_crds::v1alpha1::{
    Amount, PodOptions, PowerContextDeployment, PowerContextDeploymentSpec, ResourceAmounts, Resources, SecretKeyRef,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::names::{Base, Role, hash};
use crate::quantity;

/// What was read for a deployment: the value of each secret key that it names, or why there is none.
#[derive(Debug, Default)]
pub struct Dereferenced {
    /// Namespace of the operator, where it is known.
    pub operator_namespace: Option<String>,
    /// By reference.
    pub secrets: BTreeMap<SecretKeyRef, Result<SecretString, SecretFault>>,
}

/// Why a secret has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretFault {
    /// There is no Secret of that name.
    Missing,
    /// It has no such key.
    KeyMissing,
    /// Its value is no text.
    NotText,
}

/// A spec that cannot be followed. It waits for a change; trying again would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// The condition's reason.
    pub reason: Reason,
    /// For people; names fields and objects, never values.
    pub message: String,
}

/// A deployment of which everything that is built from it is known to be well formed.
#[derive(Debug, Clone)]
pub struct ValidDeployment {
    /// Name of the resource.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid; owner of everything.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Annotations of the resource.
    pub annotations: BTreeMap<String, String>,
    /// Namespace of the operator, where it is known.
    pub operator_namespace: Option<String>,
    /// Beginning of the objects' names.
    pub base: Base,
    /// The spec itself.
    pub spec: PowerContextDeploymentSpec,
    /// What the behaviour revision of the roles is: a hash of image and Supervisor settings without the mode.
    pub build: String,
    /// What a migration is for: a hash of image and database.
    pub target_hash: String,
    /// Each role's pods.
    pub roles: BTreeMap<Role, ValidPod>,
    /// The pod of migrations and changes of mode.
    pub migrator: ValidPod,
}

/// What the pods of one role get.
#[derive(Debug, Clone, Default)]
pub struct ValidPod {
    /// Options without opaque parts.
    pub options: PodOptions,
    /// Placement.
    pub affinity: Option<Affinity>,
    /// Extra volumes.
    pub volumes: Vec<Volume>,
    /// Requests and limits, in the stored spelling.
    pub requests: BTreeMap<String, String>,
    /// See `requests`.
    pub limits: BTreeMap<String, String>,
    /// The secrets whose values reach these pods.
    pub secrets: PodSecrets,
    /// Hash of those values.
    pub secrets_hash: String,
}

/// Secrets of a pod, by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSecrets {
    /// URL of the database.
    pub database: Option<SecretKeyRef>,
    /// Bearer token.
    pub token: Option<SecretKeyRef>,
    /// Key of the model's provider.
    pub provider: Option<SecretKeyRef>,
}

impl PodSecrets {
    fn all(&self) -> impl Iterator<Item = &SecretKeyRef> {
        [&self.database, &self.token, &self.provider].into_iter().flatten()
    }
}

/// Every secret key that the spec names, so that they can be read.
pub fn named_secrets(spec: &PowerContextDeploymentSpec) -> Vec<SecretKeyRef> {
    let mut named: Vec<_> = Role::ALL
        .into_iter()
        .flat_map(|role| secrets_of(spec, role).all().cloned().collect::<Vec<_>>())
        .chain([migrator_url(spec).clone()])
        .collect();
    named.sort();
    named.dedup();
    named
}

fn migrator_url(spec: &PowerContextDeploymentSpec) -> &SecretKeyRef {
    spec.database
        .roles
        .migrator
        .as_ref()
        .unwrap_or(&spec.database.url_secret_ref)
}

/// The secrets of a role: the provider's key only where a model is called.
fn secrets_of(spec: &PowerContextDeploymentSpec, role: Role) -> PodSecrets {
    let roles = &spec.database.roles;
    let own = match role {
        Role::Api => &roles.api,
        Role::Scheduler => &roles.scheduler,
        Role::Worker | Role::Background => &roles.worker,
    };
    let calls_model = role.works() || (role == Role::Api && spec.inference.api_access);
    PodSecrets {
        database: Some(own.as_ref().unwrap_or(&spec.database.url_secret_ref).clone()),
        token: spec.auth.token_secret_ref.clone(),
        provider: spec
            .inference
            .generation
            .api_key_secret_ref
            .clone()
            .filter(|_| calls_model),
    }
}

/// Checks a resource against what was read for it.
///
/// # Errors
/// [`Invalid`] with the first fault, secrets first.
pub fn validate(resource: &PowerContextDeployment, read: &Dereferenced) -> Result<ValidDeployment, Invalid> {
    let spec = &resource.spec;
    let meta = &resource.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let mut roles = BTreeMap::new();
    for role in Role::ALL {
        let (options, resources) = parts(spec, role);
        let place = format!("spec.{role}");
        roles.insert(role, pod(&place, options, resources, secrets_of(spec, role), read)?);
    }
    let secrets = PodSecrets {
        database: Some(migrator_url(spec).clone()),
        ..PodSecrets::default()
    };
    let migration = &spec.migration;
    let migrator = pod(
        "spec.migration",
        &migration.pod,
        migration.resources.as_ref(),
        secrets,
        read,
    )?;
    let place = database_place(value(read, migrator_url(spec))?).ok_or_else(|| Invalid {
        reason: Reason::SecretInvalid,
        message: format!(
            "key {} of secret {} is not a URL mysql://USER:PASSWORD@HOST:PORT/DATABASE",
            migrator_url(spec).key,
            migrator_url(spec).name
        ),
    })?;
    Ok(ValidDeployment {
        base: Base::of(&name),
        operator_namespace: read.operator_namespace.clone(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        build: build_of(spec),
        target_hash: hash([spec.image.as_str(), &spec.database.identity, &place])[..16].to_owned(),
        roles,
        migrator,
        spec: spec.clone(),
        name,
    })
}

/// The behaviour revision: what all replicas of one roll-out must have in common. The mode is not part of it.
fn build_of(spec: &PowerContextDeploymentSpec) -> String {
    let mut supervisor = serde_json::to_value(&spec.supervisor).unwrap_or_default();
    if let Some(fields) = supervisor.as_object_mut() {
        fields.remove("mode");
    }
    hash([spec.image.as_str(), &supervisor.to_string()])[..12].to_owned()
}

fn parts(spec: &PowerContextDeploymentSpec, role: Role) -> (&PodOptions, Option<&Resources>) {
    match role {
        Role::Api => (&spec.api.pod, spec.api.resources.as_ref()),
        Role::Scheduler => (&spec.scheduler.pod, spec.scheduler.resources.as_ref()),
        Role::Worker => (&spec.worker.pod, spec.worker.resources.as_ref()),
        Role::Background => (&spec.background.pod, spec.background.resources.as_ref()),
    }
}

fn pod(
    place: &str,
    options: &PodOptions,
    resources: Option<&Resources>,
    secrets: PodSecrets,
    read: &Dereferenced,
) -> Result<ValidPod, Invalid> {
    let mut values = Vec::new();
    for named in secrets.all() {
        values.push(value(read, named)?);
    }
    let secrets_hash = hash(values)[..16].to_owned();
    let mut options = options.clone();
    let affinity = options.affinity.take().map(Value::Object);
    let affinity: Option<Affinity> = affinity
        .map(|affinity| kubernetes(&format!("{place}.pod.affinity"), &affinity))
        .transpose()?;
    let mut volumes = Vec::new();
    for volume in std::mem::take(&mut options.extra_volumes) {
        let at = format!("{place}.pod.extraVolumes[{}]", volume.name);
        let mut source = volume.source;
        source.insert("name".to_owned(), volume.name.into());
        volumes.push(kubernetes(&at, &Value::Object(source))?);
    }
    let amounts = |kind: &str, amounts: Option<&ResourceAmounts>| {
        amounts.map_or_else(
            || Ok(BTreeMap::new()),
            |some| canonical(&format!("{place}.resources.{kind}"), some),
        )
    };
    Ok(ValidPod {
        affinity,
        volumes,
        requests: amounts("requests", resources.and_then(|all| all.requests.as_ref()))?,
        limits: amounts("limits", resources.and_then(|all| all.limits.as_ref()))?,
        options,
        secrets,
        secrets_hash,
    })
}

/// Reads an object that the schema keeps opaque. The error of the parser may quote the object, so it is not repeated.
fn kubernetes<T: serde::de::DeserializeOwned + serde::Serialize>(place: &str, raw: &Value) -> Result<T, Invalid> {
    let invalid = |why: &str| Invalid {
        reason: Reason::InvalidSpec,
        message: format!("{place} {why}"),
    };
    let typed: T = serde_json::from_value(raw.clone()).map_err(|_| invalid("is not what Kubernetes expects there"))?;
    let understood = serde_json::to_value(&typed).unwrap_or_default();
    let lost = raw
        .as_object()
        .and_then(|fields| fields.keys().find(|key| understood.get(key.as_str()).is_none()));
    match lost {
        Some(key) => Err(invalid(&format!("has a field {key} that Kubernetes does not know"))),
        None => Ok(typed),
    }
}

fn canonical(place: &str, amounts: &ResourceAmounts) -> Result<BTreeMap<String, String>, Invalid> {
    let named = [
        ("cpu", &amounts.cpu),
        ("memory", &amounts.memory),
        ("ephemeral-storage", &amounts.ephemeral_storage),
    ];
    let mut found = BTreeMap::new();
    for (name, amount) in named {
        let text = match amount {
            None => continue,
            Some(Amount::Int(number)) => number.to_string(),
            Some(Amount::String(text)) => text.clone(),
        };
        let stored = quantity::canonical(&text).ok_or_else(|| Invalid {
            reason: Reason::InvalidSpec,
            message: format!("{place}.{name} is not an amount"),
        })?;
        found.insert(name.to_owned(), stored);
    }
    Ok(found)
}

fn value<'a>(read: &'a Dereferenced, named: &SecretKeyRef) -> Result<&'a str, Invalid> {
    let SecretKeyRef { name, key } = named;
    let (reason, message) = match read.secrets.get(named) {
        Some(Ok(value)) if value.expose_secret().trim().is_empty() => {
            (Reason::SecretInvalid, format!("key {key} of secret {name} is empty"))
        }
        Some(Ok(value)) => return Ok(value.expose_secret()),
        Some(Err(SecretFault::Missing)) | None => (Reason::SecretMissing, format!("secret {name} does not exist")),
        Some(Err(SecretFault::KeyMissing)) => (Reason::SecretKeyMissing, format!("secret {name} has no key {key}")),
        Some(Err(SecretFault::NotText)) => (Reason::SecretInvalid, format!("key {key} of secret {name} is not text")),
    };
    Err(Invalid { reason, message })
}

/// Host, port and name of the database in a URL: what tells one database from another, without user, password and options.
fn database_place(url: &str) -> Option<String> {
    let schemes = ["mysql://", "oceanbase://", "mysql+aoceanbase://"];
    let rest = schemes.iter().find_map(|scheme| url.trim().strip_prefix(scheme))?;
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let (server, name) = place.split_once('/')?;
    (!server.is_empty() && !name.is_empty()).then(|| format!("{}/{name}", server.to_ascii_lowercase()))
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
