//! The HTTP surface: routes, strict requests, closed answers.
//!
//! A handler extracts, makes one call of [`app::App`] and maps the outcome. What a client may send is decided in `json`,
//! `fields`, `query` and `body`, what it gets back in `answers` and `problem`; how many bytes, connections and seconds
//! it may take in `limits` and `server`; who may ask, and how often, in `access`. Nothing here reads the database.

pub mod access;
pub(crate) mod answers;
pub mod app;
pub(crate) mod body;
pub(crate) mod cursor;
pub mod faults;
pub(crate) mod fields;
pub(crate) mod health;
pub(crate) mod json;
pub mod ledger_app;
pub mod limits;
pub(crate) mod metrics;
pub(crate) mod observe;
pub mod prefer;
pub mod problem;
pub(crate) mod query;
pub mod request_id;
pub mod router;
pub mod server;
pub mod state;
pub(crate) mod time;
pub(crate) mod v1;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod operations_tests;
#[cfg(test)]
mod refused_tests;
#[cfg(test)]
mod routes_tests;
#[cfg(test)]
mod testing;
