//! One connection to a SQLite file: how it is set up, how it binds, and what it answers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use powercontext_core::time::DbTime;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OpenFlags, ToSql};
use tokio::time::Instant;

use crate::rt;
use crate::store::conn::Value;
use crate::store::error::{TxError, sqlite};

/// How long SQLite waits for a lock of another process on the file.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Statements kept prepared: more than there are texts.
const STATEMENTS_MAX: usize = 256;
/// Steps of SQLite's machine between two looks at the clock: about a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 50_000;

/// One set-up for all. A commit is on the disk when it is answered.
const SET_UP: &str =
    "PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA journal_mode = WAL";
/// Most memory for pages, in KiB: what a batch of transactions touches, and no more. The log is brought into the file every
/// 4,000 pages, 16 MB: pages that are written again and again meanwhile go there once.
const WRITER_SET_UP: &str = "PRAGMA cache_size = -8192; PRAGMA wal_autocheckpoint = 4000";
const READER_SET_UP: &str = "PRAGMA query_only = ON";

/// A connection; one thread uses it at a time.
#[derive(Debug)]
pub(crate) struct Session {
    conn: Connection,
    /// Names of the columns of each text that has been read, by the text's place in the program.
    columns: HashMap<usize, Arc<[String]>>,
    limit: Arc<Limit>,
}

/// When the statement that runs is to be stopped.
#[derive(Debug)]
struct Limit {
    base: Instant,
    /// Milliseconds after `base`; the largest number is never.
    at_ms: AtomicU64,
}

impl Limit {
    fn has_passed(&self) -> bool {
        let at = self.at_ms.load(Ordering::Relaxed);
        at != u64::MAX && u128::from(at) <= self.base.elapsed().as_millis()
    }
}

/// One row of an answer.
#[derive(Debug)]
pub struct SqliteRow {
    columns: Arc<[String]>,
    cells: Vec<Cell>,
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
    /// Bytes, or a text that is none.
    Bytes(Vec<u8>),
}

impl SqliteRow {
    /// The value of a column; `None` when there is no such column.
    pub(crate) fn cell(&self, column: &str) -> Option<&Cell> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.cells.get(at)
    }
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(n) => Self::Int(n),
            ValueRef::Real(x) => Self::Float(x),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Bytes(bytes.to_vec()),
            },
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec()),
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Int(n) => n.map(ValueRef::Integer),
            Self::Id(text) | Self::Text(text) => text.map(|text| ValueRef::Text(text.as_bytes())),
            Self::Blob(bytes) => bytes.map(ValueRef::Blob),
            Self::Time(time) => time.map(|time| ValueRef::Integer(DbTime::micros(time))),
        };
        Ok(ToSqlOutput::Borrowed(value.unwrap_or(ValueRef::Null)))
    }
}

impl Session {
    /// A connection that may write and makes the file where it is missing.
    ///
    /// # Errors
    /// [`TxError`] of the file.
    pub(crate) fn writing(path: &Path) -> Result<Box<Self>, TxError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::open(path, flags, WRITER_SET_UP)
    }

    /// A connection that only reads a file that is there.
    ///
    /// # Errors
    /// [`TxError`] of the file.
    pub(crate) fn reading(path: &Path) -> Result<Box<Self>, TxError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::open(path, flags, READER_SET_UP)
    }

    fn open(path: &Path, flags: OpenFlags, set_up: &str) -> Result<Box<Self>, TxError> {
        let open = || {
            let conn = Connection::open_with_flags(path, flags)?;
            conn.busy_timeout(BUSY_WAIT)?;
            conn.execute_batch(SET_UP)?;
            conn.execute_batch(set_up)?;
            // Texts that are kept are planned once, never again because of what is bound to them.
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
            let limit = Arc::new(Limit {
                base: rt::now(),
                at_ms: AtomicU64::new(u64::MAX),
            });
            let looked_at = Arc::clone(&limit);
            conn.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || looked_at.has_passed()))?;
            let columns = HashMap::new();
            Ok(Box::new(Self { conn, columns, limit }))
        };
        open().map_err(|error| sqlite(&error))
    }

    /// From this moment on a statement that runs is stopped; `None` for never.
    pub(crate) fn stop_at(&self, at: Option<Instant>) {
        let ms = at.map(|at| at.saturating_duration_since(self.limit.base).as_millis());
        let ms = ms.map_or(u64::MAX, |ms| u64::try_from(ms).unwrap_or(u64::MAX));
        self.limit.at_ms.store(ms, Ordering::Relaxed);
    }

    /// Whether no transaction is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.conn.is_autocommit()
    }

    /// Runs a text without parameters.
    pub(crate) fn raw(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.execute_batch(sql)
    }

    /// Runs a text without parameters that is kept prepared.
    pub(crate) fn call(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.raw_execute().map(|_| ())
    }

    /// Runs a write and answers how many rows it touched.
    pub(crate) fn execute(&self, sql: &'static str, args: &[Value<'_>]) -> rusqlite::Result<u64> {
        let mut statement = self.bound(sql, args)?;
        statement.raw_execute().map(|touched| touched as u64)
    }

    /// Runs a read and answers its rows.
    pub(crate) fn fetch(&mut self, sql: &'static str, args: &[Value<'_>]) -> rusqlite::Result<Vec<SqliteRow>> {
        let place = sql.as_ptr() as usize;
        let known = self.columns.get(&place).cloned();
        let mut statement = self.bound(sql, args)?;
        let columns = known.clone().unwrap_or_else(|| {
            let names = statement.column_names();
            names.into_iter().map(str::to_owned).collect()
        });
        let (mut answer, mut rows) = (Vec::new(), statement.raw_query());
        while let Some(row) = rows.next()? {
            let cells = (0..columns.len()).map(|at| Ok(row.get_ref(at)?.into()));
            let cells = cells.collect::<rusqlite::Result<Vec<Cell>>>()?;
            let columns = Arc::clone(&columns);
            answer.push(SqliteRow { columns, cells });
        }
        drop(rows);
        drop(statement);
        if known.is_none() {
            self.columns.insert(place, columns);
        }
        Ok(answer)
    }

    fn bound(&self, sql: &str, args: &[Value<'_>]) -> rusqlite::Result<CachedStatement<'_>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        // One list of arguments serves the texts of both engines, and this text may name fewer of them.
        let named = statement.parameter_count();
        for (at, value) in (1..).zip(args.iter().take(named)) {
            statement.raw_bind_parameter(at, value)?;
        }
        Ok(statement)
    }
}
