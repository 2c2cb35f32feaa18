//! What others say of the manifests, the chart's and the operator's: the schemas of Kubernetes and of the Prometheus
//! operator, and a linter of manifests.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use powercontext_chart_tests::{KUBERNETES, ValueSet, monitor_definition, objects, printed, program, read};
use serde_json::{Map, Value, json};

/// Kubernetes whose schemas are compared: the oldest that is supported, and the one that the tests run.
const MINORS: [&str; 2] = ["1.30", "1.34"];
/// Kinds that the Prometheus operator defines, with their plurals.
const MONITORS: [(&str, &str); 3] = [
    ("podmonitor", "podmonitors"),
    ("prometheusrule", "prometheusrules"),
    ("servicemonitor", "servicemonitors"),
];
/// Kubernetes' description of it leaves out what it may hold; the API server of the other tests does not.
const UNDESCRIBED: &str = "CustomResourceDefinition";
/// What the operator makes, as files.
const OPERATOR: [&str; 3] = ["smallest", "everything", "nothing"];

/// Runs a program that reads manifests.
fn judge(name: &str, arguments: &[&str], manifests: &str) -> anyhow::Result<String> {
    let mut child = Command::new(program(name)?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("it has an input")?
        .write_all(manifests.as_bytes())?;
    printed(name, child.wait_with_output()?)
}

/// Writes one JSON schema a kind, from the description of Kubernetes' API. A field that it does not name is a fault.
fn schemas(minor: &str, folder: &Path) -> anyhow::Result<()> {
    let swagger = program("api")?.join(format!("{minor}.json"));
    let swagger: Value =
        serde_json::from_str(&std::fs::read_to_string(&swagger).context("the description of the API")?)?;
    let definitions = swagger["definitions"].as_object().context("definitions")?;
    for (name, definition) in definitions {
        let Some(kinds) = definition["x-kubernetes-group-version-kind"].as_array() else {
            continue;
        };
        let [kind] = &kinds[..] else { continue };
        let text = |key: &str| kind[key].as_str().unwrap_or_default().to_lowercase();
        let group = text("group");
        let group = group
            .split('.')
            .next()
            .filter(|group| !group.is_empty())
            .map(|group| format!("-{group}"));
        let file = format!("{}{}-{}.json", text("kind"), group.unwrap_or_default(), text("version"));
        let mut used = BTreeSet::new();
        let mut schema = strict(definition, &mut used);
        let mut below = Map::new();
        // What the kind refers to, and what that refers to.
        while let Some(next) = used.iter().find(|name| !below.contains_key(*name)).cloned() {
            below.insert(next.clone(), strict(&definitions[&next], &mut used));
        }
        schema["definitions"] = Value::Object(below);
        schema["title"] = json!(name);
        std::fs::write(folder.join(file), schema.to_string())?;
    }
    Ok(())
}

/// Writes one JSON schema a kind, from the definitions of the Prometheus operator.
fn monitor_schemas(folder: &Path) -> anyhow::Result<()> {
    for (kind, plural) in MONITORS {
        let definition = monitor_definition(plural)?;
        let mut schema = closed(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        // An object as such, which a definition does not describe.
        schema["properties"]["metadata"] = json!({ "type": "object" });
        std::fs::write(folder.join(format!("{kind}-monitoring-v1.json")), schema.to_string())?;
    }
    Ok(())
}

/// A definition's schema without unknown fields, as an API server prunes them.
fn closed(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    if fields.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
        let mut fields = fields.clone();
        fields.remove("anyOf");
        fields.insert("type".to_owned(), json!(["string", "integer"]));
        return Value::Object(fields);
    }
    let mut kept = fields.clone();
    close(&mut kept, closed);
    Value::Object(kept)
}

/// Lets an object have no fields but its own, and does the same, by `below`, to what is inside of a schema.
fn close(schema: &mut Map<String, Value>, mut below: impl FnMut(&Value) -> Value) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            *property = below(property);
        }
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key).filter(|inner| inner.is_object()) {
            *inner = below(inner);
        }
    }
}

/// The same without unknown fields, and with what the description says in words: a number or a text, a null for nothing.
fn strict(schema: &Value, used: &mut BTreeSet<String>) -> Value {
    match schema {
        Value::Object(fields) if fields.get("format") == Some(&json!("int-or-string")) => {
            json!({ "type": ["string", "integer"] })
        }
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                let name = name.trim_start_matches("#/definitions/");
                if name.ends_with(".Quantity") {
                    return json!({ "type": ["string", "number"] });
                }
                used.insert(name.to_owned());
                return json!({ "$ref": format!("#/definitions/{name}") });
            }
            let is_meaning = |key: &str| {
                [
                    "type",
                    "properties",
                    "items",
                    "required",
                    "additionalProperties",
                    "enum",
                ]
                .contains(&key)
            };
            let mut kept: Map<String, Value> = fields
                .iter()
                .filter(|(key, _)| is_meaning(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            close(&mut kept, |schema| strict(schema, used));
            Value::Object(kept)
        }
        other => other.clone(),
    }
}

#[test]
fn every_manifest_of_chart_and_operator_is_valid_for_the_oldest_and_for_the_tested_kubernetes() -> anyhow::Result<()> {
    for minor in MINORS {
        let folder = tempfile::tempdir()?;
        schemas(minor, folder.path())?;
        monitor_schemas(folder.path())?;
        let location = format!(
            "{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
            folder.path().display()
        );
        let arguments = [
            "-strict",
            "-summary",
            "-skip",
            UNDESCRIBED,
            "-schema-location",
            &location,
            "-",
        ];
        for set in ValueSet::all()? {
            judge("kubeconform", &arguments, &set.render(KUBERNETES)?)
                .with_context(|| format!("{} on {minor}", set.name))?;
        }
        for name in OPERATOR {
            // As the operator sends them; where YAML of another version is read, a bare `y` is no text.
            let manifests = objects(&read(&format!("tests/golden/operator/{name}.yaml"))?)?;
            let manifests: Vec<String> = manifests.iter().map(Value::to_string).collect();
            let manifests = manifests.join("\n---\n");
            judge("kubeconform", &arguments, &manifests).with_context(|| format!("{name} on {minor}"))?;
        }
        // It does judge: an unknown field and a wrong type are found.
        for fault in ["replicaz: 1", "replicas: many"] {
            let wrong = format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\nspec:\n  {fault}\n  selector: {{}}\n  template: {{}}\n"
            );
            ensure!(
                judge("kubeconform", &arguments, &wrong).is_err(),
                "{fault} was not found on {minor}"
            );
        }
        for fault in [
            "endpoints: []\n  endpointz: []",
            "endpoints: many",
            "endpoints: [{scheme: gopher}]",
        ] {
            let wrong = format!(
                "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {{name: x}}\nspec:\n  {fault}\n  selector: {{}}\n"
            );
            ensure!(
                judge("kubeconform", &arguments, &wrong).is_err(),
                "{fault} was not found in a ServiceMonitor"
            );
        }
    }
    Ok(())
}

#[test]
fn kube_score_finds_nothing_in_what_is_installed_by_default() -> anyhow::Result<()> {
    for set in ValueSet::all()? {
        // The others leave out on purpose what it asks for, such as a policy or a second replica.
        if ["default", "namespaces", "monitored", "closed"].contains(&set.name.as_str()) {
            judge("kube-score", &["score", "-"], &set.render(KUBERNETES)?).with_context(|| set.name.clone())?;
        }
    }
    Ok(())
}
