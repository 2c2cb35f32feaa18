//! One server for one database: the second is refused, and is told who has it.

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{END_WITHIN, Setup};

use powercontext_tests::kit::{SOON, capture, flush};

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
