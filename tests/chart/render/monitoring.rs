//! Alerts and dashboard speak of metrics that there are.

use std::collections::BTreeSet;

use anyhow::ensure;
use powercontext_chart_tests::{KUBERNETES, objects, of_kind, read, template};
use serde_json::Value;

/// Everything in the text that looks like the name of one of our metrics.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c == '_' || c.is_ascii_lowercase();
    let words = text
        .split(|c| !is_part(c))
        .filter(|word| word.starts_with("powercontext_"));
    words.map(str::to_owned).collect()
}

/// The names that operator and runtime register, as their sources spell them.
fn exported() -> anyhow::Result<BTreeSet<String>> {
    let mut exported = metrics(&read("runtime/src/telemetry/metrics.rs")?);
    let operator = read("operator/src/metrics.rs")?;
    let short = operator
        .split("name(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    exported.extend(short.map(|short| format!("powercontext_operator_{short}")));
    ensure!(exported.len() > 10, "{exported:?}");
    Ok(exported)
}

#[test]
fn every_metric_of_an_alert_or_a_panel_is_exported() -> anyhow::Result<()> {
    let exported = exported()?;
    for file in ["alerts.yaml", "dashboard.json"] {
        let used = metrics(&read(&format!("charts/powercontext/monitoring/{file}"))?);
        ensure!(used.len() > 5, "{used:?}");
        for name in used {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let is_known = exported.contains(&name) || family.is_some_and(|family| exported.contains(family));
            ensure!(is_known, "{file}: nothing exports {name}");
        }
    }
    Ok(())
}

#[test]
fn alerts_keep_the_braces_of_prometheus_and_can_be_left_out_by_name() -> anyhow::Result<()> {
    let enabled = "prometheusRule.enabled=true,prometheusRule.alertLabels.team=memory";
    let names = |arguments: &[&str]| -> anyhow::Result<Vec<Value>> {
        let objects = objects(&template(KUBERNETES, arguments)?)?;
        let groups = of_kind(&objects, "PrometheusRule")[0]["spec"]["groups"].clone();
        let groups = groups.as_array().cloned().unwrap_or_default();
        Ok(groups
            .iter()
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect())
    };
    let all = names(&["--set", enabled])?;
    ensure!(all.iter().any(|alert| {
        alert["annotations"]["summary"]
            .to_string()
            .contains("{{ $labels.step }}")
    }));
    ensure!(
        all.iter()
            .all(|alert| alert["labels"]["team"] == "memory" && alert["labels"]["severity"].is_string())
    );
    let fewer = names(&[
        "--set",
        enabled,
        "--set",
        "prometheusRule.disabled={PowerContextLaneBlocked}",
    ])?;
    ensure!(fewer.len() == all.len() - 1 && fewer.iter().all(|alert| alert["alert"] != "PowerContextLaneBlocked"));
    Ok(())
}

#[test]
fn the_dashboard_arrives_as_it_is() -> anyhow::Result<()> {
    let objects = objects(&template(KUBERNETES, &["--set", "grafanaDashboard.enabled=true"])?)?;
    let config = of_kind(&objects, "ConfigMap")[0];
    let told: Value = serde_json::from_str(config["data"]["powercontext.json"].as_str().unwrap_or_default())?;
    let source: Value = serde_json::from_str(&read("charts/powercontext/monitoring/dashboard.json")?)?;
    ensure!(told == source);
    ensure!(config["metadata"]["labels"]["grafana_dashboard"] == "1");
    Ok(())
}
