//! OceanBase texts, one file per aggregate.

pub(crate) mod acts;
pub(crate) mod admitted;
pub(crate) mod artifacts;
pub(crate) mod attempts;
pub(crate) mod batch;
pub(crate) mod bindings;
pub(crate) mod cursors;
pub(crate) mod intents;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod leases;
pub(crate) mod members;
pub(crate) mod memory_entries;
pub(crate) mod rates;
pub(crate) mod slots;
pub(crate) mod sources;
pub(crate) mod spans;
pub(crate) mod upkeep;
pub(crate) mod usage;
pub(crate) mod works;
