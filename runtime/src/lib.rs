//! The PowerContext server: API, Scheduler and Worker in one binary.
//!
//! Modules import in one direction only, which `cargo xtask layers` enforces:
//! `store` <- `ledger` <- `supervisor`, `families` <- `worker`, `api` <- `roles` <- `cli`, with `config`, `telemetry`, `inference` and
//! `rt` beside them.

pub mod api;
pub mod cli;
pub mod config;
pub mod dev;
pub mod families;
pub mod inference;
pub mod ledger;
pub mod roles;
pub mod rt;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod worker;
