//! What the chart refuses, and how it says so.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use powercontext_chart_tests::{KUBERNETES, objects, read, template};
use serde_json::Value;

/// What is said about one `--set`.
fn refusal(set: &str) -> anyhow::Result<String> {
    let result = template(KUBERNETES, &["--set", set]);
    Ok(format!(
        "{:#}",
        result.err().with_context(|| format!("{set} was accepted"))?
    ))
}

#[test]
fn a_value_of_a_wrong_type_or_out_of_range_is_refused_with_its_place() -> anyhow::Result<()> {
    for (set, said) in [
        ("replicas=many", "at '/replicas': got string, want integer"),
        ("replicas=11", "at '/replicas': maximum: got 11, want 10"),
        ("crds.keep=maybe", "at '/crds/keep': got string, want boolean"),
        (
            "scope=planet",
            "at '/scope': value must be one of 'cluster', 'namespaces'",
        ),
        ("image.tag=a b", "at '/image/tag': 'a b' does not match pattern"),
        (
            "image.digest=sha256:12",
            "at '/image/digest': 'sha256:12' does not match pattern",
        ),
        ("service.port=80", "at '/service/port': minimum: got 80, want 1,024"),
        ("commonLabels.a=1", "at '/commonLabels/a': got number, want string"),
        ("podDisruptionBudget.maxUnavailable=0", "minimum: got 0, want 1"),
        ("podDisruptionBudget.maxUnavailable=0%", "'0%' does not match pattern"),
        (
            "metrics.tokenSecretRef.name=x",
            "at '/metrics/tokenSecretRef': properties 'key' required, if 'name' exists",
        ),
        ("extraEnv[0].value=x", "at '/extraEnv/0': missing property 'name'"),
        (
            "serviceMonitor.interval=soon",
            "at '/serviceMonitor/interval': 'soon' does not match pattern",
        ),
    ] {
        let refusal = refusal(set)?;
        ensure!(refusal.contains(said), "{set}: {refusal}");
    }
    Ok(())
}

#[test]
fn an_unknown_value_is_refused_by_name_at_every_level() -> anyhow::Result<()> {
    for (set, said) in [
        (
            "replicaCount=2",
            "at '': additional properties 'replicaCount' not allowed",
        ),
        ("image.name=x", "at '/image': additional properties 'name' not allowed"),
        (
            "networkPolicy.apiServer.port=1",
            "at '/networkPolicy/apiServer': additional properties 'port' not allowed",
        ),
        (
            "livenessProbe.exec.command=x",
            "at '/livenessProbe': additional properties 'exec' not allowed",
        ),
        ("imagePullSecrets[0].nam=x", "additional properties 'nam' not allowed"),
    ] {
        let refusal = refusal(set)?;
        ensure!(refusal.contains(said), "{set}: {refusal}");
    }
    // A parent chart hands these to every chart below it.
    template(KUBERNETES, &["--set", "global.anything=1,enabled=true"])?;
    Ok(())
}

#[test]
fn values_that_contradict_each_other_are_refused_in_words() -> anyhow::Result<()> {
    for (set, said) in [
        (
            "scope=namespaces",
            "namespaces: scope is `namespaces`, so name at least one",
        ),
        (
            "namespaces={a}",
            "namespaces: scope is `cluster`, so no namespace may be named",
        ),
        (
            "scope=namespaces,namespaces={a},rbac.aggregate=true",
            "rbac.aggregate: needs scope `cluster`",
        ),
        (
            "serviceAccount.create=false",
            "serviceAccount.name: serviceAccount.create is false, so name one",
        ),
        ("extraEnv[0].name=POD_NAME", "extraEnv: POD_NAME is set by the chart"),
        (
            "prometheusRule.enabled=true,prometheusRule.disabled={Typo}",
            "prometheusRule.disabled: there is no alert Typo; there are PowerContextOperatorLeaderless",
        ),
    ] {
        let refusal = refusal(set)?;
        ensure!(refusal.contains(said), "{set}: {refusal}");
    }
    Ok(())
}

#[test]
fn every_helm_command_of_the_guides_is_accepted() -> anyhow::Result<()> {
    let guides = read("docs/guides/install.md")? + &read("docs/guides/upgrade.md")?;
    let guides = guides.replace("\\\n", " ");
    let commands = guides
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("helm install") || line.starts_with("helm upgrade"));
    let mut seen = 0;
    for command in commands {
        let words: Vec<String> = command.split_whitespace().map(|word| word.replace('\'', "")).collect();
        let sets = words
            .windows(2)
            .filter(|pair| pair[0] == "--set")
            .flat_map(|pair| pair.iter().map(String::as_str));
        template(KUBERNETES, &sets.collect::<Vec<_>>()).with_context(|| command.to_owned())?;
        ensure!(words[3] == "charts/powercontext", "{command}");
        seen += 1;
    }
    ensure!(seen > 3, "the guides have {seen} commands");
    Ok(())
}

#[test]
fn every_value_has_a_schema_and_every_schema_a_value() -> anyhow::Result<()> {
    let schema: Value = serde_json::from_str(&read("charts/powercontext/values.schema.json")?)?;
    let values = &objects(&read("charts/powercontext/values.yaml")?)?[0];
    let mut faults = BTreeSet::new();
    compare("", values, &schema, &mut faults);
    // Of a parent chart, and optional parts of what Kubernetes defines.
    for known in ["/global", "/enabled", "/resources/claims"] {
        faults.remove(&format!("{known} has no value"));
    }
    faults.retain(|fault| !fault.starts_with("/metrics/tokenSecretRef/") && !fault.contains("Probe/"));
    ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

fn compare(path: &str, values: &Value, schema: &Value, faults: &mut BTreeSet<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    if schema["additionalProperties"] != false {
        faults.insert(format!("{path} accepts anything"));
    }
    let values = values.as_object().cloned().unwrap_or_default();
    for (key, below) in properties {
        let path = format!("{path}/{key}");
        match values.get(key) {
            Some(value) => compare(&path, value, below, faults),
            None => drop(faults.insert(format!("{path} has no value"))),
        }
    }
    for key in values.keys().filter(|key| !properties.contains_key(*key)) {
        faults.insert(format!("{path}/{key} has no schema"));
    }
}
