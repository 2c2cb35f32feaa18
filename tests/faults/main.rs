//! The product behind a network that breaks: `docs/testing.md` lists the faults. Every test has a schema of its own.

mod commit;
mod counts;
mod kit;
mod load;
mod model;
mod process;
mod silence;
mod unreachable;
