//! Opening a database: pools, the one set-up of every connection, limits.
//!
//! Every connection is set up by one function. On OceanBase the transaction limit stands well under the lease, because
//! by default the server keeps a frozen client's row locks for a day. On SQLite there is one writing thread; readers see
//! snapshots beside it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use powercontext_core::fence::Fence;
use powercontext_core::time::Span;
use sqlx::mysql::MySqlConnectOptions;

use crate::store::conn::{Conn, Dialect};
use crate::store::error::{Down, TxError};
use crate::store::local::{Local, directory};
use crate::store::names::TxName;
use crate::store::pool::{AcquireError, Pool};
use crate::store::url::DatabaseUrl;
use crate::telemetry::metrics::Metrics;

/// Longest wait for a row lock.
pub(crate) const LOCK_WAIT: Span = Span::seconds(1);
/// Longest single statement.
const STATEMENT: Span = Span::seconds(5);
/// How long a transaction waits for a free connection, or on SQLite for the thread that runs it.
pub(crate) const ACQUIRE_WAIT: Span = Span::seconds(5);

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

    /// After this time a transaction and its connection are destroyed, however often it was run by then: waiting for a
    /// connection, the server's own limits, and a margin for the reply.
    pub fn deadline(&self) -> Duration {
        ACQUIRE_WAIT.as_std() + self.transaction.as_std().max(STATEMENT.as_std()) + Duration::from_secs(1)
    }
}

#[derive(Debug)]
enum Pools {
    /// `heartbeats` holds one connection that nothing but heartbeats uses: a full pool must not cost a lease.
    OceanBase {
        pool: Pool,
        heartbeats: Pool,
    },
    Sqlite(Local),
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
            Pools::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// What the server says it is; empty on SQLite.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn server_version(&self) -> Result<String, TxError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(String::new());
        }
        let version = self.read(TxName::Ping, |tx| {
            Box::pin(async move {
                let sql = "-- server.version\nSELECT CAST(VERSION() AS BINARY) AS version";
                tx.fetch_one(sql, &[]).await?.id("version")
            })
        });
        version.await
    }

    /// After this time a transaction of unknown outcome is over: committed, or rolled back by the server.
    pub(crate) fn settled_after(&self) -> Duration {
        self.limits().transaction.as_std() + Duration::from_secs(1)
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
                pool.close(self.limits().deadline()).await;
                heartbeats.close(self.limits().deadline()).await;
            }
            Pools::Sqlite(local) => local.close(self.limits().deadline()).await,
        }
    }

    /// The file, on SQLite.
    pub(crate) fn local(&self) -> Option<&Local> {
        match &self.0.pools {
            Pools::OceanBase { .. } => None,
            Pools::Sqlite(local) => Some(local),
        }
    }

    /// A connection to OceanBase for a transaction of this name.
    pub(crate) async fn acquire(&self, name: TxName) -> Result<Conn, TxError> {
        match &self.0.pools {
            Pools::OceanBase { pool, heartbeats } => {
                let pool = if name == TxName::Heartbeat { heartbeats } else { pool };
                Ok(Conn::OceanBase(pool.acquire(ACQUIRE_WAIT.as_std()).await?))
            }
            Pools::Sqlite(_) => Err(TxError::Down(Down::Connection)),
        }
    }

    /// A connection broke: those that rest go to the same server and are not trusted either.
    pub(crate) fn distrust(&self) {
        if let Pools::OceanBase { pool, heartbeats } = &self.0.pools {
            pool.distrust();
            heartbeats.distrust();
        }
    }
}

async fn open_oceanbase(options: &MySqlConnectOptions, limits: DbLimits) -> Result<Pools, OpenError> {
    let set_up = session_set_up(limits);
    let pool = Pool::new(options, set_up.clone(), limits.connections_max.max(2));
    let heartbeats = Pool::new(options, set_up, 1);
    let first = pool.acquire(ACQUIRE_WAIT.as_std()).await.map_err(|error| match error {
        AcquireError::Server(what) => OpenError::Server(what),
        AcquireError::Tx(error) => OpenError::Database(error),
    })?;
    first.give_back();
    Ok(Pools::OceanBase { pool, heartbeats })
}

/// One text that sets a session up; integers only.
///
/// No sampling: where a table has no statistics yet, or grew since, the optimizer would read of its rows before it makes the first plan
/// of each text, for longer the larger the table. Plans follow indexes and hints here, not what the rows hold.
fn session_set_up(limits: DbLimits) -> String {
    let micros = |span: Span| span.as_millis() * 1000;
    format!(
        "SET time_zone = '+00:00', transaction_isolation = 'READ-COMMITTED', ob_read_consistency = 'STRONG', \
         optimizer_dynamic_sampling = 0, \
         ob_query_timeout = {}, ob_trx_timeout = {}, ob_trx_lock_timeout = {}, autocommit = 1",
        micros(STATEMENT),
        micros(limits.transaction),
        micros(LOCK_WAIT),
    )
}

async fn open_sqlite(path: PathBuf) -> Result<Pools, OpenError> {
    if let Some(directory) = directory(&path) {
        std::fs::create_dir_all(directory).map_err(|_| OpenError::Directory)?;
    }
    Ok(Pools::Sqlite(Local::open(path).await?))
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
