//! What a plan is imagined from, read as the person who asks: the resource as it is stored or as it would be, its secrets, its
//! objects and pods.

use std::io::Read as _;
use std::path::Path;

use kube::Resource as _;
use kube::api::ListParams;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::cluster::{Cluster, DEPLOYMENTS, MANAGER};
use super::fault::{Asked, PluginError};
use super::forecast::Scene;
use crate::controller::build::build;
use crate::controller::dereference;
use crate::controller::kept;
use crate::controller::observe::api;
use crate::controller::validate::{Dereferenced, validate};
use crate::names::DEPLOYMENT;
use crate::object::{Key, Kind};
use crate::plan::{Facts, Observed, PodSeen};
use crate::rt;

const NOT_FOUND: u16 = 404;
/// Where the notes that would be stored beside a spec are merged from.
const NOTES: [&str; 2] = ["labels", "annotations"];

/// Reads everything around a resource.
pub(super) async fn load(cluster: &Cluster, resource: PowerContextDeployment) -> Result<Scene, PluginError> {
    let name = resource.metadata.name.clone().unwrap_or_default();
    let secrets = dereference::secrets(&cluster.client, &cluster.namespace, &resource.spec).await;
    let secrets = secrets
        .map_err(|error| PluginError::of_fault(&error.fault, cluster.asked("get", "secrets"), cluster.server()))?;
    let read = Dereferenced {
        operator_namespace: operator_namespace(cluster, &name, &resource).await?,
        secrets,
    };
    let mut observed = observe(cluster, &name).await?;
    if let Ok(deployment) = validate(&resource, &read) {
        let objects = build(&deployment);
        let wanted = objects.around.iter().chain(objects.roles.values());
        for object in wanted {
            if !observed.objects.contains_key(&object.key)
                && let Some(live) = look_up(cluster, &object.key).await?
            {
                observed.objects.insert(object.key.clone(), live);
            }
        }
    }
    Ok(Scene {
        resource,
        read,
        observed,
        // The roles answer the operator, not a person; what they told last is in the status.
        facts: Facts::default(),
        now: rt::time_of_day(),
    })
}

/// Objects and pods that carry the deployment's label.
async fn observe(cluster: &Cluster, name: &str) -> Result<Observed, PluginError> {
    let ours = ListParams::default().labels(&format!("{DEPLOYMENT}={name}"));
    let mut observed = Observed::default();
    for kind in Kind::ALL {
        match api(&cluster.client, &cluster.namespace, kind).list(&ours).await {
            Ok(list) => {
                let objects = list.items.iter().filter_map(|object| {
                    let name = object.metadata.name.clone()?;
                    Some((Key { kind, name }, kept::value(object, kind)))
                });
                observed.objects.extend(objects);
            }
            // A kind that this cluster does not have.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {}
            Err(error) => return Err(cluster.failed("list", kind.names().3)(error)),
        }
    }
    let pods = cluster
        .pods()
        .list(&ours)
        .await
        .map_err(cluster.failed("list", "pods"))?;
    observed.pods = pods.items.iter().map(PodSeen::from_pod).collect();
    observed.pods.sort_by(|a: &PodSeen, b: &PodSeen| a.name.cmp(&b.name));
    Ok(observed)
}

async fn look_up(cluster: &Cluster, key: &Key) -> Result<Option<Value>, PluginError> {
    match api(&cluster.client, &cluster.namespace, key.kind)
        .get_opt(&key.name)
        .await
    {
        Ok(found) => Ok(found.map(|object| kept::value(&object, key.kind))),
        Err(error) => Err(cluster.failed("get", key.kind.names().3)(error)),
    }
}

/// The operator's namespace, as the policies that it made name it: it is part of them.
async fn operator_namespace(
    cluster: &Cluster,
    name: &str,
    resource: &PowerContextDeployment,
) -> Result<Option<String>, PluginError> {
    let ours = ListParams::default().labels(&format!("{DEPLOYMENT}={name}"));
    let policies = api(&cluster.client, &cluster.namespace, Kind::NetworkPolicy)
        .list(&ours)
        .await;
    let policies = policies.map_err(cluster.failed("list", "networkpolicies"))?;
    let of_spec = json!(resource.spec.network_policy.allow_from_namespaces);
    Ok(policies.items.iter().find_map(|policy| peer(&policy.data, &of_spec)))
}

/// The namespace that a policy lets in beside that of the spec.
fn peer(policy: &Value, of_spec: &Value) -> Option<String> {
    let from = policy.pointer("/spec/ingress/0/from")?.as_array()?;
    let labels = from
        .iter()
        .filter_map(|peer| peer.pointer("/namespaceSelector/matchLabels"));
    let mut others = labels.filter(|labels| *labels != of_spec);
    others.find_map(|labels| labels["kubernetes.io/metadata.name"].as_str().map(str::to_owned))
}

/// The resource of a file as it would be stored: the API server fills in defaults and applies its rules, and stores nothing.
pub(super) async fn of_file(
    cluster: &Cluster,
    path: &Path,
    name: Option<&str>,
) -> Result<PowerContextDeployment, PluginError> {
    let place = path.display().to_string();
    let failed = |why: String| PluginError::File {
        place: place.clone(),
        why,
    };
    let text = read(path).map_err(|error| failed(error.to_string()))?;
    let mut manifest = pick(&text, name).map_err(failed)?;
    let named = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(namespace) = manifest["metadata"]["namespace"].as_str()
        && namespace != cluster.namespace
    {
        return Err(failed(format!(
            "it is for namespace {namespace}, and {} was asked for; name it with --namespace",
            cluster.namespace
        )));
    }
    let stored = cluster.find_opt(&named).await?;
    let mut url = format!(
        "/apis/{}/namespaces/{}/{DEPLOYMENTS}",
        PowerContextDeployment::api_version(&()),
        cluster.namespace
    );
    let (method, verb) = match &stored {
        Some(stored) => {
            lay_over(&mut manifest, stored);
            url = format!("{url}/{named}");
            (http::Method::PUT, "update")
        }
        None => (http::Method::POST, "create"),
    };
    let query = format!("dryRun=All&fieldValidation=Strict&fieldManager={MANAGER}");
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{url}?{query}"))
        .header("content-type", "application/json")
        .body(manifest.to_string().into_bytes());
    let request = request.map_err(|error| failed(error.to_string()))?;
    let answer: Result<PowerContextDeployment, kube::Error> = cluster.client.request(request).await;
    let mut resource =
        answer.map_err(
            |error| match PluginError::of(&error, asked(cluster, verb), cluster.server()) {
                PluginError::Refused { message, .. } => failed(message),
                other => other,
            },
        )?;
    resource.status = stored.and_then(|stored| stored.status);
    Ok(resource)
}

fn asked(cluster: &Cluster, verb: &'static str) -> Asked {
    cluster.asked(verb, DEPLOYMENTS)
}

fn read(path: &Path) -> std::io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

/// The one resource of that name in a file of documents, or the only one.
fn pick(text: &str, name: Option<&str>) -> Result<Value, String> {
    let mut found: Vec<Value> = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| format!("no YAML: {error}"))?;
        let items = match value["items"].as_array() {
            Some(items) if value["kind"] == "List" => items.clone(),
            _ => vec![value],
        };
        found.extend(
            items
                .into_iter()
                .filter(|item| item["kind"] == "PowerContextDeployment"),
        );
    }
    if let Some(name) = name {
        found.retain(|item| item["metadata"]["name"] == name);
    }
    match (found.len(), name) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(name)) => Err(format!("no PowerContextDeployment {name} is in it")),
        (0, None) => Err("no PowerContextDeployment is in it".to_owned()),
        _ => Err("several PowerContextDeployments are in it; name one".to_owned()),
    }
}

/// The stored resource with the file's spec. Labels and annotations of the file come on top of those that are there.
fn lay_over(manifest: &mut Value, stored: &PowerContextDeployment) {
    let mut metadata = serde_json::to_value(&stored.metadata).unwrap_or_default();
    for notes in NOTES {
        if let Some(new) = manifest["metadata"][notes].as_object() {
            for (key, value) in new {
                metadata[notes][key] = value.clone();
            }
        }
    }
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
    }
    manifest["metadata"] = metadata;
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n\
        kind: PowerContextDeployment\nmetadata: {name: a}\nspec: {image: x}\n---\n\
        kind: PowerContextDeployment\nmetadata: {name: b}\nspec: {image: y}\n";

    #[test]
    fn one_resource_of_a_file_is_meant_or_it_is_told_why_not() {
        assert_eq!(pick(FILE, Some("b")).expect("it is there")["spec"]["image"], "y");
        assert!(pick(FILE, None).expect_err("two").contains("several"));
        assert!(
            pick(FILE, Some("c"))
                .expect_err("none")
                .contains("no PowerContextDeployment c")
        );
        assert!(pick("kind: Secret", None).is_err());
        assert!(pick("a: [", None).expect_err("broken").contains("no YAML"));
        let list = "kind: List\nitems:\n- {kind: PowerContextDeployment, metadata: {name: z}}\n";
        assert_eq!(pick(list, None).expect("one")["metadata"]["name"], "z");
    }

    #[test]
    fn the_operators_namespace_is_the_one_that_the_spec_does_not_name() {
        let peer_of = |labels: Value| json!({ "namespaceSelector": { "matchLabels": labels } });
        let system = json!({ "kubernetes.io/metadata.name": "system" });
        let team = json!({ "kubernetes.io/metadata.name": "team" });
        let policy = |peers: Value| json!({ "spec": { "ingress": [{ "from": peers }] } });
        let both = policy(json!([peer_of(team.clone()), peer_of(system.clone())]));
        assert_eq!(peer(&both, &team).as_deref(), Some("system"));
        assert_eq!(
            peer(&policy(json!([peer_of(system)])), &Value::Null).as_deref(),
            Some("system")
        );
        assert_eq!(peer(&policy(json!([peer_of(team.clone())])), &team), None);
        assert_eq!(peer(&json!({ "spec": {} }), &team), None);
    }

    #[test]
    fn a_file_brings_its_spec_and_adds_its_notes() {
        let mut stored = crate::testing::resource(&json!({}));
        stored.metadata.annotations = Some([("kept".to_owned(), "1".to_owned())].into());
        let mut manifest =
            json!({ "metadata": { "name": "pc", "annotations": { "new": "2" } }, "spec": { "image": "z" } });
        lay_over(&mut manifest, &stored);
        assert_eq!(manifest["metadata"]["annotations"], json!({ "kept": "1", "new": "2" }));
        assert_eq!(manifest["metadata"]["uid"], "uid-1");
        assert_eq!(manifest["spec"], json!({ "image": "z" }));
    }
}
