//! What a flush covers while another one runs.

use anyhow::ensure;
use futures_util::future::try_join_all;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{Server, Setup};

const SCOPE: &str = "house";
const FLUSHES: usize = 20;

powercontext_tests::on_both_databases! {
    the_answer_of_a_second_flush_covers_what_was_captured_while_the_first_ran,
    twenty_flushes_during_one_run_join_it,
    twenty_flushes_after_a_capture_during_one_run_make_one_more_item,
}

/// A server whose model is held in the middle of a run over two sources.
async fn running(database: &Database, provider: &Provider) -> anyhow::Result<(Server, String)> {
    let server = Setup::new(database, provider).start().await?;
    capture(&server.client, SCOPE, 2).await?;
    provider.hold();
    let operation = flush(&server.client, SCOPE).await?;
    provider.in_flight(1, SOON).await?;
    Ok((server, operation))
}

async fn the_answer_of_a_second_flush_covers_what_was_captured_while_the_first_ran(
    database: Database,
) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let (server, first) = running(&database, &provider).await?;
    let client = &server.client;
    client
        .capture(SCOPE, "late", "user: I prefer slate roofs.")
        .await?
        .expect(202)?;
    let second = flush(client, SCOPE).await?;
    ensure!(second != first, "the run had read its input before the capture");
    let (second_flush, ()) = tokio::join!(client.flush(SCOPE, "wait=25"), async { provider.answer() });
    let answer = second_flush?.expect(200)?;
    ensure!(
        answer.body["previous_cursor"] == 2 && answer.body["current_cursor"] == 3,
        "{answer:?}"
    );
    let first = client.operation_is(&first, "succeeded", SOON).await?;
    ensure!(first["result"]["current_cursor"] == 2, "{first}");
    let entries = client.entries(SCOPE).await?.to_string();
    ensure!(
        entries.contains("\"late\""),
        "no entry cites the late source: {entries}"
    );
    ensure!(
        client.flush(SCOPE, "wait=25").await?.body["status"] == "idle",
        "nothing is left"
    );
    facts::hold(&database).await?;
    server.stop().await
}

async fn twenty_flushes_during_one_run_join_it(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let (server, first) = running(&database, &provider).await?;
    let flushes = try_join_all((0..FLUSHES).map(|_| flush(&server.client, SCOPE))).await?;
    ensure!(flushes.iter().all(|id| *id == first), "{flushes:?}");
    provider.answer();
    server.client.operation_is(&first, "succeeded", SOON).await?;
    ensure!(server.client.operations(SCOPE).await?.len() == 1, "one item did it all");
    ensure!(provider.asked() == 1, "the model was asked {} times", provider.asked());
    facts::hold(&database).await?;
    server.stop().await
}

async fn twenty_flushes_after_a_capture_during_one_run_make_one_more_item(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let (server, first) = running(&database, &provider).await?;
    let client = &server.client;
    let flush_late = async |n: usize| {
        // Half of the flushes bring a source of their own.
        if n.is_multiple_of(2) {
            client
                .capture(SCOPE, &format!("late{n}"), "user: I prefer slate roofs.")
                .await?
                .expect(202)?;
        }
        flush(client, SCOPE).await
    };
    let mut flushes = vec![flush_late(0).await?];
    flushes.extend(try_join_all((1..FLUSHES).map(flush_late)).await?);
    let second = flushes[0].clone();
    ensure!(
        second != first && flushes.iter().all(|id| *id == second),
        "{first}: {flushes:?}"
    );
    ensure!(client.operations(SCOPE).await?.len() == 2, "at most one more item");
    provider.answer();
    let second = client.operation_is(&second, "succeeded", SOON).await?;
    let sources = 2 + FLUSHES / 2;
    ensure!(second["result"]["current_cursor"] == sources, "{second}");
    ensure!(
        client.flush(SCOPE, "wait=25").await?.body["status"] == "idle",
        "nothing is left"
    );
    facts::hold(&database).await?;
    server.stop().await
}
