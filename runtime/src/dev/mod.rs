//! Tools for trying the server: the deterministic model, the demonstration, and a distributed deployment on one machine.

pub mod demo;
pub mod distributed;
pub mod model;
mod process;
