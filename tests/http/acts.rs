//! Who acts on an operation is recorded beside it, with the version that the act was decided on.

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;
use serde_json::json;

powercontext_tests::on_both_databases! {
    an_act_is_recorded_with_its_principal_and_one_that_is_refused_is_not,
}

async fn an_act_is_recorded_with_its_principal_and_one_that_is_refused_is_not(
    database: Database,
) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    let server = setup
        .clone()
        .with("AUTH_ENABLED", "true")
        .with("AUTH_TOKEN", "t0ken")
        .start()
        .await?;
    let client = server.client.clone().bearing("t0ken")?;
    provider.refuse(401, "no")?;
    capture(&client, "house", 1).await?;
    let failed = client.flush("house", "wait=25").await?.expect(409)?.operation_id()?;
    let first = client.operation(&failed).await?["state_version"].clone();
    let stale = json!({"expected_version": 1});
    client
        .post(&format!("/v1/operations/{failed}/retry"), &stale)
        .await?
        .expect(409)?;
    client.act(&failed, "retry").await?.expect(200)?;
    client.operation_is(&failed, "failed", SOON).await?;
    server.stop().await?;

    // The same database without authentication: somebody on this machine.
    let server = setup.start().await?;
    let second = server.client.operation(&failed).await?["state_version"].clone();
    server.client.act(&failed, "cancel").await?.expect(200)?;
    let mut raw = database.raw().await?;
    let rows = raw
        .rows(
            "select work_id, state_version, act, principal_type, principal_id from pc_work_acts order by state_version",
        )
        .await?;
    let mut acts = Vec::new();
    for row in &rows {
        acts.push(json!([
            row.text(0)?,
            row.int(1)?,
            row.text(2)?,
            row.text(3)?,
            row.text(4)?
        ]));
    }
    let expected = [
        json!([failed, first, "retry", "service", "server-token"]),
        json!([failed, second, "cancel", "local", "local"]),
    ];
    ensure!(acts == expected, "{acts:?}");
    facts::hold(&database).await?;
    server.stop().await
}
