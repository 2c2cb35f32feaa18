//! Rows that this build cannot run: a payload that does not decode, and one of a version that it does not know.

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush, settled};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;

const SCOPE: &str = "house";

powercontext_tests::on_both_databases! {
    a_payload_that_does_not_decode_fails_its_item_and_no_other,
    a_payload_of_an_unknown_version_is_left_where_it_is,
    payloads_of_version_1_as_they_were_frozen_run_and_are_written,
}

/// An item that waits in the rows while no server runs: the last one had to give it back.
async fn waiting(database: &Database, provider: &Provider, scope: &str) -> anyhow::Result<(Setup, String)> {
    let setup = Setup::new(database, provider).with("WORKER_SHUTDOWN_GRACE_SECONDS", "0");
    let server = setup.start().await?;
    capture(&server.client, scope, 2).await?;
    provider.hold();
    let operation = flush(&server.client, scope).await?;
    provider.in_flight(1, SOON).await?;
    server.stop().await?;
    provider.answer();
    Ok((setup, operation))
}

async fn set(database: &Database, operation: &str, assignment: &str) -> anyhow::Result<()> {
    let sql = format!("update pc_work_items set {assignment} where work_id = '{operation}'");
    let touched = database.raw().await?.execute(&sql).await?;
    ensure!(touched == 1, "{touched} rows were changed");
    Ok(())
}

async fn a_payload_that_does_not_decode_fails_its_item_and_no_other(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let (setup, operation) = waiting(&database, &provider, SCOPE).await?;
    set(&database, &operation, "payload = x'7b22'").await?;
    let asked = provider.asked();
    let server = setup.start().await?;
    let client = &server.client;
    let failed = client.operation_is(&operation, "failed", SOON).await?;
    ensure!(
        failed["error"]["category"] == "payload" && failed["error"]["code"] == "invalid_payload",
        "{failed}"
    );
    let outcomes = facts::outcomes(&database, &operation).await?;
    ensure!(
        outcomes == ["released", "failed"],
        "it is not tried again: {outcomes:?}"
    );
    ensure!(provider.asked() == asked, "the model was not asked");
    let blocked = client.flush(SCOPE, "wait=25").await?.expect(409)?;
    ensure!(blocked.code() == "operation_blocked", "{blocked:?}");

    capture(client, "garden", 2).await?;
    client.flush("garden", "wait=25").await?.expect(200)?;

    // An operator gives it up; what it was for is still pending.
    client.act(&operation, "cancel").await?.expect(200)?;
    client.flush(SCOPE, "wait=25").await?.expect(200)?;
    ensure!(facts::cursor_and_head(&database, SCOPE).await? == (2, 2), "all is read");
    facts::hold(&database).await?;
    server.stop().await
}

async fn a_payload_of_an_unknown_version_is_left_where_it_is(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let (setup, operation) = waiting(&database, &provider, SCOPE).await?;
    set(&database, &operation, "payload_version = 99").await?;
    let server = setup.start().await?;
    let client = &server.client;
    let ready = client.ready().await?.expect(200)?;
    ensure!(ready.body["status"] == "degraded", "{ready:?}");
    ensure!(ready.body["checks"]["worker.handlers"] == "misconfigured", "{ready:?}");

    for lane in ["garden", "cellar", "roof"] {
        capture(client, lane, 2).await?;
        client.flush(lane, "wait=25").await?.expect(200)?;
    }
    let left = client.operation(&operation).await?;
    ensure!(left["status"] == "retry_wait" && left["attempt_count"] == 1, "{left}");

    // A build that knows the version would run it; here the version becomes one that this build knows.
    set(&database, &operation, "payload_version = 1").await?;
    capture(client, "attic", 2).await?;
    client.flush("attic", "wait=25").await?.expect(200)?;
    client.operation_is(&operation, "succeeded", SOON).await?;
    let ready = client.ready().await?.expect(200)?;
    ensure!(ready.body["status"] == "ready", "{ready:?}");
    settled(&database, client, SCOPE, 2).await?;
    server.stop().await
}

/// Payloads of version 1 as a release wrote them. They never change: items that hold them may wait in any database.
const FROZEN: &str = include_str!("../golden/frozen/payloads-v1.jsonl");

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"))
}

async fn payloads_of_version_1_as_they_were_frozen_run_and_are_written(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    for (n, payload) in FROZEN.lines().enumerate() {
        let scope = format!("{SCOPE} {n}");
        let (setup, operation) = waiting(&database, &provider, &scope).await?;
        let sql = format!("select hex(payload) from pc_work_items where work_id = '{operation}'");
        let written = database.raw().await?.rows(&sql).await?[0].text(0)?;
        ensure!(
            FROZEN.lines().any(|line| hex(line) == written),
            "an API writes {written}"
        );
        let assignment = format!("payload = x'{}', payload_version = 1", hex(payload));
        set(&database, &operation, &assignment).await?;
        let server = setup.start().await?;
        server.client.operation_is(&operation, "succeeded", SOON).await?;
        settled(&database, &server.client, &scope, 2).await?;
        server.stop().await?;
    }
    Ok(())
}
