//! What each piece of work is as a span, and how attempts hang together.

use anyhow::{Context, ensure};
use powercontext::telemetry::trace::{Attribute, Name};
use powercontext_tests::collector::{Collector, Span};
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::wait::until;
use serde_json::json;

powercontext_tests::on_both_databases! {
    a_retried_item_is_two_runs_and_the_second_is_linked_to_the_first,
    a_run_that_lost_its_lease_is_stale_and_others_end_as_they_do,
    a_request_for_work_is_a_part_of_what_its_client_does,
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

struct Case {
    provider: Provider,
    collector: Collector,
    server: Server,
}

async fn case(database: &Database) -> anyhow::Result<Case> {
    let (provider, collector) = (Provider::start().await?, Collector::start().await?);
    let server = Setup::new(database, &provider)
        .with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())
        // Spans are none of the log's business.
        .with("LOGGING_LEVEL", "ERROR")
        // Spans take a second to arrive; the budget of a failing item must last longer.
        .with("WORKER_MAX_ATTEMPTS", "100")
        .start()
        .await?;
    Ok(Case {
        provider,
        collector,
        server,
    })
}

/// Ids of the spans of an item's attempts, as the rows have them.
async fn stored(database: &Database, operation: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut raw = database.raw().await?;
    let rows = raw
        .rows(&format!(
            "select trace_id, span_id from pc_work_attempts where work_id = '{operation}' order by attempt_no"
        ))
        .await?;
    rows.iter().map(|row| Ok((row.text(0)?, row.text(1)?))).collect()
}

fn ids(span: &Span) -> (String, String) {
    (span.trace.clone(), span.span.clone())
}

async fn a_retried_item_is_two_runs_and_the_second_is_linked_to_the_first(database: Database) -> anyhow::Result<()> {
    let Case {
        provider,
        collector,
        server,
    } = case(&database).await?;
    provider.refuse(500, "no")?;
    capture(&server.client, "house", 2).await?;
    let operation = flush(&server.client, "house").await?;
    until("an attempt has failed", SOON, async || {
        let outcomes = facts::outcomes(&database, &operation).await?;
        Ok(outcomes.contains(&"retry_wait".to_owned()).then_some(()))
    })
    .await?;
    provider.answer();
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    server.stop().await?;

    let mut runs = collector.named("work.execute");
    runs.sort_by_key(|run| run.attribute("work.attempt").parse().unwrap_or(0));
    let (last, failed) = runs.split_last().context("no run")?;
    ensure!(!failed.is_empty(), "{runs:#?}");
    let ids_in_rows = stored(&database, &operation).await?;
    ensure!(
        runs.iter().map(ids).collect::<Vec<_>>() == ids_in_rows,
        "{runs:#?} {ids_in_rows:?}"
    );
    ensure!(runs[0].links.is_empty(), "{runs:#?}");
    for (n, pair) in runs.windows(2).enumerate() {
        ensure!(pair[1].links == [ids(&pair[0])], "{runs:#?}");
        ensure!(pair[1].trace != pair[0].trace, "{runs:#?}");
        ensure!(pair[0].attribute("work.attempt") == (n + 1).to_string(), "{runs:#?}");
    }
    for run in &runs {
        ensure!(run.parent.is_empty(), "{run:?}");
        ensure!(
            run.attribute("work.kind") == "powercontext.memory.source-window",
            "{run:?}"
        );
        ensure!(run.attribute("work.payload_version") == "1", "{run:?}");
        ensure!(run.attribute("work.recovery_generation") == "0", "{run:?}");
    }
    for run in failed {
        ensure!(run.attribute("outcome") == "retry_wait" && run.is_error, "{run:?}");
        let retry = below(&collector, "work.retry", run)?;
        ensure!(retry.attribute("work.error_category") == "provider", "{retry:?}");
        ensure!(retry.attribute("work.retryable") == "true", "{retry:?}");
        ensure!(retry.attribute("outcome") == "retry_wait", "{retry:?}");
    }
    ensure!(last.attribute("outcome") == "succeeded" && !last.is_error, "{last:?}");
    let commit = below(&collector, "work.commit", last)?;
    ensure!(commit.nanoseconds <= last.nanoseconds, "{commit:?} in {last:?}");
    let memory = below(&collector, "memory.commit", &commit)?;
    ensure!(memory.attribute("memory.commit.memory_changed") == "true", "{memory:?}");
    ensure!(
        memory.attribute("memory.commit.entry_version_count") == "2",
        "{memory:?}"
    );
    closed(&collector)
}

/// The one span of a name right below another.
fn below(collector: &Collector, name: &str, above: &Span) -> anyhow::Result<Span> {
    let named = collector.named(name);
    let found: Vec<_> = named.iter().filter(|span| span.parent == above.span).collect();
    ensure!(
        found.len() == 1 && found[0].trace == above.trace,
        "{name} below {above:?}: {named:#?}"
    );
    Ok(found[0].clone())
}

/// Every name and attribute is one of the lists, and the process says who it is.
fn closed(collector: &Collector) -> anyhow::Result<()> {
    for span in collector.spans() {
        ensure!(Name::ALL.iter().any(|name| name.as_str() == span.name), "{span:?}");
        let is_known = |name: &String| Attribute::NAMES.contains(&name.as_str());
        ensure!(span.attributes.keys().all(is_known), "{span:?}");
    }
    let resource = collector.resource();
    let names: Vec<_> = resource.keys().map(String::as_str).collect();
    ensure!(
        names == ["service.instance.id", "service.name", "service.version"],
        "{resource:?}"
    );
    ensure!(resource["service.name"] == "powercontext", "{resource:?}");
    Ok(())
}

async fn a_run_that_lost_its_lease_is_stale_and_others_end_as_they_do(database: Database) -> anyhow::Result<()> {
    let Case {
        provider,
        collector,
        server,
    } = case(&database).await?;
    let client = &server.client;
    // Somebody raises the fence while the run waits for its model, as a take-over does.
    provider.hold();
    capture(client, "stale", 1).await?;
    let operation = flush(client, "stale").await?;
    provider.in_flight(1, SOON).await?;
    let steal = format!(
        "update pc_work_items set lease_fence = lease_fence + 1, lease_owner = 'somebody' where work_id = '{operation}'"
    );
    until("the lease is taken", SOON, async || {
        Ok(Some(database.raw().await?.execute(&steal).await?))
    })
    .await?;
    provider.answer();
    let stale = collector.has("work.execute", 1, SOON).await?;
    ensure!(
        stale[0].attribute("outcome") == "stale" && stale[0].is_error,
        "{stale:?}"
    );

    provider.refuse(401, "no")?;
    capture(client, "failed", 1).await?;
    let failed = client.flush("failed", "wait=25").await?.expect(409)?.operation_id()?;
    let runs = collector.has("work.execute", 2, SOON).await?;
    ensure!(runs[1].attribute("outcome") == "failed", "{runs:?}");
    let decided = below(&collector, "work.retry", &runs[1])?;
    ensure!(decided.attribute("work.retryable") == "false", "{decided:?}");

    provider.hold();
    client.act(&failed, "retry").await?.expect(200)?;
    provider.in_flight(1, SOON).await?;
    client.act(&failed, "cancel").await?;
    let runs = collector.has("work.execute", 3, SOON).await?;
    ensure!(runs[2].attribute("outcome") == "cancelled", "{runs:?}");
    ensure!(runs[2].attribute("work.recovery_generation") == "1", "{runs:?}");
    ensure!(runs[2].links == [ids(&runs[1])], "{runs:?}");
    server.stop().await?;
    let claims = collector.named("work.claim");
    ensure!(claims.len() == 3, "a claim that takes nothing is no span: {claims:?}");
    for claim in &claims {
        ensure!(
            claim.attribute("work.claim.count") == "1" && !claim.attribute("work.claim.capacity").is_empty(),
            "{claim:?}"
        );
    }
    closed(&collector)
}

async fn a_request_for_work_is_a_part_of_what_its_client_does(database: Database) -> anyhow::Result<()> {
    let Case {
        provider,
        collector,
        server,
    } = case(&database).await?;
    provider.hold();
    capture(&server.client, "house", 1).await?;
    let parents = [
        Some(format!("00-{TRACE}-{PARENT}-01")),
        // The client records nothing, and so do we.
        Some(format!("00-{TRACE}-{PARENT}-00")),
        Some("00-nonsense".to_owned()),
        None,
    ];
    let http = reqwest::Client::builder().no_proxy().build()?;
    for parent in parents {
        let mut request = http.post(format!("http://{}/v1/memory/flush", server.address));
        if let Some(parent) = parent {
            request = request.header("traceparent", parent);
        }
        let answer = request
            .header("prefer", "respond-async")
            .json(&json!({"scope_id": "house"}))
            .send()
            .await?;
        ensure!(answer.status() == 202, "{answer:?}");
    }
    server.client.flush("nothing", "respond-async").await?.expect(200)?;
    let requests = collector.has("work.enqueue", 4, SOON).await?;
    let outcomes: Vec<_> = requests.iter().map(|span| span.attribute("outcome")).collect();
    ensure!(outcomes == ["created", "joined", "joined", "idle"], "{requests:?}");
    ensure!(
        requests[0].trace == TRACE && requests[0].parent == PARENT,
        "{requests:?}"
    );
    for own in &requests[1..] {
        ensure!(own.trace != TRACE && own.parent.is_empty(), "{requests:?}");
    }
    provider.answer();
    server.stop().await
}
