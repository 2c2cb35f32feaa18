//! The closed list of log fields.
//!
//! A field that is not here may not be logged; a test reads every call. The list is what makes "no content in logs"
//! checkable: none of these can hold a text that somebody captured, sent, or got from a model.

/// Every field that a log line may have.
pub const ALL: &[&str] = &[
    ADDRESS,
    ALIASES,
    ATTEMPT,
    BINDING,
    BINDINGS,
    BUDGETS,
    CATEGORY,
    CODE,
    CONNECTIONS,
    DELAY_MS,
    ERROR,
    ERROR_TYPE,
    EXIT,
    FAILURES,
    FAMILIES,
    FAMILY,
    FENCE,
    GENERATION,
    KIND,
    LEASE,
    LEFT,
    LOCATION,
    LOST,
    MEMBER,
    MODE,
    NAME,
    OUTCOME,
    OWNER,
    REASON,
    RECOVERED,
    REQUEST_ID,
    REVISION,
    ROLE,
    RUN,
    SCHEDULES,
    SECONDS,
    SECONDS_LEFT,
    SETTING,
    SIGNAL,
    STAGE,
    STATEMENT,
    STATUS,
    STORED,
    SUPERVISION,
    TIMEOUTS,
    TRIGGER,
    TX,
    VERSION,
    WORK_ID,
];

/// Address that the server listens on.
pub const ADDRESS: &str = "address";
/// Older names of settings that are in use.
pub const ALIASES: &str = "aliases";
/// Lifetime number of an attempt.
pub const ATTEMPT: &str = "attempt";
/// A binding, such as `memory-source-window`.
pub const BINDING: &str = "binding";
/// The registered bindings.
pub const BINDINGS: &str = "bindings";
/// Caps of the families, in their order.
pub const BUDGETS: &str = "budgets";
/// Class of a failure.
pub const CATEGORY: &str = "category";
/// Code of a failure.
pub const CODE: &str = "code";
/// A number of connections.
pub const CONNECTIONS: &str = "connections";
/// How long something waits, in milliseconds.
pub const DELAY_MS: &str = "delay_ms";
/// Display of one of our errors, which never holds content.
pub const ERROR: &str = "error";
/// Class of an error of ours.
pub const ERROR_TYPE: &str = "error_type";
/// Status with which a process of ours ended.
pub const EXIT: &str = "exit";
/// Failures in a row.
pub const FAILURES: &str = "failures";
/// The registered families.
pub const FAMILIES: &str = "families";
/// A family of artifacts.
pub const FAMILY: &str = "family";
/// Fence of a lease.
pub const FENCE: &str = "fence";
/// Request generation at the claim.
pub const GENERATION: &str = "generation";
/// Kind of work, or of an error of the system.
pub const KIND: &str = "kind";
/// Name of a lease.
pub const LEASE: &str = "lease";
/// How many are left.
pub const LEFT: &str = "left";
/// File and line of ours.
pub const LOCATION: &str = "location";
/// How many were lost.
pub const LOST: &str = "lost";
/// A process of the deployment.
pub const MEMBER: &str = "member";
/// How supervision is organised, or how a deployment is.
pub const MODE: &str = "mode";
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
/// Schedules of the families, in their order.
pub const SCHEDULES: &str = "schedules";
/// A length of time in seconds.
pub const SECONDS: &str = "seconds";
/// Seconds until a lease expires.
pub const SECONDS_LEFT: &str = "seconds_left";
/// Name of a setting.
pub const SETTING: &str = "setting";
/// A signal of the operating system.
pub const SIGNAL: &str = "signal";
/// Where in a use case something happened.
pub const STAGE: &str = "stage";
/// Name of an SQL statement.
pub const STATEMENT: &str = "statement";
/// Status of an HTTP answer.
pub const STATUS: &str = "status";
/// What is stored, where it differs from a setting.
pub const STORED: &str = "stored";
/// Mode of supervision.
pub const SUPERVISION: &str = "supervision";
/// Longest runs of the families, in their order.
pub const TIMEOUTS: &str = "timeouts";
/// Why work was admitted.
pub const TRIGGER: &str = "trigger";
/// Name of a transaction.
pub const TX: &str = "tx";
/// Version of this build.
pub const VERSION: &str = "version";
/// Id of a work item.
pub const WORK_ID: &str = "work_id";
