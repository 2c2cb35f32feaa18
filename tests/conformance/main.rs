//! One suite, two engines: what the store promises, run on SQLite and on OceanBase. A behaviour that no test here shows
//! may not be relied upon.

mod artifacts;
mod capture;
mod cursors;
mod memory;
mod rates;
mod sources;
mod statements;
