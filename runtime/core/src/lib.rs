//! The decisions of PowerContext, and nothing else.
//!
//! Everything here is a pure function of its arguments: no clock, no random source but the number handed in, no
//! database, no task. A transaction loads rows, asks this crate what follows from them, and writes the answer
//! (`docs/architecture.md`, "decide, then do"). That is why the whole table of every decision can be tested here,
//! and why SQLite, OceanBase and a simulation cannot disagree about the protocol.

pub mod digest;
pub mod fail;
pub mod fence;
pub mod ids;
pub mod lease;
pub mod limits;
pub mod location;
pub mod memory;
pub mod operation;
pub mod rate;
pub mod refs;
pub mod schedule;
pub mod supervise;
pub mod time;
pub mod usage;
pub mod window;
pub mod work;
