//! What the API server would say about an object, evaluated here: the rules of the generated definition by an interpreter
//! of CEL, and limits, patterns, enumerations, required fields and unique keys by a few lines of this file.
//!
//! Whether a real API server accepts the definition, and what it thinks a rule costs, is not shown here; that every list,
//! map and string a rule walks over has a limit is.

use std::sync::LazyLock;

use kube_cel::{CompiledSchema, RootContext, Validator, apply_defaults, compile_schema};
use serde_json::{Value, json};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(powercontext_crds::crd()).expect("JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
});

static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&SCHEMA));

/// The smallest spec that says what it must.
fn sample() -> Value {
    json!({
        "apiVersion": "powercontext.io/v1alpha1",
        "kind": "PowerContextDeployment",
        "metadata": { "name": "pc", "namespace": "default" },
        "spec": {
            "image": "registry.example/powercontext:0.1.0",
            "database": { "urlSecretRef": { "name": "pc-database", "key": "url" } },
            "auth": { "tokenSecretRef": { "name": "pc-auth", "key": "token" } },
            "inference": { "generation": { "provider": "openai-chat", "model": "gpt-x" } },
        }
    })
}

/// The sample with one place changed; `null` takes it away.
fn with(pointer: &str, value: Value) -> Value {
    let mut object = sample();
    let mut at = &mut object;
    let parts: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    for part in &parts[..parts.len() - 1] {
        if at[*part].is_null() {
            at[*part] = json!({});
        }
        at = &mut at[*part];
    }
    let last = parts[parts.len() - 1];
    if value.is_null() {
        at.as_object_mut().expect("an object").remove(last);
    } else {
        at[last] = value;
    }
    object
}

/// Every sentence that the object is refused with; none when it is admitted.
fn refusals(object: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = &*SCHEMA;
    let object = apply_defaults(schema, object);
    let old = old.map(|old| apply_defaults(schema, old));
    let mut found = Vec::new();
    structural(schema, &object, "", &mut found);
    let root = RootContext {
        api_version: "powercontext.io/v1alpha1".into(),
        api_group: "powercontext.io".into(),
        kind: "PowerContextDeployment".into(),
    };
    let judged = Validator::new().validate_compiled_with_context(&RULES, &object, old.as_ref(), Some(&root));
    if let Err(errors) = judged {
        found.extend(errors.into_vec().into_iter().map(|error| error.message));
    }
    found
}

/// The part of a schema that is not CEL.
fn structural(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let number = |key: &str| schema[key].as_f64();
    if let Some(n) = value.as_f64()
        && (number("minimum").is_some_and(|min| n < min) || number("maximum").is_some_and(|max| n > max))
    {
        found.push(format!("{path}: out of range"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{path}: not supported"));
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        let short = schema["minLength"].as_u64().is_some_and(|min| length < min);
        let long = schema["maxLength"].as_u64().is_some_and(|max| length > max);
        let odd = schema["pattern"]
            .as_str()
            .is_some_and(|pattern| !matches(text, pattern));
        if short || long || odd {
            found.push(format!("{path}: length or pattern"));
        }
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.is_object() && value[required.as_str().unwrap_or_default()].is_null() {
            found.push(format!("{path}.{}: required", required.as_str().unwrap_or_default()));
        }
    }
    if let (Some(items), Some(keys)) = (value.as_array(), schema["x-kubernetes-list-map-keys"].as_array()) {
        let keys = |item: &Value| -> Vec<Value> {
            keys.iter()
                .map(|key| item[key.as_str().unwrap_or_default()].clone())
                .collect()
        };
        if (1..items.len()).any(|at| items[..at].iter().any(|before| keys(before) == keys(&items[at]))) {
            found.push(format!("{path}: duplicate"));
        }
    }
    for (key, child) in schema["properties"].as_object().into_iter().flatten() {
        if !value[key].is_null() {
            structural(child, &value[key], &format!("{path}.{key}"), found);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        structural(&schema["items"], item, &format!("{path}[]"), found);
    }
}

fn matches(text: &str, pattern: &str) -> bool {
    use kube_cel::cel::{Context, Program, Value as Cel};
    let mut context = Context::default();
    context.add_variable("text", text).expect("a string");
    context.add_variable("pattern", pattern).expect("a string");
    let program = Program::compile("text.matches(pattern)").expect("an expression");
    program.execute(&context).expect("a valid pattern") == Cel::Bool(true)
}

#[test]
fn the_smallest_spec_is_admitted_and_so_is_one_that_says_everything() {
    assert_eq!(refusals(&sample(), None), Vec::<String>::new());
    let mut full = sample();
    full["spec"]["worker"] = json!({ "replicas": 0, "leaseSeconds": 12, "heartbeatSeconds": 3, "shutdownGraceSeconds": 9,
        "terminationGracePeriodSeconds": 13, "concurrency": 1 });
    full["spec"]["api"] = json!({ "resources": { "requests": { "cpu": "0.5", "memory": "1.5Gi" }, "limits": { "cpu": 1 } },
        "pod": { "extraEnv": [{ "name": "POWERCONTEXT_SERVER_LOGGING_LEVEL", "value": "DEBUG" },
            { "name": "OTEL_X", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } }],
            "extraVolumes": [{ "name": "ca", "configMap": { "name": "ca" } }],
            "extraVolumeMounts": [{ "name": "ca", "mountPath": "/etc/ca" }] } });
    full["spec"]["autoscaling"] = json!({ "api": { "maxReplicas": 8 } });
    full["spec"]["supervisor"] = json!({ "mode": "dedicated", "memory": { "scheduleSeconds": 60, "retry": "bounded" },
        "profile": { "cron": "0 2 * * *", "timezone": "Asia/Shanghai" } });
    full["spec"]["ingress"] = json!({ "host": "pc.example", "tlsSecretName": "pc-tls" });
    full["spec"]["rateLimit"] = json!({});
    full["spec"]["monitoring"] = json!({ "podMonitor": true, "intervalSeconds": 30 });
    full["spec"]["paused"] = json!(true);
    assert_eq!(refusals(&full, None), Vec::<String>::new());
}

#[test]
fn numbers_and_variables_of_a_role_are_refused_with_their_reason() {
    let env = |names: &[&str]| -> Value { names.iter().map(|name| json!({ "name": name, "value": "x" })).collect() };
    refused(&[
        ("/metadata/name", json!("n".repeat(64)), "at most 63"),
        ("/spec/worker/replicas", json!(-1), "out of range"),
        ("/spec/api/replicas", json!(-1), "out of range"),
        ("/spec/worker/heartbeatSeconds", json!(40), "three heartbeats"),
        ("/spec/background/heartbeatSeconds", json!(40), "three heartbeats"),
        (
            "/spec/worker/shutdownGraceSeconds",
            json!(120),
            "must not outlive its leases",
        ),
        (
            "/spec/worker/terminationGracePeriodSeconds",
            json!(120),
            "must outlive its drain",
        ),
        ("/spec/scheduler/renewSeconds", json!(11), "three renewals"),
        ("/spec/worker/pod/extraEnv", env(&["A", "A"]), "duplicate"),
        (
            "/spec/worker/pod/extraEnv",
            env(&["ANTHROPIC_API_KEY"]),
            "sets this variable itself",
        ),
        (
            "/spec/api/pod/extraEnv",
            env(&["POWERCONTEXT_SERVER_DATABASE_URL"]),
            "sets this variable itself",
        ),
        (
            "/spec/migration/pod/extraEnv",
            env(&["POWERCONTEXT_SERVER_DEPLOYMENT_ROLE"]),
            "sets this variable itself",
        ),
        (
            "/spec/worker/pod/extraEnv",
            env(&["POWERCONTEXT_SERVER_RUNTIME_MEMORY_RETRY"]),
            "sets this variable itself",
        ),
        (
            "/spec/worker/pod/extraEnv",
            json!([{ "name": "A", "value": "x", "valueFrom": { "fieldRef": { "fieldPath": "p" } } }]),
            "exclude each other",
        ),
        (
            "/spec/worker/pod/extraEnv",
            json!([{ "name": "A", "valueFrom": {} }]),
            "exactly one source",
        ),
        ("/spec/worker/pod/extraEnv", env(&["1A"]), "pattern"),
        (
            "/spec/worker/pod/extraVolumeMounts",
            json!([{ "name": "v", "mountPath": "/v" }]),
            "name one of extraVolumes",
        ),
        (
            "/spec/worker/pod/extraVolumes",
            json!([{ "name": "tmp", "emptyDir": {} }]),
            "operator's own",
        ),
        (
            "/spec/worker/pod/annotations",
            json!({ "powercontext.io/x": "1" }),
            "operator's own",
        ),
    ]);
}

#[test]
fn values_out_of_range_and_parts_without_meaning_are_refused_with_their_reason() {
    refused(&[
        ("/spec/auth", json!({}), "either tokenSecretRef"),
        ("/spec/auth/unauthenticated", json!(true), "either tokenSecretRef"),
        ("/spec/supervisor/profile", json!({ "timezone": "UTC" }), "without cron"),
        ("/spec/supervisor/mode", json!("both"), "not supported"),
        ("/spec/operations/maximumWaitSeconds", json!(5), "may not exceed"),
        ("/spec/migration/backoffSeconds", json!(700), "may not exceed"),
        ("/spec/migration/policy", json!("Never"), "not supported"),
        (
            "/spec/autoscaling/api",
            json!({ "minReplicas": 3, "maxReplicas": 2 }),
            "may not exceed",
        ),
        (
            "/spec/autoscaling/api",
            json!({ "maxReplicas": 2 }),
            "needs api.resources.requests.cpu",
        ),
        ("/spec/service/nodePort", json!(30080), "type ClusterIP"),
        ("/spec/ingress/tlsSecretName", json!("t"), "without host"),
        (
            "/spec/networkPolicy/allowFromNamespaces",
            json!({ "a": "b" }),
            "not enabled",
        ),
        (
            "/spec/podDisruptionBudget",
            json!({ "enabled": false, "maxUnavailable": 1 }),
            "not enabled",
        ),
        ("/spec/monitoring/labels", json!({ "a": "b" }), "without podMonitor"),
        ("/spec/image", json!("a b"), "pattern"),
        ("/spec/image", Value::Null, "required"),
        ("/spec/database/urlSecretRef", Value::Null, "required"),
        (
            "/spec/inference/generation/baseUrl",
            json!("https://user:pass@host"),
            "pattern",
        ),
        (
            "/spec/worker/resources",
            json!({ "requests": { "cpu": "one" } }),
            "pattern",
        ),
    ]);
}

fn refused(cases: &[(&str, Value, &str)]) {
    for (pointer, value, reason) in cases {
        let found = refusals(&with(pointer, value.clone()), None);
        assert!(
            found.iter().any(|said| said.contains(reason)),
            "{pointer} = {value}: {found:?}"
        );
    }
}

#[test]
fn replicas_under_an_autoscaler_are_refused_as_meaningless() {
    let mut object = with("/spec/autoscaling/api", json!({ "maxReplicas": 4 }));
    object["spec"]["api"] = json!({ "replicas": 2, "resources": { "requests": { "cpu": 1 } } });
    assert!(
        refusals(&object, None)
            .iter()
            .any(|said| said.contains("remove one of them"))
    );
    object["spec"]["api"]
        .as_object_mut()
        .expect("an object")
        .remove("replicas");
    assert_eq!(refusals(&object, None), Vec::<String>::new());
}

#[test]
fn the_identity_of_the_database_cannot_be_changed_nor_taken_away() {
    let named = with("/spec/database/identity", json!("orders"));
    assert_eq!(refusals(&named, Some(&named)), Vec::<String>::new());
    for new in [sample(), with("/spec/database/identity", json!("other"))] {
        let found = refusals(&new, Some(&named));
        assert!(
            found.iter().any(|said| said.contains("another deployment")),
            "{found:?}"
        );
    }
}

#[test]
fn a_refusal_never_repeats_a_value() {
    let object = with(
        "/spec/worker/pod/extraEnv",
        json!([{ "name": "OPENAI_API_KEY", "value": "canary-5b1c" }]),
    );
    assert!(refusals(&object, None).iter().all(|said| !said.contains("canary-5b1c")));
}

/// Functions and macros that the rules may call. Each is in Kubernetes 1.30, the oldest that is supported.
const CALLED: [&str; 7] = ["all", "exists", "filter", "has", "matches", "size", "startsWith"];

/// What a rule calls: names right before an opening bracket. Patterns between quotes are no part of it.
fn called(rule: &str) -> Vec<String> {
    let code: String = rule.split('\'').step_by(2).collect::<Vec<_>>().join("''");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ends = code.match_indices('(').map(|(at, _)| &code[..at]);
    ends.map(|before| before.rsplit(|c| !is_name(c)).next().unwrap_or_default().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn no_rule_calls_a_function_newer_than_the_oldest_kubernetes() {
    fn visit(schema: &Value, found: &mut Vec<String>) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            found.extend(called(rule["rule"].as_str().unwrap_or_default()));
        }
        for child in schema["properties"].as_object().into_iter().flatten() {
            visit(child.1, found);
        }
        if schema["items"].is_object() {
            visit(&schema["items"], found);
        }
    }
    assert_eq!(called("has(self.a) && !self.b.matches('^(c(d))')"), ["has", "matches"]);
    let mut found = Vec::new();
    visit(&SCHEMA, &mut found);
    assert!(found.len() > 30, "{found:?}");
    let newer: Vec<_> = found.iter().filter(|name| !CALLED.contains(&name.as_str())).collect();
    assert_eq!(newer, Vec::<&String>::new());
}

#[test]
fn every_rule_compiles_and_walks_over_limited_lists_only() {
    fn visit(path: &str, schema: &Value, rules: &mut usize) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            *rules += 1;
            let text = rule["rule"].as_str().expect("a rule is text");
            assert!(
                rule["message"].as_str().is_some_and(|said| said.len() > 10),
                "{path}: {text}"
            );
            assert!(text.contains("self."), "{path}: {text}");
        }
        for (key, child) in schema["properties"].as_object().into_iter().flatten() {
            visit(&format!("{path}.{key}"), child, rules);
        }
        if schema["items"].is_object() {
            let inside_spec = path.starts_with(".spec");
            assert!(
                !inside_spec || schema["maxItems"].is_number(),
                "{path}: a list without a limit"
            );
            visit(&format!("{path}[]"), &schema["items"], rules);
        }
        if schema["additionalProperties"].is_object() && path.starts_with(".spec") {
            assert!(schema["maxProperties"].is_number(), "{path}: a map without a limit");
        }
    }
    let schema = &*SCHEMA;
    assert!(RULES.compilation_errors().is_empty());
    let mut rules = 0;
    visit("", schema, &mut rules);
    assert!(rules >= 20, "only {rules} rules were found");
}

#[test]
fn the_sample_of_the_documents_is_admitted() {
    let sample = include_str!("../../docs/examples/deployment.yaml");
    let object: Value = serde_yaml::from_str(sample).expect("YAML");
    assert_eq!(refusals(&object, None), Vec::<String>::new());
}
