//! What clients hand in is in the domain's tables and nowhere else: not in the log at its most talkative, not in metrics,
//! not in the rows of the ledger.

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::flush_all;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;
use serde_json::json;

const SCOPE: &str = "house";
const CANARY: &str = "canary7f3a91";

powercontext_tests::on_both_databases! {
    content_is_in_no_log_no_metric_and_no_row_of_the_ledger,
}

async fn content_is_in_no_log_no_metric_and_no_row_of_the_ledger(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let key = format!("sk-{CANARY}");
    let setup = Setup::new(&database, &provider)
        .with("LOGGING_LEVEL", "TRACE")
        .with_variable("OPENAI_API_KEY", &key);
    let server = setup.start().await?;
    let client = &server.client;
    let content = format!("user: I prefer {CANARY} curtains in {CANARY}.");
    for n in 0..3 {
        let body = json!({
            "scope_id": SCOPE, "source_id": format!("s{n}"), "content": content, "metadata": {"note": CANARY}
        });
        client.post("/v1/sources/content", &body).await?.expect(202)?;
    }
    // The same source with other content is refused, and both are content.
    client
        .capture(SCOPE, "s0", &format!("user: {CANARY}"))
        .await?
        .expect(409)?;
    flush_all(client, SCOPE).await?;
    let remembered = json!({"scope_id": SCOPE, "kind": "note", "text": CANARY, "reason": CANARY});
    client.post("/v1/memory/remember", &remembered).await?.expect(200)?;
    let found = client
        .post("/v1/memory/search", &json!({"scope_id": SCOPE, "query": CANARY}))
        .await?
        .expect(200)?;
    ensure!(found.text.contains(CANARY), "it is there to be found: {found:?}");

    ensure!(
        !client.get("/metrics").await?.text.contains(CANARY),
        "it is in the metrics"
    );
    for operation in client.operations(SCOPE).await? {
        ensure!(!operation.to_string().contains(CANARY), "it is in {operation}");
    }
    let log = server.log();
    let told = log.lines().find(|line| line.contains(CANARY));
    ensure!(told.is_none(), "it is in the log: {told:?}");
    let ledger = facts::tables_with(&database, CANARY).await?;
    let domain = ["pc_sources", "pc_artifact", "pc_memory_entry"];
    let elsewhere: Vec<_> = ledger
        .iter()
        .filter(|table| !domain.iter().any(|own| table.starts_with(own)))
        .collect();
    ensure!(!ledger.is_empty() && elsewhere.is_empty(), "it is in {elsewhere:?}");
    server.stop().await
}
