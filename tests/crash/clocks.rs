//! A process whose clock is an hour wrong. On OceanBase no decision asks the process; on SQLite the process's clock is the
//! database's, and what a wrong one leaves behind is at most a wait that an operator can end.

use std::time::Duration;

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{AT_ONCE, SOON, capture, flush, settled};
use powercontext_tests::preload::shifted;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;

const HOUR: i64 = 3600;

/// The wall clock that made an operation's id (UUID version 7), in seconds since 1970: the process's, not the database's.
fn made_at(operation: &str) -> anyhow::Result<i64> {
    let millis: String = operation.chars().filter(|c| *c != '-').take(12).collect();
    Ok(i64::from_str_radix(&millis, 16)? / 1000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_times_are_the_databases_whatever_the_processes_believe() -> anyhow::Result<()> {
    let database = Database::oceanbase().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    for (shift, scope) in [(HOUR, "fast"), (-HOUR, "slow")] {
        let server = shifted(&setup, &database, shift)?.start().await?;
        capture(&server.client, scope, 2).await?;
        provider.hold();
        let operation = flush(&server.client, scope).await?;
        provider.in_flight(1, SOON).await?;

        let now = facts::number(&database, "select unix_timestamp(utc_timestamp(6)) div 1").await?;
        let ahead = made_at(&operation)? - facts::number(&database, "select unix_timestamp() div 1").await?;
        ensure!(
            (ahead - shift).abs() < 60,
            "the process's clock is {ahead} s off, not {shift}"
        );
        let row = |column: &str| {
            format!(
                "select timestampdiff(second, utc_timestamp(6), {column}) from pc_work_items where work_id = '{operation}'"
            )
        };
        let left = facts::number(&database, &row("lease_expires_at")).await?;
        ensure!((0..=4).contains(&left), "the lease ends in {left} s at {now}");
        let age = facts::number(&database, &row("created_at")).await?;
        ensure!((-60..=0).contains(&age), "created {age} s from now");

        // It is killed; a successor whose clock is wrong the other way takes over when the lease is over, not hours later.
        server.kill().await?;
        provider.answer();
        let server = shifted(&setup, &database, -shift)?.start().await?;
        server.client.operation_is(&operation, "succeeded", SOON).await?;
        let outcomes = facts::outcomes(&database, &operation).await?;
        ensure!(outcomes == ["lease_expired_retry", "succeeded"], "{outcomes:?}");
        settled(&database, &server.client, scope, 2).await?;
        server.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_jump_of_the_clock_between_two_starts_delays_at_most_what_waits() -> anyhow::Result<()> {
    let database = Database::sqlite().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider).with("WORKER_SHUTDOWN_GRACE_SECONDS", "0");

    // An hour fast: one run is killed, one is given back, so that it waits for a time that is an hour away.
    let fast = shifted(&setup, &database, HOUR)?.start().await?;
    provider.hold();
    capture(&fast.client, "killed", 2).await?;
    let killed = flush(&fast.client, "killed").await?;
    provider.in_flight(1, SOON).await?;
    fast.kill().await?;
    let fast = shifted(&setup, &database, HOUR)?.start().await?;
    capture(&fast.client, "given-back", 2).await?;
    let given_back = flush(&fast.client, "given-back").await?;
    provider.in_flight(2, SOON).await?;
    fast.stop().await?;

    // The clock is right again, an hour earlier. Whatever was due waits for the hour, and nothing else does.
    provider.answer();
    let server = setup.start().await?;
    capture(&server.client, "new", 2).await?;
    server.client.flush("new", "wait=25").await?.expect(200)?;
    settled(&database, &server.client, "new", 2).await?;
    for (scope, operation) in [("killed", &killed), ("given-back", &given_back)] {
        let waits = server.client.operation(operation).await?;
        ensure!(waits["status"] == "retry_wait", "{waits}");
        ensure!(
            flush(&server.client, scope).await? == *operation,
            "a flush joins what waits"
        );
        // An operator need not wait.
        server.client.act(operation, "cancel").await?.expect(200)?;
        let flushed = server.client.flush(scope, "wait=25").await?.expect(200)?;
        ensure!(flushed.body["processed_source_count"] == 2, "{flushed:?}");
        ensure!(facts::revisions(&database, scope).await? == 1, "one revision");
    }
    facts::hold(&database).await?;

    // Leases have no time on SQLite: what a process of now had, one of an hour ago recovers at once.
    provider.hold();
    capture(&server.client, "slow", 2).await?;
    let operation = flush(&server.client, "slow").await?;
    provider.in_flight(1, SOON).await?;
    server.kill().await?;
    provider.answer();
    let slow = shifted(&setup, &database, -HOUR)?.start().await?;
    slow.client
        .operation_is(&operation, "succeeded", AT_ONCE + Duration::from_secs(2))
        .await?;
    settled(&database, &slow.client, "slow", 2).await?;
    slow.stop().await
}
