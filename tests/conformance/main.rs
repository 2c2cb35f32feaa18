//! One suite, two engines: what the store promises, run on SQLite and on OceanBase. A behaviour that no test here shows
//! may not be relied upon.

mod artifacts;
mod capture;
mod cursors;
mod ledger_checker;
mod ledger_claim;
mod ledger_end;
mod ledger_flush;
mod ledger_kit;
mod ledger_leases;
mod ledger_operator;
mod ledger_random;
mod ledger_recover;
mod ledger_slots;
mod ledger_tx;
mod ledger_usual;
mod memory;
mod rates;
mod sources;
mod statements;
mod supervise_admit;
mod supervise_kit;
mod supervise_scan;
mod supervise_schedule;
mod upkeep;
mod usage;
