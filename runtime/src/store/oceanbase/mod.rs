//! OceanBase texts, one file per aggregate.

pub(crate) mod attempts;
pub(crate) mod intents;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod leases;
pub(crate) mod works;
