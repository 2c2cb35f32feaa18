//! Servers and helpers the suites share.
//!
//! Nothing in here pretends: a database is a real one, the server is the real binary. A helper that cannot give what it
//! promises returns an error, so that a suite can never pass by skipping itself.

pub mod binary;
pub mod checker;
pub mod db;
pub mod oceanbase;
pub mod proxy;
pub mod raw;

/// A variable of the test environment; tests are the one place that reads it without `config`.
pub(crate) fn env(key: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "what a test run hands to its suites are no settings of the product"
    )]
    std::env::var(key).ok().filter(|value| !value.is_empty())
}
