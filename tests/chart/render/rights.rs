//! What the chart grants and what it asks of a namespace, for every value set.

use anyhow::{Context as _, ensure};
use powercontext_chart_tests::{KUBERNETES, ValueSet, objects, of_kind, template};
use serde_json::Value;

/// Texts of a list.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Every rule of every role.
fn rules(objects: &[Value]) -> Vec<&Value> {
    let roles = objects.iter().filter(|object| object["rules"].is_array());
    roles
        .flat_map(|role| role["rules"].as_array().into_iter().flatten())
        .collect()
}

/// The pod specs that the objects hold.
fn pods(objects: &[Value]) -> Vec<&Value> {
    let of_deployments = of_kind(objects, "Deployment")
        .into_iter()
        .map(|object| &object["spec"]["template"]["spec"]);
    let alone = of_kind(objects, "Pod").into_iter().map(|object| &object["spec"]);
    of_deployments.chain(alone).collect()
}

#[test]
fn no_right_is_a_wildcard_and_secrets_are_read_one_by_one() -> anyhow::Result<()> {
    for set in ValueSet::all()? {
        let objects = objects(&set.render(KUBERNETES)?)?;
        for rule in rules(&objects) {
            ensure!(!rule.to_string().contains('*'), "{}: {rule}", set.name);
            if texts(&rule["resources"]).contains(&"secrets") {
                ensure!(
                    texts(&rule["verbs"]) == ["get"] && texts(&rule["resources"]) == ["secrets"],
                    "{rule}"
                );
            }
            if texts(&rule["resources"]).contains(&"leases") && texts(&rule["verbs"]) != ["create"] {
                ensure!(rule["resourceNames"].is_array(), "{rule}");
            }
        }
    }
    Ok(())
}

#[test]
fn scope_namespaces_makes_nothing_cluster_wide_and_binds_in_each_namespace() -> anyhow::Result<()> {
    let arguments = [
        "--set",
        "scope=namespaces,namespaces={team-a,team-b},crds.install=false",
    ];
    let objects = objects(&template(KUBERNETES, &arguments)?)?;
    for object in &objects {
        ensure!(
            object["metadata"]["namespace"].is_string(),
            "{} is cluster-wide",
            object["kind"]
        );
    }
    for namespace in ["team-a", "team-b"] {
        for kind in ["Role", "RoleBinding"] {
            let there = of_kind(&objects, kind)
                .into_iter()
                .filter(|role| role["metadata"]["namespace"] == namespace);
            ensure!(there.count() == 1, "{kind} in {namespace}");
        }
    }
    let deployment = of_kind(&objects, "Deployment")[0];
    let arguments = texts(&deployment["spec"]["template"]["spec"]["containers"][0]["args"]);
    ensure!(
        arguments.ends_with(&["--namespace=team-a", "--namespace=team-b"]),
        "{arguments:?}"
    );
    Ok(())
}

#[test]
fn there_is_no_hook_but_the_test() -> anyhow::Result<()> {
    for set in ValueSet::all()? {
        for object in objects(&set.render(KUBERNETES)?)? {
            let hook = &object["metadata"]["annotations"]["helm.sh/hook"];
            ensure!(hook.is_null() || hook == "test", "{}: {hook}", object["kind"]);
        }
    }
    Ok(())
}

#[test]
fn selectors_carry_no_version_and_select_only_the_operator() -> anyhow::Result<()> {
    for set in ValueSet::all()? {
        let objects = objects(&set.render(KUBERNETES)?)?;
        let deployment = of_kind(&objects, "Deployment")[0];
        let selector = &deployment["spec"]["selector"]["matchLabels"];
        let mut keys: Vec<&String> = selector.as_object().context("labels")?.keys().collect();
        keys.sort();
        let expected = ["component", "instance", "name"].map(|key| format!("app.kubernetes.io/{key}"));
        ensure!(keys == expected.iter().collect::<Vec<_>>(), "{keys:?}");
        let is_selected = |labels: &Value| keys.iter().all(|key| labels[*key] == selector[*key]);
        ensure!(is_selected(&deployment["spec"]["template"]["metadata"]["labels"]));
        ensure!(
            !is_selected(&of_kind(&objects, "Pod")[0]["metadata"]["labels"]),
            "the test would get requests"
        );
        // What the operator makes for its deployments is called otherwise.
        ensure!(selector["app.kubernetes.io/name"] != "powercontext");
    }
    Ok(())
}

#[test]
fn every_pod_meets_the_restricted_standard_with_a_numeric_user() -> anyhow::Result<()> {
    for set in ValueSet::all()? {
        let objects = objects(&set.render(KUBERNETES)?)?;
        for pod in pods(&objects) {
            ensure!(pod["securityContext"]["runAsNonRoot"] == true);
            ensure!(
                pod["securityContext"]["runAsUser"]
                    .as_i64()
                    .is_some_and(|user| user > 0),
                "{}",
                set.name
            );
            ensure!(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault");
            // A Service called like the operator would set POWERCONTEXT_OPERATOR_PORT to a URL.
            ensure!(pod["enableServiceLinks"] == false);
            for container in pod["containers"].as_array().context("containers")? {
                let security = &container["securityContext"];
                ensure!(security["allowPrivilegeEscalation"] == false && security["readOnlyRootFilesystem"] == true);
                ensure!(texts(&security["capabilities"]["drop"]) == ["ALL"]);
                ensure!(container["resources"]["limits"]["memory"].is_string());
            }
        }
    }
    Ok(())
}

#[test]
fn the_default_limits_of_a_roll_out_go_when_its_type_is_another() -> anyhow::Result<()> {
    let objects = objects(&template(KUBERNETES, &["--set", "strategy.type=Recreate"])?)?;
    let strategy = &of_kind(&objects, "Deployment")[0]["spec"]["strategy"];
    ensure!(*strategy == serde_json::json!({ "type": "Recreate" }), "{strategy}");
    Ok(())
}

#[test]
fn a_cluster_that_chooses_its_users_can_be_left_to_it() -> anyhow::Result<()> {
    let nothing =
        "podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null,podSecurityContext.fsGroup=null";
    let objects = objects(&template(KUBERNETES, &["--set", nothing])?)?;
    for pod in pods(&objects) {
        let security = pod["securityContext"].as_object().context("security")?;
        ensure!(
            security.keys().collect::<Vec<_>>() == ["runAsNonRoot", "seccompProfile"],
            "{security:?}"
        );
    }
    Ok(())
}

#[test]
fn names_that_look_like_numbers_stay_names() -> anyhow::Result<()> {
    let chart = powercontext_chart_tests::chart().display().to_string();
    let sets = "scope=namespaces,crds.install=false,serviceMonitor.enabled=true";
    let texts = "namespaces={2025},serviceAccount.name=3,priorityClassName=4,fullnameOverride=5,\
        metrics.tokenSecretRef.name=6,metrics.tokenSecretRef.key=7,commonLabels.year=8";
    let arguments = [
        "template",
        "1",
        &chart,
        "--namespace",
        "2024",
        "--kube-version",
        KUBERNETES,
        "--set",
        sets,
        "--set-string",
        texts,
    ];
    let text = powercontext_chart_tests::printed("numbers", powercontext_chart_tests::helm(&arguments)?)?;
    let objects = objects(&text)?;
    for object in &objects {
        let metadata = &object["metadata"];
        ensure!(
            metadata["name"].is_string() && metadata["namespace"].is_string(),
            "{metadata}"
        );
        ensure!(
            metadata["labels"]
                .as_object()
                .is_some_and(|labels| labels.values().all(Value::is_string)),
            "{metadata}"
        );
        for subject in object["subjects"].as_array().into_iter().flatten() {
            ensure!(subject["name"] == "3" && subject["namespace"] == "2024", "{subject}");
        }
    }
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    ensure!(pod["serviceAccountName"] == "3" && pod["priorityClassName"] == "4");
    let credentials = &of_kind(&objects, "ServiceMonitor")[0]["spec"]["endpoints"][0]["authorization"]["credentials"];
    ensure!(
        *credentials == serde_json::json!({ "name": "6", "key": "7" }),
        "{credentials}"
    );
    Ok(())
}

#[test]
fn restricted_egress_leads_to_the_port_at_which_roles_report() -> anyhow::Result<()> {
    let objects = objects(&template(KUBERNETES, &["--set", "networkPolicy.restrictEgress=true"])?)?;
    let egress = of_kind(&objects, "NetworkPolicy")[0]["spec"]["egress"].clone();
    let egress = egress.as_array().context("rules")?;
    let roles = egress
        .iter()
        .find(|rule| rule["to"][0]["namespaceSelector"].is_object())
        .context("a rule")?;
    let build = powercontext_chart_tests::read("operator/src/controller/build.rs")?;
    let port = build
        .split("HTTP_PORT: i32 = ")
        .nth(1)
        .and_then(|rest| rest.split(';').next())
        .context("a port")?;
    ensure!(
        roles["ports"][0]["port"].as_i64() == port.replace('_', "").parse().ok(),
        "{roles}"
    );
    let labels = &roles["to"][0]["podSelector"]["matchLabels"];
    ensure!(labels["app.kubernetes.io/managed-by"] == "powercontext-operator");
    Ok(())
}

#[test]
fn no_name_is_too_long_or_said_twice_whatever_the_release_is_called() -> anyhow::Result<()> {
    let chart = powercontext_chart_tests::chart().display().to_string();
    for (release, base) in [
        ("powercontext", "powercontext-operator"),
        ("powercontext-operator", "powercontext-operator"),
        ("prod", "prod-powercontext-operator"),
        ("a-release-whose-name-is-as-long-as-helm-allows-it-12345", ""),
    ] {
        let release = &release[..release.len().min(53)];
        let arguments = ["template", release, &chart, "--kube-version", KUBERNETES];
        let text = powercontext_chart_tests::printed(release, powercontext_chart_tests::helm(&arguments)?)?;
        for object in objects(&text)? {
            let name = object["metadata"]["name"].as_str().context("a name")?;
            ensure!(name.len() <= 63 && !name.contains("--"), "{name}");
            ensure!(
                base.is_empty() || object["kind"] != "Deployment" || name == base,
                "{name}"
            );
        }
    }
    Ok(())
}
