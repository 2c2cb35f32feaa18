//! An action of the planner in a person's words, beside what is there. Pure; names settings and never their values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::print::count;
use crate::controller::build::{MIGRATE, PLAN, SWITCH_MODE};
use crate::names::{BUILD, SECRETS_HASH, TEMPLATE_HASH};
use crate::object::{Kind, Object};
use crate::plan::{Action, Observed};

/// Most settings that are named.
const NAMES_MAX: usize = 6;

/// What an action does.
pub(super) fn describe(action: &Action, observed: &Observed) -> String {
    match action {
        Action::Apply(object) => {
            let kind = object.key.kind.as_str();
            let name = &object.key.name;
            match (object.key.kind, observed.objects.get(&object.key)) {
                (Kind::Job, _) => format!("run Job {name}: {}", purpose(object)),
                (Kind::Deployment, None) => format!(
                    "make Deployment {name}: {} of image {}",
                    count(replicas(&object.manifest), "pod"),
                    image(&object.manifest)
                ),
                (Kind::Deployment, Some(live)) => {
                    format!("change Deployment {name}: {}", changes(live, &object.manifest))
                }
                (_, None) => format!("make {kind} {name}"),
                (_, Some(_)) => format!("change {kind} {name}"),
            }
        }
        Action::Delete(key) => format!("remove {} {}", key.kind.as_str(), key.name),
        Action::DeletionCost { pod, cost } => {
            format!("note on pod {pod} that its end costs {cost}, so that the idlest pods go first")
        }
    }
}

/// What the step after these actions waits for.
pub(super) fn awaited(actions: &[Action], observed: &Observed) -> Option<String> {
    let mut waits = Vec::new();
    for action in actions {
        let Action::Apply(object) = action else { continue };
        let name = &object.key.name;
        match object.key.kind {
            Kind::Job => waits.push(format!("Job {name} has succeeded")),
            Kind::Deployment => waits.extend(arrival(observed.objects.get(&object.key), &object.manifest)),
            _ => {}
        }
    }
    (!waits.is_empty()).then(|| waits.join(" and "))
}

/// When a Deployment is as it is wanted.
fn arrival(live: Option<&Value>, wanted: &Value) -> Option<String> {
    let (before, number) = (live.map_or(0, replicas), replicas(wanted));
    let role = component(wanted);
    let ready = format!(
        "{} of role {role} {} ready",
        count(number, "pod"),
        if number == 1 { "is" } else { "are" }
    );
    let has_template = live.is_some_and(|live| template(live) == template(wanted));
    match (before, number) {
        (0, 0) => None,
        (_, 0) => Some(format!("no {role} is left")),
        _ if has_template => Some(ready),
        _ => {
            let build = text(wanted, &["spec", "template", "metadata", "annotations", BUILD]);
            let verb = if number == 1 { "reports" } else { "report" };
            Some(format!("{ready} and {verb} build {build}"))
        }
    }
}

fn purpose(job: &Object) -> String {
    match component(&job.manifest) {
        MIGRATE => format!("bring the schema to what image {} needs", image(&job.manifest)),
        PLAN => format!(
            "ask image {} what its migration would do; nothing is changed",
            image(&job.manifest)
        ),
        SWITCH_MODE => "store the coordination mode".to_owned(),
        _ => "run it".to_owned(),
    }
}

/// What differs between two Deployments.
fn changes(live: &Value, wanted: &Value) -> String {
    let mut parts = Vec::new();
    let (old, new) = (replicas(live), replicas(wanted));
    if old != new {
        parts.push(format!("{old} → {}", count(new, "pod")));
    }
    if template(live) == template(wanted) {
        let what = if parts.is_empty() {
            "what others changed in it is put right".to_owned()
        } else {
            parts.join("; ")
        };
        return format!("{what}; no pod is replaced");
    }
    if image(live) != image(wanted) {
        parts.push(format!("image {} → {}", image(live), image(wanted)));
    }
    let secrets = ["spec", "template", "metadata", "annotations", SECRETS_HASH];
    if text(live, &secrets) != text(wanted, &secrets) {
        parts.push("values of its secrets".to_owned());
    }
    let settings = settings(live, wanted);
    if !settings.is_empty() {
        let more = settings.len().saturating_sub(NAMES_MAX);
        let named: Vec<&str> = settings.iter().take(NAMES_MAX).map(String::as_str).collect();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        parts.push(format!(
            "{} {}{more}",
            if settings.len() == 1 { "setting" } else { "settings" },
            named.join(", ")
        ));
    }
    if parts.is_empty() {
        let build = ["spec", "template", "metadata", "annotations", BUILD];
        let is_build = text(live, &build) != text(wanted, &build);
        parts.push(
            if is_build {
                "the build that all roles have in common"
            } else {
                "what its pods are given"
            }
            .to_owned(),
        );
    }
    let pods = match (old, new) {
        (0, _) | (_, 0) => "",
        (1, _) => "; its pod is replaced",
        _ => "; its pods are replaced one after another",
    };
    format!("{}{pods}", parts.join("; "))
}

/// Variables that differ, without the prefix that all of them have.
fn settings(live: &Value, wanted: &Value) -> BTreeSet<String> {
    let variables = |object: &Value| -> BTreeMap<String, String> {
        let env = object
            .pointer("/spec/template/spec/containers/0/env")
            .and_then(Value::as_array);
        let env = env.into_iter().flatten();
        env.map(|one| {
            let name = one["name"].as_str().unwrap_or_default().to_owned();
            // A reference says where the value comes from; the API server adds nothing to either.
            (name, format!("{}{}", one["value"], one["valueFrom"]))
        })
        .collect()
    };
    let (old, new) = (variables(live), variables(wanted));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    // The build is told by what it is made of.
    let is_told = |name: &str| !name.ends_with("DEPLOYMENT_BEHAVIOR_REVISION");
    names
        .into_iter()
        .filter(|name| is_told(name) && old.get(*name) != new.get(*name))
        .map(|name| name.trim_start_matches("POWERCONTEXT_SERVER_").to_owned())
        .collect()
}

fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    let place = path.iter().try_fold(object, |value, key| value.get(*key));
    place.and_then(Value::as_str).unwrap_or_default()
}

fn template(object: &Value) -> &str {
    text(object, &["metadata", "annotations", TEMPLATE_HASH])
}

fn component(object: &Value) -> &str {
    text(object, &["metadata", "labels", "app.kubernetes.io/component"])
}

fn image(object: &Value) -> &str {
    let image = object.pointer("/spec/template/spec/containers/0/image");
    image.and_then(Value::as_str).unwrap_or_default()
}

fn replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}
