//! The real server behind the proxy, out of reach of its database for longer than its own lease: it lives on, says that it
//! is not ready, answers in time, and goes on with what it had accepted.

use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush, settled};
use powercontext_tests::provider::Provider;
use powercontext_tests::proxy::{Mode, Proxy};
use powercontext_tests::server::Setup;
use powercontext_tests::wait::until;

/// Longer than the lease of a single node in these suites, 3 s, and than that of an item, 4 s.
const OUTAGE: Duration = Duration::from_secs(7);
/// Longest wait for liveness, whatever the database does.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_database_refuses_for_longer_than_its_lease_lives_on() -> anyhow::Result<()> {
    lives_on(Mode::Refuse).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_database_is_silent_for_longer_than_its_lease_lives_on() -> anyhow::Result<()> {
    lives_on(Mode::BlackHole).await
}

async fn lives_on(mode: Mode) -> anyhow::Result<()> {
    let database = Database::oceanbase().await?;
    let provider = Provider::start().await?;
    let proxy = Proxy::before(database.url()).await?;
    let setup = Setup::new(&database, &provider).with("DATABASE_URL", proxy.url());
    let server = setup.start().await?;
    let client = &server.client;
    capture(client, "house", 3).await?;
    provider.hold();
    let operation = flush(client, "house").await?;
    provider.in_flight(1, SOON).await?;

    proxy.set(mode).await?;
    let over = rt::now() + OUTAGE;
    until("readiness goes off", SOON, async || {
        Ok((client.ready().await?.status == 503).then_some(()))
    })
    .await?;
    while rt::now() < over {
        let asked = rt::now();
        client.get("/health/live").await?.expect(200)?;
        ensure!(asked.elapsed() < ALIVE_WITHIN, "liveness took {:?}", asked.elapsed());
        rt::sleep(Duration::from_millis(200)).await;
    }
    let refused = client.capture("house", "unlucky", "nobody keeps this").await?;
    ensure!(refused.status == 503, "{refused:?}");
    provider.answer();
    proxy.set(Mode::Pass).await?;

    let healed = rt::now();
    until("the server is ready again", SOON, async || {
        Ok((client.ready().await?.status == 200).then_some(()))
    })
    .await?;
    println!("{mode:?}: ready {:.1?} after it healed", healed.elapsed());
    client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&database, &operation).await?;
    ensure!(outcomes == ["lease_expired_retry", "succeeded"], "{outcomes:?}");
    settled(&database, client, "house", 3).await?;
    server.stop().await
}
