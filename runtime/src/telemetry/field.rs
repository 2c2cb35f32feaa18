//! The closed list of log fields.
//!
//! A field that is not here may not be logged; a test reads every call. The list is what makes "no content in logs"
//! checkable: none of these can hold a text that somebody captured, sent, or got from a model.

/// Every field that a log line may have.
pub const ALL: &[&str] = &[
    ADDRESS,
    ATTEMPT,
    CATEGORY,
    CODE,
    CONNECTIONS,
    ERROR,
    FENCE,
    KIND,
    LEFT,
    LOCATION,
    MEMBER,
    NAME,
    OUTCOME,
    OWNER,
    REASON,
    RECOVERED,
    REQUEST_ID,
    REVISION,
    ROLE,
    RUN,
    SECONDS,
    SECONDS_LEFT,
    SETTING,
    SIGNAL,
    STATEMENT,
    STATUS,
    TX,
    VERSION,
    WORK_ID,
];

/// Address that the server listens on.
pub const ADDRESS: &str = "address";
/// Lifetime number of an attempt.
pub const ATTEMPT: &str = "attempt";
/// Class of a failure.
pub const CATEGORY: &str = "category";
/// Code of a failure.
pub const CODE: &str = "code";
/// A number of connections.
pub const CONNECTIONS: &str = "connections";
/// Display of one of our errors, which never holds content.
pub const ERROR: &str = "error";
/// Fence of a lease.
pub const FENCE: &str = "fence";
/// Kind of work, or of an error of the system.
pub const KIND: &str = "kind";
/// How many are left.
pub const LEFT: &str = "left";
/// File and line of ours.
pub const LOCATION: &str = "location";
/// A process of the deployment.
pub const MEMBER: &str = "member";
/// Name of a schema revision.
pub const NAME: &str = "name";
/// How something ended.
pub const OUTCOME: &str = "outcome";
/// Who holds a lease.
pub const OWNER: &str = "owner";
/// A constant text of ours that says what should not have happened.
pub const REASON: &str = "reason";
/// How many work items were recovered.
pub const RECOVERED: &str = "recovered";
/// Id of an HTTP request; made by us, or checked for form.
pub const REQUEST_ID: &str = "request_id";
/// Revision of the schema.
pub const REVISION: &str = "revision";
/// Role of the process.
pub const ROLE: &str = "role";
/// Run of a transaction, counted from 1.
pub const RUN: &str = "run";
/// A length of time in seconds.
pub const SECONDS: &str = "seconds";
/// Seconds until a lease expires.
pub const SECONDS_LEFT: &str = "seconds_left";
/// Name of a setting.
pub const SETTING: &str = "setting";
/// A signal of the operating system.
pub const SIGNAL: &str = "signal";
/// Name of an SQL statement.
pub const STATEMENT: &str = "statement";
/// Status of an HTTP answer.
pub const STATUS: &str = "status";
/// Name of a transaction.
pub const TX: &str = "tx";
/// Version of this build.
pub const VERSION: &str = "version";
/// Id of a work item.
pub const WORK_ID: &str = "work_id";
