//! Every object of three deployments as a golden manifest, and what must hold for all of them whatever they look like.

use serde_json::{Value, json};

use super::*;
use crate::object::Kind;
use crate::testing::valid;

/// The three samples: the smallest, one with everything on, one with nothing running.
fn samples() -> [(&'static str, Value); 3] {
    let everything = json!({
        "imagePullSecrets": [{ "name": "pull" }],
        "imagePullPolicy": "IfNotPresent",
        "database": { "roles": { "api": { "name": "pc-auth", "key": "token" } } },
        "inference": { "apiAccess": true, "generation": { "baseUrl": "https://model.example/v1", "timeoutSeconds": 60 } },
        "api": { "resources": { "requests": { "cpu": "1000m", "memory": "1024Mi" }, "limits": { "memory": "1.5Gi" } },
            "pod": { "nodeSelector": { "disk": "ssd" }, "priorityClassName": "high", "annotations": { "a": "b" },
                "affinity": { "nodeAffinity": {} },
                "tolerations": [{ "key": "gpu", "operator": "Exists" }],
                "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }],
                "extraEnv": [{ "name": "A", "value": "1" },
                    { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
                "extraVolumes": [{ "name": "ca", "configMap": { "name": "ca" } }],
                "extraVolumeMounts": [{ "name": "ca", "mountPath": "/etc/ca" }] } },
        "background": { "replicas": 1 },
        "supervisor": { "mode": "dedicated", "memory": { "scheduleSeconds": 60, "maxWorkers": 3, "retry": "unbounded" },
            "profile": { "cron": "0 2 * * *", "timezone": "Asia/Shanghai" } },
        "rateLimit": { "requests": 10 },
        "autoscaling": { "api": { "maxReplicas": 8 } },
        "service": { "type": "NodePort", "nodePort": 30080, "annotations": { "x": "y" } },
        "ingress": { "host": "pc.example", "tlsSecretName": "tls" },
        "networkPolicy": { "enabled": true, "allowFromNamespaces": { "team": "a" } },
        "monitoring": { "podMonitor": true, "intervalSeconds": 30, "labels": { "release": "prometheus" } },
    });
    let nothing = json!({
        "api": { "replicas": 0 }, "scheduler": { "replicas": 0 }, "worker": { "replicas": 0 },
        "podDisruptionBudget": { "enabled": false }, "networkPolicy": { "enabled": true },
    });
    [
        ("smallest", json!({})),
        ("everything", everything),
        ("nothing", nothing),
    ]
}

fn all(spec: &Value) -> Vec<Object> {
    let objects = build(&valid(spec));
    let roles = objects.roles.into_values();
    objects
        .around
        .into_iter()
        .chain([objects.migrate, objects.plan, objects.switch_mode])
        .chain(roles)
        .collect()
}

#[test]
fn the_manifests_of_each_sample_are_the_golden_ones() {
    for (name, spec) in samples() {
        let documents: Vec<_> = all(&spec)
            .iter()
            .map(|object| serde_yaml::to_string(&object.manifest).expect("YAML"))
            .collect();
        crate::golden::check(&format!("{name}.yaml"), &documents.join("---\n"));
    }
}

/// Every pod template of a sample, with the name of its object.
fn templates(spec: &Value) -> Vec<(String, Value)> {
    let with_pods = |object: &Object| matches!(object.key.kind, Kind::Deployment | Kind::Job);
    let objects = all(spec).into_iter().filter(with_pods);
    objects
        .map(|object| (object.key.name, object.manifest["spec"]["template"].clone()))
        .collect()
}

fn is_job(object: &str) -> bool {
    ["-migrate-", "-plan-", "-switch-mode-"]
        .iter()
        .any(|part| object.contains(part))
}

#[test]
fn every_pod_meets_the_restricted_standard() {
    for (name, spec) in samples() {
        for (object, template) in templates(&spec) {
            let place = format!("{name}: {object}");
            let pod = &template["spec"];
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{place}");
            assert!(security["runAsUser"].as_i64().is_some_and(|user| user > 0), "{place}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{place}");
            assert_eq!(pod["automountServiceAccountToken"], false, "{place}");
            assert_eq!(pod["enableServiceLinks"], false, "{place}");
            for forbidden in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
                assert!(pod[forbidden].is_null(), "{place}: {forbidden}");
            }
            let container = &pod["containers"][0]["securityContext"];
            assert_eq!(container["allowPrivilegeEscalation"], false, "{place}");
            assert_eq!(container["capabilities"]["drop"], json!(["ALL"]), "{place}");
            assert_eq!(container["readOnlyRootFilesystem"], true, "{place}");
        }
    }
}

#[test]
fn no_secret_is_in_a_manifest_and_none_is_referred_to_by_a_role_that_does_not_use_it() {
    for (name, spec) in samples() {
        for object in all(&spec) {
            assert!(
                !object.manifest.to_string().contains("canary"),
                "{name}: {}",
                object.key.name
            );
        }
    }
    for (object, template) in templates(&json!({})) {
        let names: Vec<_> = template["spec"]["containers"][0]["env"]
            .as_array()
            .expect("an environment")
            .iter()
            .filter_map(|one| one["name"].as_str().map(str::to_owned))
            .collect();
        let has = |name: &str| names.iter().any(|one| one == name);
        assert_eq!(
            has("OPENAI_API_KEY"),
            object == "pc-worker" || object == "pc-background",
            "{object}"
        );
        assert_eq!(has("POWERCONTEXT_SERVER_AUTH_TOKEN"), !is_job(&object), "{object}");
        assert!(has("POWERCONTEXT_SERVER_DATABASE_URL"), "{object}");
    }
}

#[test]
fn liveness_never_asks_for_the_database_and_a_job_has_no_probe() {
    for (object, template) in templates(&json!({})) {
        let container = &template["spec"]["containers"][0];
        if is_job(&object) {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                assert!(container[probe].is_null(), "{object}");
            }
        } else {
            assert_eq!(
                container["livenessProbe"]["httpGet"]["path"], "/health/live",
                "{object}"
            );
            assert_eq!(container["startupProbe"]["httpGet"]["path"], "/health/live", "{object}");
            assert_eq!(
                container["readinessProbe"]["httpGet"]["path"], "/health/ready",
                "{object}"
            );
        }
    }
}

#[test]
fn selectors_name_no_version_and_every_object_is_owned_and_labelled() {
    let image = json!({ "image": "registry.example/powercontext:9.9.9" });
    for (one, other) in all(&json!({})).iter().zip(all(&image)) {
        if one.key.kind == Kind::Deployment {
            let selector = |object: &Object| object.manifest["spec"]["selector"].clone();
            assert_eq!(selector(one), selector(&other));
        }
        assert_eq!(crate::object::owner(&one.manifest), Some("uid-1"));
        assert_eq!(
            one.manifest["metadata"]["ownerReferences"][0]["blockOwnerDeletion"],
            Value::Null
        );
        assert_eq!(one.manifest["metadata"]["labels"]["powercontext.io/deployment"], "pc");
        assert_eq!(one.manifest["metadata"]["namespace"], "default");
    }
}

#[test]
fn an_odd_spelling_of_an_amount_changes_no_manifest() {
    let amounts = |cpu: Value, memory: &str| json!({ "worker": { "resources": { "requests": { "cpu": cpu, "memory": memory } } } });
    let stored = all(&amounts(json!("500m"), "1536Mi"));
    for (cpu, memory) in [
        (json!("0.5"), "1.5Gi"),
        (json!("500m"), "1536Mi"),
        (json!("0.50"), "1572864Ki"),
    ] {
        assert_eq!(stored, all(&amounts(cpu, memory)));
    }
    assert_eq!(all(&amounts(json!(1), "1Gi")), all(&amounts(json!("1000m"), "1024Mi")));
}

#[test]
fn a_pod_outlives_its_drain_and_its_heartbeat() {
    let grace = |spec: Value| {
        let templates = templates(&spec);
        let worker = templates
            .iter()
            .find(|(name, _)| name == "pc-worker")
            .expect("a Worker");
        worker.1["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .expect("a number")
    };
    assert!(grace(json!({})) > 90 + 30);
    assert!(grace(json!({ "worker": { "leaseSeconds": 12, "heartbeatSeconds": 3, "shutdownGraceSeconds": 9 } })) > 12);
    assert_eq!(
        grace(json!({ "worker": { "terminationGracePeriodSeconds": 500 } })),
        500
    );
}

#[test]
fn what_is_turned_off_is_unwanted_and_never_both() {
    for (name, spec) in samples() {
        let objects = build(&valid(&spec));
        for key in &objects.unwanted {
            assert!(
                objects.around.iter().all(|object| object.key != *key),
                "{name}: {key:?}"
            );
        }
        let budgets = objects
            .around
            .iter()
            .filter(|object| object.key.kind == Kind::PodDisruptionBudget);
        assert_eq!(budgets.count(), if name == "nothing" { 0 } else { 3 }, "{name}");
    }
}

#[test]
fn closed_ports_stay_open_to_the_operator_that_reads_what_roles_report() {
    let objects = build(&valid(&json!({ "networkPolicy": { "enabled": true } })));
    let policy = |role: &str| {
        let name = format!("pc-{role}");
        let is_it = |object: &&Object| object.key.kind == Kind::NetworkPolicy && object.key.name == name;
        objects.around.iter().find(is_it).expect("a policy").manifest["spec"]["ingress"].clone()
    };
    assert_eq!(policy("api")[0]["from"], Value::Null);
    let from = &policy("worker")[0]["from"];
    assert_eq!(from.as_array().map(Vec::len), Some(1));
    assert!(from.to_string().contains("powercontext-system"), "{from}");
}

/// What a process gets and who may reach it, as the table of the documentation tells it.
fn told(process: &str) -> String {
    let object = |spec: Value| {
        let objects = build(&valid(&spec));
        let role = Role::ALL.into_iter().find(|role| role.as_str() == process);
        let object = match (role, process) {
            (Some(role), _) => objects.roles[&role].clone(),
            (None, MIGRATE) => objects.migrate,
            (None, PLAN) => objects.plan,
            (None, _) => objects.switch_mode,
        };
        (
            object.manifest["spec"]["template"]["spec"]["containers"][0].clone(),
            objects.around,
        )
    };
    let has = |container: &Value, end: &str| {
        let env = container["env"].as_array().into_iter().flatten();
        let mut secret = env.filter(|one| one["valueFrom"]["secretKeyRef"].is_object());
        secret.any(|one| one["name"].as_str().is_some_and(|name| name.ends_with(end)))
    };
    let network = |allowed: Value| json!({ "networkPolicy": { "enabled": true, "allowFromNamespaces": allowed } });
    let (container, _) = object(json!({}));
    let (with_access, _) = object(json!({ "inference": { "apiAccess": true } }));
    let mut secrets = Vec::new();
    for (end, name) in [
        ("_DATABASE_URL", "database"),
        ("_AUTH_TOKEN", "token"),
        ("_API_KEY", "model"),
    ] {
        match (has(&container, end), has(&with_access, end)) {
            (true, true) => secrets.push(name.to_owned()),
            (false, true) => secrets.push(format!("{name} with `inference.apiAccess`")),
            _ => {}
        }
    }
    let port = container["ports"][0]["containerPort"].as_i64();
    let peers = |around: &[Object]| {
        let policy = around
            .iter()
            .find(|object| object.key.kind == Kind::NetworkPolicy && object.key.name == format!("pc-{process}"));
        policy.map(|policy| policy.manifest["spec"]["ingress"][0]["from"].clone())
    };
    let open = peers(&object(json!({ "networkPolicy": { "enabled": true } })).1);
    let named = peers(&object(network(json!({ "team": "a" }))).1);
    let reached = match (open, named) {
        (Some(open), Some(named)) => {
            assert!(named.to_string().contains("\"team\"") && named.to_string().contains("powercontext-system"));
            let everybody = if open.is_null() { "everybody, or " } else { "" };
            format!("{everybody}`allowFromNamespaces`; the operator")
        }
        _ => "nobody: it does not listen".to_owned(),
    };
    let port = port.map_or_else(|| "-".to_owned(), |port| port.to_string());
    format!("| {process} | {} | {port} | {reached} |", secrets.join(", "))
}

#[test]
fn the_table_of_roles_secrets_and_ports_is_what_is_built() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let processes = Role::ALL
        .map(Role::as_str)
        .into_iter()
        .chain([MIGRATE, PLAN, SWITCH_MODE]);
    for process in processes {
        let row = told(process);
        assert!(page.contains(&row), "the table has no row that begins with\n{row}");
    }
}
