//! Tools for trying the server: the deterministic model and the demonstration.

pub mod demo;
pub mod model;
