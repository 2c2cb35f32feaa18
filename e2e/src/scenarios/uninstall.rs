//! The chart goes and what it looked after stays; a namespace goes within a minute; the database is nobody's to touch.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::kit::capture;
use powercontext_tests::rows;
use serde_json::json;

use crate::cluster::{Cluster, RELEASE, SYSTEM};
use crate::tenant::Tenant;

/// Longest until a namespace with a deployment is gone.
const GONE_WITHIN: Duration = Duration::from_mins(1);

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "uninstall").await?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    let client = tenant.client().await?;
    capture(&client, "kept", 3).await?;
    tenant.flush_all(&client, "kept").await?;
    cluster.helm(&["uninstall", RELEASE, "--namespace", SYSTEM, "--wait"])?;
    let kubectl = tenant.kubectl();
    kubectl.run(&["get", "crd", "powercontextdeployments.powercontext.io"])?;
    kubectl.run(&["get", "pcd", &tenant.name])?;
    capture(&client, "without", 3).await?;
    tenant.flush_all(&client, "without").await?;
    let sources = rows::all(&tenant.database).await?;
    let began = rt::now();
    let timeout = format!("--timeout={}s", GONE_WITHIN.as_secs());
    let gone = cluster
        .kubectl()
        .run(&["delete", "namespace", &tenant.namespace, "--wait", &timeout]);
    tenant.explained(gone)?;
    ensure!(
        began.elapsed() <= GONE_WITHIN,
        "the namespace was gone after {:?}",
        began.elapsed()
    );
    let after = rows::all(&tenant.database).await?;
    let is_content = |name: &&String| {
        !["pc_runtime_members", "pc_scheduler_leases"]
            .iter()
            .any(|table| name.starts_with(table))
    };
    let changed: Vec<_> = sources
        .keys()
        .filter(is_content)
        .filter(|name| sources[*name] != after[*name])
        .collect();
    ensure!(changed.is_empty(), "columns that changed: {changed:?}");
    Ok(())
}
