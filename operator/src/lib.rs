//! The operator as a library: the program is `main.rs`, tests reach the parts from here.
//!
//! A reconcile is a pipeline of typed steps: dereference (read the secrets and what the roles report), validate, build,
//! plan, apply, write the status. Only the first and the last two talk to anything; the steps between are pure.

pub mod check;
pub mod controller;
pub mod error;
pub mod health;
pub mod leader;
pub mod metrics;
pub mod names;
pub mod object;
pub mod plan;
pub mod plugin;
pub mod quantity;
pub mod rt;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
pub(crate) mod testing;
