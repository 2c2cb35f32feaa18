//! What a role needs of the database: rows, and no more.

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::kit::{capture, flush, settled};
use powercontext_tests::raw::Raw;
use reqwest::Url;

use crate::rig::{Deployment, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_runs_on_an_account_that_may_only_select_insert_update_and_delete() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let mut url = Url::parse(deployment.database.url())?;
    let schema = url.path().trim_start_matches('/').to_owned();
    let (user, password) = (format!("pc_test_{}", &rt::hex_id()[..12]), rt::hex_id());
    let mut admin = deployment.database.raw().await?;
    admin
        .execute(&format!("create user '{user}' identified by '{password}'"))
        .await?;
    admin
        .execute(&format!(
            "grant select, insert, update, delete on {schema}.* to '{user}'"
        ))
        .await?;
    url.set_username(&user).ok().context("a URL that takes no user")?;
    url.set_password(Some(&password))
        .ok()
        .context("a URL that takes no password")?;
    let mut restricted = Raw::connect(url.as_str()).await?;
    for ddl in [
        "create table pc_mine (id int)",
        "alter table pc_work_items add mine int",
        "drop table pc_work_attempts",
        "truncate table pc_work_attempts",
    ] {
        ensure!(restricted.execute(ddl).await.is_err(), "it may {ddl}");
    }

    let deployment = deployment.with("DATABASE_URL", url.as_str());
    let mut servers = Vec::new();
    for role in ["api", "scheduler", "worker", "background"] {
        servers.push(deployment.start(role).await?);
    }
    let api = &servers[0];
    capture(&api.client, "house", 3).await?;
    let operation = flush(&api.client, "house").await?;
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    settled(&deployment.database, &api.client, "house", 3).await?;
    // By schedule, without being asked for.
    capture(&api.client, "garden", 3).await?;
    deployment.reads_by_itself(api, "garden", 3).await?;
    for server in servers {
        let log = server.stop_and_log().await?;
        ensure!(!log.contains("ERROR"), "{log}");
    }
    admin.execute(&format!("drop user '{user}'")).await?;
    Ok(())
}
