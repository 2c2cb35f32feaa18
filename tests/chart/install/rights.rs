//! What the chart grants is what the operator uses: no right is missing, and none is spare.
//!
//! The operator runs under the chart's account through a story with every kind of change. What it asked is read from the API
//! server's audit log and compared with the rules that are stored in the cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use powercontext_chart_tests::monitor_definition;
use powercontext_cluster_tests::audit::Request;
use powercontext_cluster_tests::kubelet::Fate;
use powercontext_cluster_tests::stage::spec_with;
use powercontext_cluster_tests::wait::until;
use serde_json::{Value, json};

use crate::site::{SOON, Site, alone, beside, fate};

/// API group, resource with subresource, verb.
type Right = (String, String, String);

/// The kind that the Prometheus operator brings along.
fn know_pod_monitors(site: &Site) -> anyhow::Result<()> {
    let definition = monitor_definition("podmonitors")?;
    let kubectl = site.kubectl();
    kubectl.feed(&["apply", "--server-side", "--filename", "-"], &definition.to_string())?;
    kubectl.established("podmonitors.monitoring.coreos.com")
}

/// Every right that the release grants its account.
fn granted(site: &Site) -> anyhow::Result<BTreeSet<Right>> {
    let selector = format!("app.kubernetes.io/instance={}", site.name);
    let roles = site.kubectl().run(&[
        "get",
        "clusterroles,roles",
        "--all-namespaces",
        "--selector",
        &selector,
        "--output",
        "json",
    ])?;
    let roles: Value = serde_json::from_str(&roles)?;
    let texts = |list: &Value| -> Vec<String> {
        list.as_array()
            .into_iter()
            .flatten()
            .filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    };
    let mut granted = BTreeSet::new();
    for role in roles["items"].as_array().context("roles")? {
        for rule in role["rules"].as_array().context("rules")? {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        granted.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    Ok(granted)
}

/// Every right that the requests needed. Applying what was not there needs the right to create it as well.
fn used(requests: &[Request]) -> BTreeSet<Right> {
    let mut used = BTreeSet::new();
    for request in requests.iter().filter(|request| !request.resource.is_empty()) {
        let right = |verb: &str| (request.group.clone(), request.resource.clone(), verb.to_owned());
        used.insert(right(&request.verb));
        if request.verb == "patch" && request.code == 201 {
            used.insert(right("create"));
        }
    }
    used
}

fn forbidden(requests: &[Request]) -> Vec<&Request> {
    requests
        .iter()
        .filter(|request| [401, 403].contains(&request.code))
        .collect()
}

/// A deployment with everything that can be turned on.
fn everything() -> Value {
    spec_with(&json!({
        "api": { "replicas": null, "resources": { "requests": { "cpu": "100m" } } },
        "worker": { "replicas": 2 },
        "autoscaling": { "api": { "minReplicas": 2, "maxReplicas": 4, "targetCpuPercent": 70 } },
        "ingress": { "host": "pc.example" },
        "networkPolicy": { "enabled": true },
        "podDisruptionBudget": { "enabled": true },
        "monitoring": { "podMonitor": true },
    }))
}

/// A deployment from a wrong image to its end, with every kind of change.
async fn story(site: &Site) -> anyhow::Result<()> {
    site.make_secrets().await?;
    // A tag that nobody has: the Job of this target is deleted once the image is another.
    site.kubelet.script(|pod| fate(pod, Fate::Image("ImagePullBackOff")));
    let mut wrong = everything();
    wrong["image"] = "registry.example/powercontext:wrong".into();
    site.apply(&wrong)?;
    site.until("Degraded", "True", "ImagePullFailed").await?;
    // The migrator ends well; that its message is empty is usual then, so its report is read from its log.
    let silent = Fate::Exit {
        code: 0,
        line: String::new(),
    };
    site.kubelet.script(move |pod| fate(pod, silent.clone()));
    site.apply(&everything())?;
    site.until("Ready", "True", "Complete").await?;
    // Fewer Workers, which are busy: each pod is told what deleting it costs. Everything that can be turned off is.
    let workers = site.kubectl().run(&[
        "get",
        "pods",
        "--selector",
        "app.kubernetes.io/component=worker",
        "--output",
        "name",
    ])?;
    let busy = workers.lines().filter_map(|line| line.strip_prefix("pod/"));
    site.roles.told().in_flight = busy.map(|pod| (pod.to_owned(), 1)).collect();
    let less = spec_with(&json!({ "worker": { "replicas": 1 } }));
    site.apply(&less)?;
    site.until("Ready", "True", "Complete").await?;
    site.apply(&everything())?;
    site.until("Ready", "True", "Complete").await
}

/// Everything granted was used, and everything used was granted, by whom else but the release.
fn granted_is_used(site: &Site, requests: &[Request]) -> anyhow::Result<()> {
    ensure!(!requests.is_empty());
    ensure!(forbidden(requests).is_empty(), "{:#?}", forbidden(requests));
    let (granted, used) = (granted(site)?, used(requests));
    let spare: Vec<_> = granted.difference(&used).collect();
    ensure!(spare.is_empty(), "granted and never used: {spare:#?}");
    // What is used and not granted would have been refused above, but for what everybody may.
    let missing: Vec<_> = used.difference(&granted).collect();
    ensure!(missing.is_empty(), "used and granted by somebody else: {missing:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_of_the_operator_is_used_and_none_is_missing() -> anyhow::Result<()> {
    let _alone = alone().await;
    let site = Site::new("rights").await?;
    know_pod_monitors(&site)?;
    site.install_ours(&[])?;
    let audit = site.audit();
    let mut operator = site.operator("one").await?;
    site.check(operator.port()).await?;
    story(&site).await?;
    site.kubectl().run(&["delete", "pcd", "pc", "--wait"])?;
    operator.end().await?;
    granted_is_used(&site, &audit.requests()?)?;
    site.helm(&["uninstall", &site.name, "--wait"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scope_namespaces_rolls_out_in_each_with_the_rights_that_it_uses_and_no_other() -> anyhow::Result<()> {
    let _beside = beside().await;
    let (site, other) = (Site::new("scope").await?, Site::new("tenant").await?);
    know_pod_monitors(&site)?;
    let namespaces = format!("namespaces={{{},{}}}", site.name, other.name);
    site.install_ours(&["--set", "scope=namespaces,crds.install=false", "--set", &namespaces])?;
    let audit = site.audit();
    let mut operator = site.operator("one").await?;
    other.make_secrets().await?;
    other.apply(&everything())?;
    story(&site).await?;
    other.until("Ready", "True", "Complete").await?;
    site.check(operator.port()).await?;
    // Both are counted, whichever scope they are in.
    until("both deployments are counted", SOON, async || {
        let page = metrics(operator.port()).await?;
        Ok(page
            .contains("powercontext_operator_deployments{phase=\"ready\"} 2")
            .then_some(()))
    })
    .await?;
    operator.end().await?;
    granted_is_used(&site, &audit.requests()?)?;
    let cluster_wide = site.kubectl().run(&[
        "get",
        "clusterroles,clusterrolebindings",
        "--selector",
        &format!("app.kubernetes.io/instance={}", site.name),
        "--output",
        "name",
    ])?;
    ensure!(cluster_wide.is_empty(), "{cluster_wide}");
    Ok(())
}

/// The operator's metrics.
async fn metrics(port: u16) -> anyhow::Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    socket
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await?;
    let mut page = String::new();
    socket.read_to_string(&mut page).await?;
    Ok(page)
}
