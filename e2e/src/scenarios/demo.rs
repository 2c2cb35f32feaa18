//! A deployment to look at: the sample, a model in a pod beside it, and something in its Memory.

use std::sync::Arc;

use anyhow::Context as _;
use powercontext::rt;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::client::Client;
use powercontext_tests::kit::{capture, flush_all};
use powercontext_tests::raw::Raw;
use serde_json::{Value, json};

use crate::cluster::{Cluster, RELEASE, SOON, SYSTEM};
use crate::tenant::{outside, sample};

/// Its namespace, and its schema.
const DEMO: &str = "demo";
const MODEL_PORT: u16 = 8080;

/// Makes it on the kernel of this URL; it stays when this program has ended.
pub(crate) async fn run(cluster: &Arc<Cluster>, kernel: &str) -> anyhow::Result<()> {
    cluster.install(RELEASE, SYSTEM, &[])?;
    let (_, port) = kernel.rsplit_once(':').context("the kernel's URL has a port")?;
    let port = port.split('/').next().unwrap_or_default().parse()?;
    let schema = format!("create database if not exists {DEMO}");
    Raw::connect(&format!("{}/oceanbase", kernel.trim_end_matches('/')))
        .await?
        .execute(&schema)
        .await?;
    let token = rt::hex_id();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": DEMO } });
    cluster
        .kubectl()
        .feed(&["apply", "--filename", "-"], &namespace.to_string())?;
    let kubectl = cluster.kubectl().within(DEMO);
    let secret = |name: &str, key: &str, value: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { key: value } });
    let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [
        secret("powercontext-database", "url", &format!("mysql://root@oceanbase:2881/{DEMO}")),
        secret("powercontext-auth", "token", &token),
        secret("powercontext-model", "key", "unused"),
    ]});
    let arguments = ["apply", "--filename", "-"];
    for object in [
        outside(cluster.host, "oceanbase", 2881, port),
        objects,
        model(cluster),
        sample(cluster, &json!({}))?,
    ] {
        kubectl.feed(&arguments, &object.to_string())?;
    }
    kubectl.run(&["wait", "pcd/powercontext", "--for=condition=Ready", "--timeout=3m"])?;
    let service = kubectl.run(&[
        "get",
        "service",
        "powercontext-api",
        "--output",
        "jsonpath={.spec.clusterIP}",
    ])?;
    let client = Client::new(format!("{service}:80").parse()?)?.bearing(&token)?;
    until("the Service answers", SOON, async || {
        Ok((client.ready().await?.status == 200).then_some(()))
    })
    .await?;
    capture(&client, DEMO, 5).await?;
    flush_all(&client, DEMO).await?;
    println!("namespace={DEMO} service={service} token={token}");
    Ok(())
}

/// The deterministic model of the same image, as a pod.
fn model(cluster: &Cluster) -> Value {
    let labels = json!({ "app": "model" });
    let port = MODEL_PORT.to_string();
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "model" },
          "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": MODEL_PORT }] } },
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "model" },
          "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": {
              "containers": [{ "name": "model", "image": cluster.image,
                  "args": ["dev", "model", "--host", "0.0.0.0", "--port", port] }] } } } },
    ]})
}
