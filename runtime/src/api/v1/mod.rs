//! Version 1 of the routes, one file an endpoint: read the request, make one call, map the outcome.

pub(crate) mod capabilities;
pub(crate) mod memory_changes;
pub(crate) mod memory_entries_get;
pub(crate) mod memory_entries_list;
pub(crate) mod memory_entries_retire;
pub(crate) mod memory_entries_revise;
pub(crate) mod memory_flush;
pub(crate) mod memory_remember;
pub(crate) mod memory_search;
pub(crate) mod operations_cancel;
pub(crate) mod operations_get;
pub(crate) mod operations_list;
pub(crate) mod operations_retry;
pub(crate) mod sources_content;

mod members;
