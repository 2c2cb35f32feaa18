//! Opening a database: pools, the one set-up of every connection, limits.
//!
//! Every connection is set up by one function. On OceanBase the transaction limit stands well under the lease, because
//! by default the server keeps a frozen client's row locks for a day. On SQLite there is one writing connection;
//! readers see snapshots beside it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use powercontext_core::fence::Fence;
use powercontext_core::time::Span;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor as _, Row as _};

use crate::store::conn::{Conn, Dialect};
use crate::store::error::{Busy, TxError};
use crate::store::names::TxName;
use crate::store::tx::acquire_error;
use crate::store::url::DatabaseUrl;
use crate::telemetry::metrics::Metrics;

/// Longest wait for a row lock.
const LOCK_WAIT: Span = Span::seconds(1);
/// Longest single statement.
const STATEMENT: Span = Span::seconds(5);
/// How long SQLite waits for a lock of another process on the file.
const SQLITE_BUSY_WAIT: Span = Span::seconds(5);
/// How long a transaction waits for a free connection.
const ACQUIRE_WAIT: Span = Span::seconds(5);
/// Connections that read a SQLite file beside its one writer.
const SQLITE_READERS: u32 = 4;

/// Limits of connections and transactions.
#[derive(Debug, Clone, Copy)]
pub struct DbLimits {
    /// Largest number of connections to OceanBase, at least 2.
    pub connections_max: u32,
    /// Longest transaction on the server: a third of the work lease, 2 s to 10 s.
    pub transaction: Span,
}

impl DbLimits {
    /// Most statements that a connection to OceanBase keeps prepared. The server refuses the 51st of a session
    /// (`open_cursors`, error 5930); this leaves room for the one that is replaced and for text statements.
    pub const STATEMENTS_CACHED_MAX: usize = 40;

    /// Limits for a work lease of this length.
    pub fn for_lease(lease: Span, connections_max: u32) -> Self {
        let third = (lease.as_millis() / 3).clamp(2000, 10_000);
        Self {
            connections_max,
            transaction: Span::millis(third),
        }
    }

    /// After this time a transaction and its connection are destroyed: waiting for a connection, the server's own
    /// limits, and a margin for the reply.
    pub fn deadline(&self) -> Duration {
        ACQUIRE_WAIT.as_std() + self.transaction.as_std().max(STATEMENT.as_std()) + Duration::from_secs(1)
    }
}

#[derive(Debug)]
enum Pools {
    /// `heartbeats` holds one connection that nothing but heartbeats uses: a full pool must not cost a lease.
    OceanBase {
        pool: MySqlPool,
        heartbeats: MySqlPool,
    },
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
}

struct Inner {
    pools: Pools,
    limits: DbLimits,
    term: OnceLock<Fence>,
    metrics: OnceLock<Arc<Metrics>>,
}

/// A database; cheap to clone.
#[derive(Clone)]
pub struct Db(Arc<Inner>);

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db")
            .field("dialect", &self.dialect())
            .finish_non_exhaustive()
    }
}

/// A database that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The engine's answer.
    #[error(transparent)]
    Database(#[from] TxError),
    /// The server is not what this system needs.
    #[error("the database server is not usable: {0}")]
    Server(&'static str),
    /// The directory of the file cannot be made.
    #[error("the directory of the database file cannot be made")]
    Directory,
}

impl Db {
    /// Opens a database and proves the set-up of its connections.
    ///
    /// # Errors
    /// [`OpenError`] when the server or file cannot be used as it must be.
    pub async fn open(url: &DatabaseUrl, limits: DbLimits) -> Result<Self, OpenError> {
        let pools = match url {
            DatabaseUrl::OceanBase(options) => open_oceanbase(options, limits).await?,
            DatabaseUrl::Sqlite(path) => open_sqlite(path.clone()).await?,
        };
        Ok(Self(Arc::new(Inner {
            pools,
            limits,
            term: OnceLock::new(),
            metrics: OnceLock::new(),
        })))
    }

    /// The dialect of this database.
    pub fn dialect(&self) -> Dialect {
        match self.0.pools {
            Pools::OceanBase { .. } => Dialect::OceanBase,
            Pools::Sqlite { .. } => Dialect::Sqlite,
        }
    }

    pub(crate) fn limits(&self) -> DbLimits {
        self.0.limits
    }

    /// The term that this process raised at start, on SQLite; every write checks it.
    pub(crate) fn term(&self) -> Option<Fence> {
        self.0.term.get().copied()
    }

    /// From now on every write proves this term. Set once, by the owner of a SQLite file.
    pub fn set_term(&self, term: Fence) {
        // A second call would mean two owners in one process; the first keeps its term and the second is refused by it.
        let _ = self.0.term.set(term);
    }

    /// From now on committed work is counted here. Set once, at start.
    pub fn count_in(&self, metrics: Arc<Metrics>) {
        // A second registry would count half of the work; the first stays.
        let _ = self.0.metrics.set(metrics);
    }

    pub(crate) fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.0.metrics.get()
    }

    /// Waits for the open connections to come back and closes them.
    pub async fn close(&self) {
        match &self.0.pools {
            Pools::OceanBase { pool, heartbeats } => {
                pool.close().await;
                heartbeats.close().await;
            }
            Pools::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
        }
    }

    pub(crate) async fn acquire_writer(&self, name: TxName) -> Result<Conn, TxError> {
        match &self.0.pools {
            Pools::OceanBase { heartbeats, .. } if name == TxName::Heartbeat => {
                acquire(heartbeats, Dialect::OceanBase).await.map(Conn::OceanBase)
            }
            Pools::OceanBase { pool, .. } => acquire(pool, Dialect::OceanBase).await.map(Conn::OceanBase),
            Pools::Sqlite { writer, .. } => acquire(writer, Dialect::Sqlite).await.map(Conn::Sqlite),
        }
    }

    pub(crate) async fn acquire_reader(&self) -> Result<Conn, TxError> {
        match &self.0.pools {
            Pools::OceanBase { pool, .. } => acquire(pool, Dialect::OceanBase).await.map(Conn::OceanBase),
            Pools::Sqlite { readers, .. } => acquire(readers, Dialect::Sqlite).await.map(Conn::Sqlite),
        }
    }
}

async fn acquire<D: sqlx::Database>(
    pool: &sqlx::Pool<D>,
    dialect: Dialect,
) -> Result<sqlx::pool::PoolConnection<D>, TxError> {
    pool.acquire()
        .await
        .map_err(|error| match acquire_error(dialect, &error) {
            TxError::Busy(_) => TxError::Busy(Busy::Pool),
            other => other,
        })
}

async fn open_oceanbase(options: &MySqlConnectOptions, limits: DbLimits) -> Result<Pools, OpenError> {
    let pool = oceanbase_pool(options, limits, limits.connections_max.max(2));
    let heartbeats = oceanbase_pool(options, limits, 1);
    drop(pool.acquire().await.map_err(|error| match &error {
        sqlx::Error::Configuration(_) => OpenError::Server(WRONG_SESSION),
        error => OpenError::Database(acquire_error(Dialect::OceanBase, error)),
    })?);
    Ok(Pools::OceanBase { pool, heartbeats })
}

fn oceanbase_pool(options: &MySqlConnectOptions, limits: DbLimits, connections: u32) -> MySqlPool {
    let set_up = session_set_up(limits);
    MySqlPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_WAIT.as_std())
        .test_before_acquire(false)
        .after_connect(move |conn, _| {
            let set_up = set_up.clone();
            Box::pin(async move {
                conn.execute(sqlx::AssertSqlSafe(set_up)).await?;
                check_session(conn).await
            })
        })
        .after_release(|conn, _| {
            // Whatever a borrower left open ends here, before anybody else's statements run in it.
            Box::pin(async move { conn.execute("ROLLBACK").await.map(|_| true) })
        })
        .connect_lazy_with(options.clone())
}

const WRONG_SESSION: &str =
    "its session does not keep UTC, read-committed isolation or strong reads; OceanBase 4.3.5 or newer is needed";

/// One text that sets a session up; integers only.
fn session_set_up(limits: DbLimits) -> String {
    let micros = |span: Span| span.as_millis() * 1000;
    format!(
        "SET time_zone = '+00:00', transaction_isolation = 'READ-COMMITTED', ob_read_consistency = 'STRONG', \
         ob_query_timeout = {}, ob_trx_timeout = {}, ob_trx_lock_timeout = {}, autocommit = 1",
        micros(STATEMENT),
        micros(limits.transaction),
        micros(LOCK_WAIT),
    )
}

/// Proves that the session is what the protocol assumes.
async fn check_session(conn: &mut sqlx::MySqlConnection) -> Result<(), sqlx::Error> {
    let sql = "-- session.check\nSELECT CAST(@@time_zone AS CHAR) AS zone, CAST(@@transaction_isolation AS CHAR) AS isolation, \
               CAST(@@ob_read_consistency AS CHAR) AS consistency";
    let row = sqlx::query(sql).fetch_one(conn).await?;
    let text = |column: &str| row.try_get::<String, _>(column).map(|t| t.to_uppercase());
    let good = text("zone")? == "+00:00"
        && text("isolation")? == "READ-COMMITTED"
        && matches!(text("consistency")?.as_str(), "STRONG" | "3");
    if good {
        Ok(())
    } else {
        Err(sqlx::Error::Configuration(WRONG_SESSION.into()))
    }
}

async fn open_sqlite(path: PathBuf) -> Result<Pools, OpenError> {
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|_| OpenError::Directory)?;
    }
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(SQLITE_BUSY_WAIT.as_std());
    let pool = |connections| {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_WAIT.as_std())
    };
    let fail = |error: sqlx::Error| OpenError::Database(acquire_error(Dialect::Sqlite, &error));
    let writer = pool(1).connect_with(options.clone()).await.map_err(fail)?;
    let readers = pool(SQLITE_READERS).connect_lazy_with(options.create_if_missing(false));
    Ok(Pools::Sqlite { writer, readers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transaction_limit_is_a_third_of_the_lease_within_two_and_ten_seconds() {
        for (lease, transaction) in [(3, 2000), (4, 2000), (12, 4000), (30, 10_000), (120, 10_000)] {
            let limits = DbLimits::for_lease(Span::seconds(lease), 8);
            assert_eq!(limits.transaction, Span::millis(transaction), "lease {lease} s");
        }
    }
}
