//! SIGTERM: unready first, running work ends within its grace or is given back, requests in progress are answered, exit
//! status 0.

use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{END_WITHIN, Setup};
use powercontext_tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use powercontext_tests::kit::{SOON, capture, flush, settled};

const SCOPE: &str = "house";

powercontext_tests::on_both_databases! {
    a_run_that_ends_within_the_grace_is_finished,
    a_run_beyond_the_grace_is_given_back_and_costs_no_attempt,
    a_flush_that_waits_is_answered_at_the_end,
    who_was_let_in_before_the_end_is_answered,
}

async fn a_run_that_ends_within_the_grace_is_finished(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    let mut server = setup.start().await?;
    capture(&server.client, SCOPE, 3).await?;
    provider.hold();
    let operation = flush(&server.client, SCOPE).await?;
    provider.in_flight(1, SOON).await?;
    server.terminate()?;
    until(
        "readiness goes off while the run goes on",
        Duration::from_secs(2),
        async || {
            let ready = server.client.ready().await?;
            ensure!(ready.status == 503, "{ready:?}");
            Ok(Some(()))
        },
    )
    .await?;
    provider.answer();
    let status = server.ended(END_WITHIN).await?;
    ensure!(status.success(), "{status}:\n{}", server.log());
    ensure!(
        facts::outcomes(&database, &operation).await? == ["succeeded"],
        "it was finished"
    );

    let server = setup.start().await?;
    settled(&database, &server.client, SCOPE, 3).await?;
    ensure!(provider.asked() == 1, "the model was asked {} times", provider.asked());
    server.stop().await
}

async fn a_run_beyond_the_grace_is_given_back_and_costs_no_attempt(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    // One attempt is all there is: given back runs must not use it up.
    let setup = Setup::new(&database, &provider)
        .with("WORKER_SHUTDOWN_GRACE_SECONDS", "0")
        .with("WORKER_MAX_ATTEMPTS", "1");
    provider.hold();
    let mut operation = String::new();
    for round in 1..=2 {
        let server = setup.start().await?;
        capture(&server.client, SCOPE, 3).await?;
        operation = flush(&server.client, SCOPE).await?;
        provider.in_flight(1, SOON).await?;
        server.stop().await?;
        let outcomes = facts::outcomes(&database, &operation).await?;
        ensure!(outcomes == vec!["released"; round], "{outcomes:?}");
        let sql = format!(
            "select count(*) from pc_work_items
             where work_id = '{operation}' and status = 'retry_wait' and generation_attempt_count = 0"
        );
        ensure!(facts::number(&database, &sql).await? == 1, "the budget was touched");
        provider.in_flight(0, SOON).await?;
    }
    provider.answer();
    let server = setup.start().await?;
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&database, &operation).await?;
    ensure!(outcomes == ["released", "released", "succeeded"], "{outcomes:?}");
    settled(&database, &server.client, SCOPE, 3).await?;
    server.stop().await
}

async fn a_flush_that_waits_is_answered_at_the_end(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider).with("WORKER_SHUTDOWN_GRACE_SECONDS", "1");
    let server = setup.start().await?;
    capture(&server.client, SCOPE, 3).await?;
    provider.hold();
    let client = server.client.clone();
    let waiting = rt::spawn(async move { client.flush(SCOPE, "wait=30").await });
    provider.in_flight(1, SOON).await?;
    server.stop().await?;
    let answer = waiting.await??.expect(202)?;
    let operation = answer.operation_id()?;
    provider.answer();
    let server = setup.start().await?;
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    settled(&database, &server.client, SCOPE, 3).await?;
    server.stop().await
}

async fn who_was_let_in_before_the_end_is_answered(database: Database) -> anyhow::Result<()> {
    const REQUEST: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    let provider = Provider::start().await?;
    let mut server = Setup::new(&database, &provider).start().await?;
    let mut clients = vec![TcpStream::connect(server.address).await?];
    // A request that the server has taken the connection of, and then those of whom only the system knows.
    server.freeze()?;
    for _ in 0..64 {
        clients.push(TcpStream::connect(server.address).await?);
    }
    for client in &mut clients {
        client.write_all(REQUEST).await?;
    }
    server.terminate()?;
    server.thaw()?;
    for (n, client) in clients.iter_mut().enumerate() {
        let mut answer = String::new();
        let read = rt::within(SOON, client.read_to_string(&mut answer)).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{n}: {read:?} {answer:?}");
    }
    let status = server.ended(END_WITHIN).await?;
    ensure!(status.success(), "{status}:\n{}", server.log());
    Ok(())
}
