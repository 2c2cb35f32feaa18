//! What can go wrong in a transaction, by what the caller does next. No message holds a value, a statement or a URL.

use powercontext_core::fail::FailCode;
use sqlx::mysql::MySqlDatabaseError;

/// A transaction that did not commit, or may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TxError {
    /// Somebody else holds a lock or all connections; the same transaction may succeed later. Nothing was written.
    #[error("the database is busy: {0}")]
    Busy(Busy),
    /// A unique key already exists. Nothing was written.
    #[error("a unique key already exists")]
    Constraint,
    /// The caller's lease or term is over. Nothing was written.
    #[error("{0}")]
    Fenced(FenceLost),
    /// The decision refused: the domain moved under the caller. Nothing was written.
    #[error("refused: {}", .0.code())]
    Refused(FailCode),
    /// A guarded write touched another number of rows than it must. Nothing was written.
    #[error("the statement {statement} touched {touched} rows instead of {expected}")]
    Rows {
        /// Name of the statement.
        statement: &'static str,
        /// Rows it must touch.
        expected: u64,
        /// Rows it touched.
        touched: u64,
    },
    /// The commit was sent and its outcome is not known: re-read by owner and fence before any further write.
    #[error("the outcome of the commit is unknown")]
    Unknown,
    /// A stored row breaks its own rules.
    #[error("{0}")]
    Corrupt(Corrupt),
    /// The database cannot be used. Nothing was written.
    #[error("the database is not available: {0}")]
    Down(Down),
}

/// Who is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// A row lock was not granted in time, or two transactions blocked each other.
    #[error("somebody else holds a lock")]
    Lock,
    /// Every connection of the pool is in use.
    #[error("no free connection")]
    Pool,
    /// The statement or transaction ran into its time limit, or the server was out of memory just then.
    #[error("a limit of the server was reached: of a statement's or a transaction's time, or of its memory")]
    Limit,
}

/// A lease that is not ours any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FenceLost {
    /// The work item's lease.
    #[error("the lease of the work item is lost")]
    Item,
    /// A named lease.
    #[error("the lease of this name is lost")]
    Lease,
    /// The term of the one process that owns the database.
    #[error("another process owns the database now")]
    Term,
}

/// A row that cannot be read as what it should be. Names the column or rule, never the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stored row is corrupt: {what}")]
pub struct Corrupt {
    /// Column or rule.
    pub what: &'static str,
}

/// Why the database cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Down {
    /// No connection, or it broke.
    #[error("no connection")]
    Connection,
    /// Wrong user, password or rights; also for a database that this user may not see.
    #[error("access refused")]
    Access,
    /// The server has no database of the name that the URL gives.
    #[error("the server has no database of this name")]
    NoSuchDatabase,
    /// No answer within the deadline; the connection was destroyed.
    #[error("no answer within the deadline")]
    Deadline,
    /// The path of a SQLite database is no file, or none that this user may open.
    #[error("the database file cannot be opened")]
    NotAFile,
    /// The disk under the database file is full.
    #[error("the disk is full")]
    DiskFull,
    /// The database file cannot be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// The file is damaged or is no database.
    #[error("the database file is damaged")]
    Damaged,
    /// Anything else the engine answered; its number, for the log.
    #[error("engine error {0}")]
    Other(i64),
}

impl TxError {
    /// Whether running the same transaction again can help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    /// Bounded name for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Busy(_) => "busy",
            Self::Constraint => "constraint",
            Self::Fenced(_) => "fenced",
            Self::Refused(_) => "refused",
            Self::Rows { .. } => "rows",
            Self::Unknown => "unknown",
            Self::Corrupt(_) => "corrupt",
            Self::Down(_) => "down",
        }
    }
}

/// Shortcut for a broken rule.
pub(crate) fn corrupt(what: &'static str) -> TxError {
    TxError::Corrupt(Corrupt { what })
}

/// What a driver answered. Its text can quote values, so it is never shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// OceanBase, or the way to it.
    #[error("the driver of OceanBase")]
    OceanBase(#[from] sqlx::Error),
    /// SQLite.
    #[error("SQLite")]
    Sqlite(#[from] rusqlite::Error),
}

impl DriverError {
    /// What the caller does next, for any statement but `COMMIT`.
    pub(crate) fn classify(&self) -> TxError {
        match self {
            Self::OceanBase(error) => classify(error),
            Self::Sqlite(error) => sqlite(error),
        }
    }
}

/// Maps an error of OceanBase's driver.
pub(crate) fn classify(error: &sqlx::Error) -> TxError {
    match error {
        sqlx::Error::PoolTimedOut => TxError::Busy(Busy::Pool),
        sqlx::Error::Database(db) => {
            let number = db
                .try_downcast_ref::<MySqlDatabaseError>()
                .map_or(0, MySqlDatabaseError::number);
            oceanbase(number)
        }
        sqlx::Error::ColumnNotFound(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => corrupt("column"),
        _ => TxError::Down(Down::Connection),
    }
}

/// Maps an error of SQLite.
pub(crate) fn sqlite(error: &rusqlite::Error) -> TxError {
    match error.sqlite_error() {
        Some(error) => sqlite_code(error.extended_code.into()),
        // The text and its parameters do not belong together, or a column is not what it was.
        None => corrupt("statement"),
    }
}

/// Whether SQLite's own reads or writes of its files failed. After such a COMMIT the log may hold it whole.
pub(crate) fn is_io(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code & 0xff == 10)
}

/// Error numbers of OceanBase 4.3.5 in MySQL mode, as measured.
fn oceanbase(number: u16) -> TxError {
    match number {
        1205 | 1213 => TxError::Busy(Busy::Lock),
        // 4012: statement limit; 6002, 6005, 6224, 6225: the server rolled the transaction back; 4030: out of memory now.
        4012 | 6002 | 6005 | 6224 | 6225 | 4030 | 3024 => TxError::Busy(Busy::Limit),
        1062 => TxError::Constraint,
        1044 | 1045 | 1142 | 1227 | 1698 => TxError::Down(Down::Access),
        1049 => TxError::Down(Down::NoSuchDatabase),
        other => TxError::Down(Down::Other(i64::from(other))),
    }
}

/// Extended result codes of SQLite; the low byte is the primary code.
fn sqlite_code(code: i64) -> TxError {
    match (code & 0xff, code) {
        (5 | 6, _) => TxError::Busy(Busy::Lock),
        (_, 1555 | 2067) => TxError::Constraint,
        (8, _) => TxError::Down(Down::ReadOnly),
        // Only the deadline of a transaction interrupts a statement.
        (9, _) => TxError::Down(Down::Deadline),
        (13, _) => TxError::Down(Down::DiskFull),
        (11 | 26, _) => TxError::Down(Down::Damaged),
        (14 | 3 | 23, _) => TxError::Down(Down::NotAFile),
        _ => TxError::Down(Down::Other(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_errors_become_what_the_caller_does_next() {
        assert_eq!(oceanbase(1205), TxError::Busy(Busy::Lock));
        assert_eq!(oceanbase(4012), TxError::Busy(Busy::Limit));
        assert_eq!(oceanbase(1062), TxError::Constraint);
        assert_eq!(oceanbase(1045), TxError::Down(Down::Access));
        assert_eq!(oceanbase(1049), TxError::Down(Down::NoSuchDatabase));
        assert_eq!(oceanbase(9999), TxError::Down(Down::Other(9999)));
        assert_eq!(sqlite_code(5), TxError::Busy(Busy::Lock));
        assert_eq!(sqlite_code(517), TxError::Busy(Busy::Lock));
        assert_eq!(sqlite_code(2067), TxError::Constraint);
        assert_eq!(sqlite_code(13), TxError::Down(Down::DiskFull));
        assert_eq!(sqlite_code(1032), TxError::Down(Down::ReadOnly));
        assert_eq!(sqlite_code(26), TxError::Down(Down::Damaged));
    }

    #[test]
    fn only_a_busy_transaction_is_run_again() {
        assert!(TxError::Busy(Busy::Lock).is_retryable());
        for error in [
            TxError::Unknown,
            TxError::Constraint,
            TxError::Fenced(FenceLost::Item),
            TxError::Down(Down::Deadline),
        ] {
            assert!(!error.is_retryable(), "{error}");
        }
    }
}
