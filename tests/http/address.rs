//! The address that is listened on.

use anyhow::ensure;
use powercontext_tests::database::Database;
use powercontext_tests::preload::without_ipv6;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;

#[tokio::test]
async fn every_address_of_the_machine_is_listened_on_also_where_it_has_no_ipv6() -> anyhow::Result<()> {
    let database = Database::sqlite().await?;
    let provider = Provider::start().await?;
    let setup = Setup::new(&database, &provider)
        .with("ALLOW_UNAUTHENTICATED_NON_LOOPBACK", "true")
        .on("::");
    setup.start().await?.stop().await?;
    let server = without_ipv6(&setup, &database)?.start().await?;
    let address = format!("0.0.0.0:{}", server.address.port());
    let log = server.stop_and_log().await?;
    ensure!(log.contains(&address), "{log}");
    Ok(())
}
