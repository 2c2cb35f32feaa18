//! The whole definition as the cluster gets it: what the types derive, the rule on the object's name, and a schema made
//! plain: no `nullable` (so that an explicit null is dropped and the default holds) and only the formats Kubernetes knows.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::rules;
use crate::v1alpha1::PowerContextDeployment;

const HEADER: &str = "# Written by `make gen` from the types in crds/src; do not edit.\n";

/// The definition.
pub fn crd() -> CustomResourceDefinition {
    let derived = PowerContextDeployment::crd();
    let mut value = serde_json::to_value(derived).expect("the derived definition is JSON");
    for version in value["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let schema = &mut version["schema"]["openAPIV3Schema"];
        simplify(schema);
        // The type is shared with `worker`, whose default is not none.
        schema["properties"]["spec"]["properties"]["background"]["properties"]["replicas"]["default"] = 0.into();
        schema["x-kubernetes-validations"] = rules::root();
    }
    serde_json::from_value(value).expect("the plain definition is one too")
}

/// The file `crds/powercontextdeployments.yaml`.
pub fn yaml() -> String {
    let text = serde_yaml::to_string(&crd()).expect("the definition is YAML");
    format!("{HEADER}{text}")
}

/// Takes away what says nothing to the API server.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("nullable").is_some_and(Value::is_boolean) {
                fields.remove("nullable");
            }
            if fields.get("title").is_some_and(Value::is_string) {
                fields.remove("title");
            }
            let known = match fields.get("format").and_then(Value::as_str) {
                Some("uint8" | "uint16" | "int32") => Some("int32"),
                Some("uint32" | "uint64" | "int64") => Some("int64"),
                _ => None,
            };
            if let Some(known) = known {
                fields.insert("format".into(), known.into());
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}
