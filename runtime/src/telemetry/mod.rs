//! What the server says about itself: log lines, metrics and spans.
//!
//! All have closed vocabularies: the names of log fields ([`field`]), the labels of metrics ([`metrics`]), the names and
//! attributes of spans ([`trace`]). None carries content of Sources, prompts or replies, identifiers of scopes or principals as labels, or secrets (I17).

pub mod field;
pub mod log;
pub mod metrics;
pub mod trace;

#[cfg(test)]
#[path = "field_tests.rs"]
mod field_tests;
