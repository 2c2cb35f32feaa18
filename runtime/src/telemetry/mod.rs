//! What the server says about itself: log lines and metrics.
//!
//! Both have closed vocabularies: the names of log fields ([`field`]) and the labels of metrics ([`metrics`]). Neither
//! carries content of Sources, prompts or replies, identifiers of scopes or principals as labels, or secrets (I17).

pub mod field;
pub mod log;
pub mod metrics;

#[cfg(test)]
#[path = "field_tests.rs"]
mod field_tests;
