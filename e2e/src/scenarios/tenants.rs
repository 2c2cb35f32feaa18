//! One operator that may see two namespaces and no more: two deployments on two databases.

use std::sync::Arc;

use anyhow::ensure;
use powercontext_tests::facts;
use powercontext_tests::kit::capture;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::tenant::Tenant;

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenants = [
        Tenant::new(cluster, "tenant-a").await?,
        Tenant::new(cluster, "tenant-b").await?,
    ];
    let home = &tenants[0].namespace;
    let scope = format!("namespaces={{{home},{}}}", tenants[1].namespace);
    cluster.install(
        home,
        home,
        &["scope=namespaces", &scope, "crds.install=false", "replicas=1"],
    )?;
    for tenant in &tenants {
        tenant
            .apply(&json!({ "worker": { "replicas": 1 }, "scheduler": { "replicas": 1 }, "api": { "replicas": 1 } }))?;
    }
    for tenant in &tenants {
        tenant.ready().await?;
        let client = tenant.client().await?;
        capture(&client, &tenant.namespace, 3).await?;
        tenant.flush_all(&client, &tenant.namespace).await?;
    }
    for (tenant, other) in [(&tenants[0], &tenants[1]), (&tenants[1], &tenants[0])] {
        ensure!(
            facts::sources(&tenant.database, &tenant.namespace).await?.len() == 3,
            "its own Sources are there"
        );
        ensure!(
            facts::sources(&tenant.database, &other.namespace).await?.is_empty(),
            "nobody else's are"
        );
    }
    nothing_was_forbidden(&tenants[0])?;
    for tenant in &tenants {
        tenant.leave()?;
    }
    Ok(())
}

/// The API server refused nothing that the operator asked for.
fn nothing_was_forbidden(home: &Tenant) -> anyhow::Result<()> {
    let account = format!("system:serviceaccount:{}:", home.namespace);
    let Some(log) = &home.cluster.audit_log else {
        let said = home.kubectl().run(&[
            "logs",
            "--selector",
            "app.kubernetes.io/component=operator",
            "--tail=-1",
        ])?;
        ensure!(!said.to_lowercase().contains("forbidden"), "{said}");
        println!("      tenants: this machine has no audit log of the cluster; the operator's own log was read");
        return Ok(());
    };
    let mut asked = 0;
    for line in std::fs::read_to_string(log)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["user"]["username"]
            .as_str()
            .is_some_and(|user| user.starts_with(&account))
        {
            asked += 1;
            ensure!(event["responseStatus"]["code"] != 403, "forbidden: {event}");
        }
    }
    ensure!(asked > 20, "the operator asked {asked} times");
    Ok(())
}
