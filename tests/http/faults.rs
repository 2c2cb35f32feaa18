//! A model that fails in every way it can: bounded codes, bounded attempts, nothing of what it said is kept, and an
//! operator's retry brings the work to its end.

use anyhow::ensure;
use powercontext::dev::model::Fail;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, settled};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;
use serde_json::json;

/// What a provider says that nobody may keep.
const CANARY: &str = "canary7f3a91";

powercontext_tests::on_both_databases! {
    a_failing_model_costs_its_attempts_and_a_retry_ends_the_work,
    nothing_that_a_provider_says_is_kept,
}

fn setup(database: &Database, provider: &Provider) -> Setup {
    Setup::new(database, provider)
        .with("WORKER_MAX_ATTEMPTS", "2")
        .with("INFERENCE_GENERATION_TIMEOUT_SECONDS", "1")
}

async fn a_failing_model_costs_its_attempts_and_a_retry_ends_the_work(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = setup(&database, &provider).start().await?;
    let client = &server.client;
    for fail in Fail::ALL {
        let scope = fail.as_str();
        let code = match fail {
            Fail::TooManyRequests | Fail::ServerError => "provider/unavailable",
            Fail::Malformed | Fail::Empty => "provider/invalid_output",
            Fail::Slow => "provider/timeout",
        };
        provider.fail(fail).await?;
        capture(client, scope, 2).await?;
        let failed = client.flush(scope, "wait=25").await?.expect(409)?;
        ensure!(failed.code() == "operation_failed", "{failed:?}");
        let operation = failed.operation_id()?;
        let outcomes = facts::outcomes(&database, &operation).await?;
        ensure!(outcomes == ["retry_wait", "failed"], "{scope}: {outcomes:?}");
        let errors = facts::errors(&database, &operation).await?;
        ensure!(errors == [code, code], "{scope}: {errors:?}");
        let shown = client.operation(&operation).await?;
        let (category, code) = code.split_once('/').unwrap_or_default();
        ensure!(shown["error"] == json!({"category": category, "code": code}), "{shown}");

        // New input does not bring it back to life, and says so.
        client.capture(scope, "more", "user: I like tea.").await?.expect(202)?;
        let blocked = client.flush(scope, "wait=25").await?.expect(409)?;
        ensure!(
            blocked.code() == "operation_blocked" && blocked.operation_id()? == operation,
            "{blocked:?}"
        );

        provider.answer();
        let retried = client.act(&operation, "retry").await?.expect(200)?;
        ensure!(retried.body["status"] == "queued", "{retried:?}");
        client.operation_is(&operation, "succeeded", SOON).await?;
        let outcomes = facts::outcomes(&database, &operation).await?;
        ensure!(
            outcomes == ["retry_wait", "failed", "succeeded"],
            "{scope}: {outcomes:?}"
        );
        settled(&database, client, scope, 3).await?;
        let refused = client.act(&operation, "retry").await?.expect(409)?;
        ensure!(refused.code() == "operation_conflict", "{refused:?}");
    }
    server.stop().await
}

async fn nothing_that_a_provider_says_is_kept(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = setup(&database, &provider)
        .with("LOGGING_LEVEL", "DEBUG")
        .start()
        .await?;
    let client = &server.client;
    let megabyte = CANARY.repeat(1024 * 1024 / CANARY.len());
    let error = json!({"error": {"message": megabyte, "type": CANARY, "code": CANARY}}).to_string();
    let answer = |content: &str| {
        let message = json!({"role": "assistant", "content": content});
        json!({"id": CANARY, "model": CANARY, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
            .to_string()
    };
    let (none, refused, broken) = ("provider/unavailable", "provider/rejected", "provider/invalid_output");
    let other = answer(&json!({CANARY: [CANARY]}).to_string());
    // An answer now and then, be it a bad one: three scopes in a row that get none would be an outage.
    let cases = [
        ("status-500", 500, error.clone(), none),
        ("no-json", 200, megabyte.clone(), broken),
        ("status-429", 429, error.clone(), none),
        ("other-text", 200, answer(&megabyte), broken),
        ("status-401", 401, error, refused),
        ("other-form", 200, other, broken),
        ("status-400", 400, megabyte, refused),
    ];
    for (scope, status, body, code) in cases {
        provider.refuse(status, body)?;
        capture(client, scope, 1).await?;
        let failed = client.flush(scope, "wait=25").await?.expect(409)?;
        ensure!(!failed.text.contains(CANARY), "{scope}: it is in the answer");
        let operation = failed.operation_id()?;
        let errors = facts::errors(&database, &operation).await?;
        ensure!(errors.iter().all(|error| error == code), "{scope}: {errors:?}");
        ensure!(
            !client.operation(&operation).await?.to_string().contains(CANARY),
            "{scope}: it is shown"
        );
    }
    let metrics = client.get("/metrics").await?;
    ensure!(!metrics.text.contains(CANARY), "it is in the metrics");
    let log = server.log();
    ensure!(!log.contains(CANARY), "it is in the log");
    ensure!(!log.contains("panicked"), "{log}");
    let tables = facts::tables_with(&database, CANARY).await?;
    ensure!(tables.is_empty(), "it is in {tables:?}");
    facts::hold(&database).await?;
    server.stop().await
}
