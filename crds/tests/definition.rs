//! The shape of the generated definition: what `kubectl` shows and accepts, and what the API server insists on.

use serde_json::Value;

/// Largest annotation in which `kubectl apply` can keep what was applied last, in bytes.
const LAST_APPLIED_BYTES_MAX: usize = 262_144;

fn crd() -> Value {
    serde_json::to_value(powercontext_crds::crd()).expect("JSON")
}

fn every(schema: &Value, visit: &mut impl FnMut(&Value)) {
    visit(schema);
    for child in schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, child)| child)
    {
        every(child, visit);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            every(&schema[key], visit);
        }
    }
}

#[test]
fn it_has_the_names_columns_and_subresources_that_were_agreed() {
    let crd = crd();
    assert_eq!(crd["metadata"]["name"], "powercontextdeployments.powercontext.io");
    assert_eq!(crd["spec"]["scope"], "Namespaced");
    assert_eq!(crd["spec"]["names"]["shortNames"][0], "pcd");
    assert_eq!(crd["spec"]["names"]["categories"][0], "powercontext");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!(
        version["subresources"]["scale"]["specReplicasPath"],
        ".spec.worker.replicas"
    );
    assert_eq!(
        version["subresources"]["scale"]["statusReplicasPath"],
        ".status.roles.worker.replicas"
    );
    assert_eq!(
        version["subresources"]["scale"]["labelSelectorPath"],
        ".status.workerSelector"
    );
    assert!(version["subresources"]["status"].is_object());
    assert!(
        version["additionalPrinterColumns"]
            .as_array()
            .is_some_and(|columns| columns.len() >= 6)
    );
}

#[test]
fn every_field_says_what_it_means_and_every_length_of_time_names_its_unit() {
    let crd = crd();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    every(spec, &mut |schema| {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let said = field["description"].as_str().unwrap_or_default();
            assert!(!said.is_empty(), "{name} has no description");
            if name.ends_with("Seconds") {
                assert!(said.to_lowercase().contains("second"), "{name}: {said}");
            }
        }
    });
}

#[test]
fn the_schema_is_structural_and_small_enough_for_kubectl_apply() {
    let crd = crd();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    every(schema, &mut |schema| {
        for odd in ["$ref", "oneOf", "allOf", "not", "nullable", "const", "title", "$defs"] {
            assert!(schema[odd].is_null(), "{odd} in {schema}");
        }
        let has_type = schema["type"].is_string();
        let is_either = schema["x-kubernetes-int-or-string"] == true;
        assert!(has_type || is_either, "no type: {schema}");
        if let Some(format) = schema["format"].as_str() {
            assert!(["int32", "int64", "date-time"].contains(&format), "{format}");
        }
        if let Some(Value::Array(keys)) = schema.get("x-kubernetes-list-map-keys") {
            for key in keys {
                let required = schema["items"]["required"]
                    .as_array()
                    .is_some_and(|all| all.contains(key));
                assert!(required, "key {key} of a list map must be required");
            }
        }
    });
    let bytes = serde_json::to_string(&crd).expect("JSON").len();
    assert!(bytes < LAST_APPLIED_BYTES_MAX / 2, "{bytes} bytes");
}

#[test]
fn a_spec_left_out_and_a_spec_written_out_mean_the_same() {
    let crd = crd();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    assert_eq!(spec["worker"]["default"]["replicas"], 2);
    assert_eq!(spec["worker"]["default"]["leaseSeconds"], 120);
    assert_eq!(spec["background"]["default"]["replicas"], 0);
    assert_eq!(spec["background"]["properties"]["replicas"]["default"], 0);
    assert_eq!(spec["worker"]["properties"]["replicas"]["default"], 2);
    assert_eq!(spec["worker"]["properties"]["heartbeatSeconds"]["default"], 30);
    assert_eq!(spec["supervisor"]["default"]["mode"], "global");
    assert!(spec["api"]["properties"]["replicas"]["default"].is_null());
}
