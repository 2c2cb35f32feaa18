//! A server that is killed, and its successor.

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{AT_ONCE, SOON, capture, flush, settled};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{Server, Setup};

/// Where the stories play.
pub(crate) const SCOPE: &str = "house";
/// Sources of a story.
pub(crate) const SOURCES: u32 = 3;

/// A server that is killed, and what it leaves to its successor.
pub(crate) struct Story {
    pub(crate) database: Database,
    pub(crate) provider: Provider,
    pub(crate) setup: Setup,
}

impl Story {
    pub(crate) async fn new(database: Database) -> anyhow::Result<Self> {
        let provider = Provider::start().await?;
        let setup = Setup::new(&database, &provider);
        Ok(Self {
            database,
            provider,
            setup,
        })
    }

    /// Captures, flushes, kills at the point.
    pub(crate) async fn killed_at(&self, point: &str) -> anyhow::Result<String> {
        let server = self.setup.clone().stopping_at(point).start().await?;
        capture(&server.client, SCOPE, SOURCES).await?;
        let operation = flush(&server.client, SCOPE).await?;
        server.reached(point).await?;
        server.kill().await?;
        Ok(operation)
    }

    /// Starts a successor, which ends the operation with these attempts.
    pub(crate) async fn recovered(&self, operation: &str, outcomes: &[&str]) -> anyhow::Result<Server> {
        self.recovered_either(operation, &[outcomes]).await
    }

    /// Starts a successor, which ends the operation with attempts of one of these lists: where the killed process may or
    /// may not have come one step further.
    pub(crate) async fn recovered_either(&self, operation: &str, either: &[&[&str]]) -> anyhow::Result<Server> {
        let started = rt::now();
        let server = self.setup.start().await?;
        server.client.operation_is(operation, "succeeded", SOON).await?;
        let took = started.elapsed();
        ensure!(!self.database.is_sqlite() || took < AT_ONCE, "recovery took {took:?}");
        let found = facts::outcomes(&self.database, operation).await?;
        ensure!(
            either.iter().any(|outcomes| found == *outcomes),
            "attempts ended {found:?}"
        );
        settled(&self.database, &server.client, SCOPE, i64::from(SOURCES)).await?;
        Ok(server)
    }
}
