//! The scenarios, one a file. Each ends with its namespace deleted; one that fails leaves it for whoever looks.

pub(crate) mod demo;
pub(crate) mod eviction;
pub(crate) mod faults;
pub(crate) mod grace;
pub(crate) mod install;
pub(crate) mod killed;
pub(crate) mod mode;
pub(crate) mod operator;
pub(crate) mod outage;
pub(crate) mod plugin;
pub(crate) mod policy;
pub(crate) mod scale;
pub(crate) mod tenants;
pub(crate) mod uninstall;
pub(crate) mod upgrade;
