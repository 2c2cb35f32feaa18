//! One server for one database: the second is refused, and is told who has it.

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{END_WITHIN, Setup};

use powercontext_tests::kit::{SOON, capture, flush, settled};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_on_one_file_is_refused_with_the_process_id_of_the_first() -> anyhow::Result<()> {
    let database = Database::sqlite().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    let first = setup.start().await?;
    capture(&first.client, "house", 2).await?;

    let mut second = setup.spawn().await?;
    let status = second.ended(END_WITHIN).await?;
    ensure!(status.code() == Some(1), "{status}:\n{}", second.log());
    let (log, pid) = (second.log(), first.pid()?);
    ensure!(log.contains(&format!("process {pid}")), "{pid} is not named in:\n{log}");
    ensure!(log.contains(database.url()), "the file is not named in:\n{log}");

    // The first one did not notice anything.
    let operation = flush(&first.client, "house").await?;
    first.client.operation_is(&operation, "succeeded", SOON).await?;
    first.stop().await?;
    setup.start().await?.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_single_node_on_one_schema_waits_for_the_lease_and_is_refused() -> anyhow::Result<()> {
    let database = Database::oceanbase().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    let first = setup.start().await?;

    let mut second = setup.spawn().await?;
    let status = second.ended(END_WITHIN).await?;
    ensure!(status.code() == Some(1), "{status}:\n{}", second.log());
    let log = second.log();
    ensure!(log.contains("waiting for its lease to end"), "{log}");
    ensure!(log.contains("runs as the single node of this database"), "{log}");

    // A clean end gives the lease back, so that a successor need not wait.
    first.stop().await?;
    let third = setup.start().await?;
    ensure!(!third.log().contains("waiting for its lease to end"), "{}", third.log());
    third.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_that_comes_back_after_a_take_over_ends_and_changes_nothing() -> anyhow::Result<()> {
    let database = Database::oceanbase().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider).with("OPERATIONS_POLL_SECONDS", "0.1");
    let mut frozen = setup.start().await?;
    capture(&frozen.client, "house", 3).await?;
    provider.hold();
    let operation = flush(&frozen.client, "house").await?;
    provider.in_flight(1, SOON).await?;
    frozen.freeze()?;

    // Its successor waits for both leases, and does the work.
    let successor = setup.start().await?;
    provider.in_flight(2, SOON).await?;
    provider.answer();
    successor.client.operation_is(&operation, "succeeded", SOON).await?;

    // It comes back with the model's answer in its hands.
    frozen.thaw()?;
    let status = frozen.ended(END_WITHIN).await?;
    ensure!(status.code() == Some(1), "{status}:\n{}", frozen.log());
    ensure!(frozen.log().contains("has taken over"), "{}", frozen.log());
    let outcomes = facts::outcomes(&database, &operation).await?;
    ensure!(outcomes == ["lease_expired_retry", "succeeded"], "{outcomes:?}");
    settled(&database, &successor.client, "house", 3).await?;
    successor.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_keeps_its_file_and_goes_on() -> anyhow::Result<()> {
    let database = Database::sqlite().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    let frozen = setup.start().await?;
    capture(&frozen.client, "house", 3).await?;
    provider.hold();
    let operation = flush(&frozen.client, "house").await?;
    provider.in_flight(1, SOON).await?;
    frozen.freeze()?;
    let mut second = setup.spawn().await?;
    ensure!(second.ended(END_WITHIN).await?.code() == Some(1), "{}", second.log());
    provider.answer();
    frozen.thaw()?;
    frozen.client.operation_is(&operation, "succeeded", SOON).await?;
    ensure!(
        facts::outcomes(&database, &operation).await? == ["succeeded"],
        "nobody took it over"
    );
    settled(&database, &frozen.client, "house", 3).await?;
    frozen.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_inside_its_final_transaction_keeps_no_successor_out() -> anyhow::Result<()> {
    let database = Database::oceanbase().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider);
    let frozen = setup.clone().stopping_at("finish.before_commit").start().await?;
    capture(&frozen.client, "house", 3).await?;
    let operation = flush(&frozen.client, "house").await?;
    frozen.reached("finish.before_commit").await?;
    // Its connection stays open with every lock of the transaction, which the database would by default keep for a day.
    frozen.freeze()?;
    let successor = setup.start().await?;
    successor.client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&database, &operation).await?;
    ensure!(outcomes == ["lease_expired_retry", "succeeded"], "{outcomes:?}");
    settled(&database, &successor.client, "house", 3).await?;
    frozen.kill().await?;
    successor.stop().await
}
