//! From one leader for all families to a leader for each and back, under load.

use std::sync::Arc;

use anyhow::ensure;
use serde_json::json;

use crate::cluster::Cluster;
use crate::tenant::Tenant;
use crate::traffic::Traffic;

pub(crate) async fn run(cluster: &Arc<Cluster>) -> anyhow::Result<()> {
    let tenant = Tenant::new(cluster, "mode").await?;
    tenant.apply(&json!({}))?;
    tenant.ready().await?;
    let traffic = Traffic::start(&tenant).await?;
    for mode in ["dedicated", "global"] {
        traffic.flows(40).await?;
        tenant.patch(&json!({ "supervisor": { "mode": mode } }))?;
        tenant.ready().await?;
        let is_global = mode == "global";
        let status = tenant
            .until_status(&format!("somebody leads in mode {mode}"), |status| {
                let leads = |leader: &powercontext_crds::v1alpha1::Leader| (leader.lease == "global") == is_global;
                !status.leaders.is_empty() && status.leaders.iter().all(leads)
            })
            .await?;
        ensure!(status.mode.as_deref() == Some(mode), "{:?}", status.mode);
    }
    traffic.flows(40).await?;
    let told = traffic.stop().await;
    tenant.explained(told.seen.nothing_else())?;
    told.kept(&tenant).await?;
    tenant.nothing_lapsed().await?;
    tenant.leave()
}
