//! The driver: one connection, one row and one parameter type over the two engines.
//!
//! Aggregates bind and decode once, here in Rust, and differ between engines only in their SQL text (ADR 0007). What the
//! engines spell differently is decided here and in [`local`](crate::store::local): ids are bytes on OceanBase and text on
//! SQLite (I: byte-exact ids), times are `DATETIME(6)` there and microseconds here.

use chrono::{DateTime, NaiveDateTime};
use futures_util::{Stream, StreamExt as _};
use powercontext_core::time::DbTime;
use sqlx::mysql::{MySqlArguments, MySqlQueryResult, MySqlRow};
use sqlx::query::Query;
use sqlx::{Decode, Either, MySql, Row as _, Type};

use crate::store::error::{Corrupt, DriverError, TxError};
use crate::store::local::{Cell, Session, SqliteRow};
use crate::store::packet::Answer;
use crate::store::pool::Lent;

/// The SQL dialect that a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// OceanBase in MySQL mode, 4.3.5 or newer.
    OceanBase,
    /// SQLite 3.38 or newer.
    Sqlite,
}

/// One parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A whole number.
    Int(Option<i64>),
    /// An id, key, name or code: bytes on OceanBase, text on SQLite.
    Id(Option<&'a str>),
    /// Text that a full-text index reads.
    Text(Option<&'a str>),
    /// Bytes.
    Blob(Option<&'a [u8]>),
    /// A moment of database time.
    Time(Option<DbTime>),
}

impl Value<'_> {
    /// A count or position. Saturates at `i64::MAX`, which no counter reaches.
    pub fn count(n: u64) -> Self {
        Self::Int(Some(i64::try_from(n).unwrap_or(i64::MAX)))
    }
}

impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Self::Int(Some(n))
    }
}

impl From<u32> for Value<'_> {
    fn from(n: u32) -> Self {
        Self::Int(Some(i64::from(n)))
    }
}

impl From<u64> for Value<'_> {
    fn from(n: u64) -> Self {
        Self::count(n)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Int(Some(i64::from(flag)))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(id: &'a str) -> Self {
        Self::Id(Some(id))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(id: &'a String) -> Self {
        Self::Id(Some(id))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(id: Option<&'a str>) -> Self {
        Self::Id(id)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Blob(Some(bytes))
    }
}

impl From<DbTime> for Value<'_> {
    fn from(time: DbTime) -> Self {
        Self::Time(Some(time))
    }
}

impl From<Option<DbTime>> for Value<'_> {
    fn from(time: Option<DbTime>) -> Self {
        Self::Time(time)
    }
}

/// Turns a list of expressions into statement parameters: `values![work.as_str(), 3_u32, now]`.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::store::conn::Value::from($value)),*] };
}
pub(crate) use values;

/// A connection of either engine: to OceanBase from the pool, to SQLite of the thread that runs the transaction.
#[derive(Debug)]
pub(crate) enum Conn {
    OceanBase(Lent),
    Sqlite(Box<Session>),
}

/// One row of an answer; columns are read by name.
#[derive(Debug)]
pub enum Row {
    /// From OceanBase.
    OceanBase(MySqlRow),
    /// From SQLite.
    Sqlite(SqliteRow),
}

fn naive(time: DbTime) -> NaiveDateTime {
    DateTime::from_timestamp_micros(time.micros())
        .unwrap_or(DateTime::UNIX_EPOCH)
        .naive_utc()
}

fn bind_mysql<'q>(query: Query<'q, MySql, MySqlArguments>, value: &'q Value<'q>) -> Query<'q, MySql, MySqlArguments> {
    match value {
        Value::Int(n) => query.bind(*n),
        // As a text: OceanBase takes a parameter of bytes for a LOB, and compares a key with a LOB by reading the whole table.
        Value::Id(id) => query.bind(*id),
        Value::Text(text) => query.bind(*text),
        Value::Blob(bytes) => query.bind(*bytes),
        Value::Time(time) => query.bind(time.map(naive)),
    }
}

impl Conn {
    /// Runs a prepared statement and answers the number of rows it touched.
    pub(crate) async fn execute(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<u64, DriverError> {
        match self {
            Self::OceanBase(conn) => {
                let query = args.iter().fold(sqlx::query(sql), bind_mysql);
                Ok(query.execute(&mut **conn).await?.rows_affected())
            }
            Self::Sqlite(session) => Ok(session.execute(sql, args)?),
        }
    }

    /// Runs a prepared statement and answers its rows. Every text names its own bound (`LIMIT`, a key, a page).
    pub(crate) async fn fetch(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Vec<Row>, DriverError> {
        match self {
            Self::OceanBase(conn) => {
                let query = args.iter().fold(sqlx::query(sql), bind_mysql);
                let rows = query.fetch_all(&mut **conn).await?;
                Ok(rows.into_iter().map(Row::OceanBase).collect())
            }
            Self::Sqlite(session) => Ok(session.fetch(sql, args)?.into_iter().map(Row::Sqlite).collect()),
        }
    }

    /// Sends several statements in one text. An error tells how many of them were answered before it. OceanBase only: on
    /// SQLite a statement costs no round trip.
    pub(crate) async fn packet(&mut self, text: String) -> Result<Vec<Answer>, (usize, DriverError)> {
        match self {
            Self::OceanBase(conn) => {
                let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(text));
                answers(
                    sql.fetch_many(&mut **conn),
                    MySqlQueryResult::rows_affected,
                    Row::OceanBase,
                )
                .await
            }
            Self::Sqlite(_) => Err((0, rusqlite::Error::InvalidQuery.into())),
        }
    }

    /// Sends a text without parameters that cannot or need not be prepared: `BEGIN`, `COMMIT`, `SET`, DDL.
    pub(crate) async fn raw(&mut self, sql: &'static str) -> Result<(), DriverError> {
        match self {
            Self::OceanBase(conn) => Ok(sqlx::raw_sql(sql).execute(&mut **conn).await.map(|_| ())?),
            Self::Sqlite(session) => Ok(session.raw(sql)?),
        }
    }

    /// Changes how long the session waits for row locks. Answers whether the server has to be told; SQLite has none.
    pub(crate) fn set_short_waits(&mut self, are_short: bool) -> bool {
        match self {
            Self::OceanBase(conn) => conn.set_short_waits(are_short),
            Self::Sqlite(_) => false,
        }
    }

    /// Hands the connection to the next borrower. Only one whose transaction ended cleanly may go this way.
    pub(crate) fn give_back(self) {
        match self {
            Self::OceanBase(conn) => conn.give_back(),
            // A session belongs to its thread; one that is left here is closed.
            Self::Sqlite(session) => drop(session),
        }
    }

    /// Closes the connection at once, without a word to the server: what it had open is rolled back there.
    pub(crate) fn destroy(self) {
        match self {
            Self::OceanBase(conn) => drop(conn),
            Self::Sqlite(session) => drop(session),
        }
    }
}

/// Puts the rows of a packet's answers to the statements that they belong to.
async fn answers<D, R>(
    mut stream: impl Stream<Item = Result<Either<D, R>, sqlx::Error>> + Unpin,
    touched: impl Fn(&D) -> u64,
    row: impl Fn(R) -> Row,
) -> Result<Vec<Answer>, (usize, DriverError)> {
    let (mut answers, mut rows) = (Vec::new(), Vec::new());
    while let Some(next) = stream.next().await {
        match next {
            Ok(Either::Right(read)) => rows.push(row(read)),
            Ok(Either::Left(done)) => answers.push(Answer {
                touched: touched(&done),
                rows: std::mem::take(&mut rows),
            }),
            Err(error) => return Err((answers.len(), error.into())),
        }
    }
    Ok(answers)
}

fn corrupt(column: &'static str) -> TxError {
    TxError::Corrupt(Corrupt { what: column })
}

impl Row {
    fn mysql<T>(row: &MySqlRow, column: &'static str) -> Result<Option<T>, TxError>
    where
        T: for<'r> Decode<'r, MySql> + Type<MySql>,
    {
        row.try_get(column).map_err(|_| corrupt(column))
    }

    fn sqlite<'r>(row: &'r SqliteRow, column: &'static str) -> Result<&'r Cell, TxError> {
        row.cell(column).ok_or_else(|| corrupt(column))
    }

    /// A whole number.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column when it is absent, NULL or of another type.
    pub fn int(&self, column: &'static str) -> Result<i64, TxError> {
        self.opt_int(column)?.ok_or_else(|| corrupt(column))
    }

    /// A whole number or NULL.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn opt_int(&self, column: &'static str) -> Result<Option<i64>, TxError> {
        match self {
            Self::OceanBase(row) => Self::mysql(row, column),
            Self::Sqlite(row) => match Self::sqlite(row, column)? {
                Cell::Null => Ok(None),
                Cell::Int(n) => Ok(Some(*n)),
                _ => Err(corrupt(column)),
            },
        }
    }

    /// A number that is never negative.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn count(&self, column: &'static str) -> Result<u64, TxError> {
        u64::try_from(self.int(column)?).map_err(|_| corrupt(column))
    }

    /// A number that is never negative, or NULL.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn opt_count(&self, column: &'static str) -> Result<Option<u64>, TxError> {
        self.opt_int(column)?
            .map(|n| u64::try_from(n).map_err(|_| corrupt(column)))
            .transpose()
    }

    /// A small number that is never negative.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn small(&self, column: &'static str) -> Result<u32, TxError> {
        u32::try_from(self.int(column)?).map_err(|_| corrupt(column))
    }

    /// A number with a fraction.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn float(&self, column: &'static str) -> Result<f64, TxError> {
        match self {
            Self::OceanBase(row) => Self::mysql(row, column)?.ok_or_else(|| corrupt(column)),
            Self::Sqlite(row) => match Self::sqlite(row, column)? {
                Cell::Float(x) => Ok(*x),
                _ => Err(corrupt(column)),
            },
        }
    }

    /// An id, key, name or code.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn id(&self, column: &'static str) -> Result<String, TxError> {
        self.opt_id(column)?.ok_or_else(|| corrupt(column))
    }

    /// An id, key, name or code, or NULL.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn opt_id(&self, column: &'static str) -> Result<Option<String>, TxError> {
        match self {
            Self::OceanBase(row) => {
                let bytes: Option<Vec<u8>> = Self::mysql(row, column)?;
                bytes
                    .map(|b| String::from_utf8(b).map_err(|_| corrupt(column)))
                    .transpose()
            }
            Self::Sqlite(row) => match Self::sqlite(row, column)? {
                Cell::Null => Ok(None),
                Cell::Text(text) => Ok(Some(text.clone())),
                _ => Err(corrupt(column)),
            },
        }
    }

    /// Bytes.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn blob(&self, column: &'static str) -> Result<Vec<u8>, TxError> {
        self.opt_blob(column)?.ok_or_else(|| corrupt(column))
    }

    /// Bytes or NULL.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn opt_blob(&self, column: &'static str) -> Result<Option<Vec<u8>>, TxError> {
        match self {
            Self::OceanBase(row) => Self::mysql(row, column),
            Self::Sqlite(row) => match Self::sqlite(row, column)? {
                Cell::Null => Ok(None),
                Cell::Bytes(bytes) => Ok(Some(bytes.clone())),
                _ => Err(corrupt(column)),
            },
        }
    }

    /// A moment of database time.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn time(&self, column: &'static str) -> Result<DbTime, TxError> {
        self.opt_time(column)?.ok_or_else(|| corrupt(column))
    }

    /// A moment of database time or NULL.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column.
    pub fn opt_time(&self, column: &'static str) -> Result<Option<DbTime>, TxError> {
        match self {
            Self::OceanBase(row) => {
                let time: Option<NaiveDateTime> = Self::mysql(row, column)?;
                Ok(time.map(|t| DbTime::from_micros(t.and_utc().timestamp_micros())))
            }
            Self::Sqlite(_) => Ok(self.opt_int(column)?.map(DbTime::from_micros)),
        }
    }

    /// Reads a column and lets `parse` judge it.
    ///
    /// # Errors
    /// [`TxError::Corrupt`] naming the column when `parse` refuses the text.
    pub fn parsed<T, E>(&self, column: &'static str, parse: impl FnOnce(String) -> Result<T, E>) -> Result<T, TxError> {
        parse(self.id(column)?).map_err(|_| corrupt(column))
    }
}
