//! Limits that more than one module keeps. Each names its unit; each has a test at the limit and one past it.

/// Largest encoded payload or result of a work item, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
/// Versions of payloads that this build reads. Version 1 is `{requester?}`.
pub const PAYLOAD_VERSIONS: std::ops::RangeInclusive<u32> = 1..=PAYLOAD_VERSION_MAX;
/// The newest of them. The build of the tests that stands for the next release knows one more.
pub const PAYLOAD_VERSION_MAX: u32 = if cfg!(feature = "next-version") { 2 } else { 1 };
/// Longest content of one captured source, in characters.
pub const SOURCE_CONTENT_CHARS_MAX: usize = 200_000;
/// Most live items of one lane: the one that runs or waits at its head, and the one behind it.
pub const LANE_LIVE_ITEMS_MAX: usize = 2;
/// Longest text of a memory entry after normalisation, in UTF-8 bytes.
pub const ENTRY_TEXT_BYTES_MAX: usize = 8192;
/// Longest reason of a memory change, in characters.
pub const REASON_CHARS_MAX: usize = 512;
/// Longest kind of a memory entry, in characters.
pub const ENTRY_KIND_CHARS_MAX: usize = 128;
/// Longest search query, in characters.
pub const QUERY_CHARS_MAX: usize = 8192;
/// Most hits of one search.
pub const SEARCH_HITS_MAX: u32 = 50;
/// Most operations on one page.
pub const OPERATIONS_PAGE_MAX: u32 = 100;
