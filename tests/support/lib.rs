//! Servers and helpers the suites share.
//!
//! Nothing in here pretends: a database is a real one, the server is the real binary. A helper that cannot give what it
//! promises returns an error, so that a suite can never pass by skipping itself.

pub mod binary;
pub mod checker;
pub mod children;
pub mod client;
pub mod collector;
pub mod database;
pub mod db;
pub mod facts;
pub mod kit;
pub mod mounts;
pub mod oceanbase;
pub mod plans;
pub mod preload;
pub mod provider;
pub mod proxy;
pub mod raw;
pub mod rows;
pub mod server;
pub mod stuck;
pub mod wait;

/// The seed of a random test: what `POWERCONTEXT_TEST_SEED` says, to replay a failure, or a fresh one.
///
/// # Errors
/// When the variable holds no number.
pub fn seed() -> anyhow::Result<u64> {
    Ok(number("POWERCONTEXT_TEST_SEED")?.unwrap_or_else(|| u64::from(powercontext::rt::random())))
}

/// A number that this variable of the test environment holds; `None` without it.
///
/// # Errors
/// When the variable holds no number.
pub fn number(key: &str) -> anyhow::Result<Option<u64>> {
    let number = env(key).map(|text| text.parse());
    number.transpose().map_err(|error| anyhow::anyhow!("{key}: {error}"))
}

/// A variable of the test environment; tests are the one place that reads it without `config`.
pub(crate) fn env(key: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "what a test run hands to its suites are no settings of the product"
    )]
    std::env::var(key).ok().filter(|value| !value.is_empty())
}
