//! The connections to an OceanBase server that this process keeps open.
//!
//! A pool of our own, because the driver's asks every connection that comes back twice whether it still lives, and waits
//! for the answers for ever: a network that goes silent just then costs a place in the pool for good (ADR 0010). Here a
//! connection comes back only from [`Lent::give_back`], after a transaction that ended cleanly; dropped otherwise it is
//! closed. One that has rested is asked before it is lent again, for a bounded time. When one connection breaks, those
//! that rest are closed too: they go to the same server.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{Connection as _, Executor as _, Row as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::rt;
use crate::store::db::DbLimits;
use crate::store::error::{Busy, Down, TxError, classify};

/// A connection that has rested this long is asked whether it lives before it is lent.
const RESTED: Duration = Duration::from_secs(5);
/// How long it may take to say so.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// How long one try to connect and set a session up may take; in peace it takes 23 ms.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long a farewell may take.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Pauses between tries to connect to a server that refuses.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);
/// A connection is used no longer than this, so that load moves to servers that came later.
const AGE_MAX: Duration = Duration::from_mins(30);
/// A connection that nobody needed so long is closed.
const IDLE_MAX: Duration = Duration::from_mins(10);

const WRONG_SESSION: &str =
    "its session does not keep UTC, read-committed isolation or strong reads; OceanBase 4.3.5 or newer is needed";

/// Why no connection was lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AcquireError {
    /// All are in use, or none could be opened.
    Tx(TxError),
    /// The server is not what this system needs.
    Server(&'static str),
}

impl From<AcquireError> for TxError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Tx(error) => error,
            AcquireError::Server(_) => Self::Down(Down::Access),
        }
    }
}

/// A pool; cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    options: MySqlConnectOptions,
    set_up: String,
    connections_max: u32,
    permits: Arc<Semaphore>,
    resting: Mutex<VecDeque<Resting>>,
}

struct Resting {
    conn: MySqlConnection,
    opened: Instant,
    since: Instant,
    has_short_waits: bool,
}

/// A connection in use. Dropping it closes it without a word: what it had open is rolled back by the server.
pub(crate) struct Lent {
    conn: MySqlConnection,
    opened: Instant,
    pool: Pool,
    permit: OwnedSemaphorePermit,
    /// Whether its session waits for row locks as packets do, shortly.
    has_short_waits: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("connections_max", &self.0.connections_max)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

impl Deref for Lent {
    type Target = MySqlConnection;
    fn deref(&self) -> &MySqlConnection {
        &self.conn
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.conn
    }
}

impl Lent {
    /// Changes how long its session waits for row locks. Answers whether that has to be told to the server.
    pub(crate) fn set_short_waits(&mut self, are_short: bool) -> bool {
        std::mem::replace(&mut self.has_short_waits, are_short) != are_short
    }

    /// Gives it back for the next borrower. Only a connection with nothing open and nothing unread may come here.
    pub(crate) fn give_back(self) {
        let Self {
            conn,
            opened,
            pool,
            permit,
            has_short_waits,
        } = self;
        let now = rt::now();
        if pool.0.permits.is_closed() || now > opened + AGE_MAX {
            return;
        }
        let mut resting = pool.resting();
        while resting.front().is_some_and(|oldest| now > oldest.since + IDLE_MAX) {
            resting.pop_front();
        }
        let since = now;
        resting.push_back(Resting {
            conn,
            opened,
            since,
            has_short_waits,
        });
        drop(resting);
        // Whoever waits for it finds the connection resting.
        drop(permit);
    }
}

impl Pool {
    /// A pool of at most so many connections, each set up with this text. Opens none.
    pub(crate) fn new(options: &MySqlConnectOptions, set_up: String, connections_max: u32) -> Self {
        let options = options.clone();
        Self(Arc::new(Inner {
            options: options.statement_cache_capacity(DbLimits::STATEMENTS_CACHED_MAX),
            set_up,
            connections_max,
            permits: Arc::new(Semaphore::new(connections_max as usize)),
            resting: Mutex::default(),
        }))
    }

    /// Lends a connection, within `wait`.
    ///
    /// # Errors
    /// [`AcquireError`]: all in use, or none could be opened.
    pub(crate) async fn acquire(&self, wait: Duration) -> Result<Lent, AcquireError> {
        let until = rt::now() + wait;
        let permit = match rt::within(wait, Arc::clone(&self.0.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(down()),
            Err(rt::Elapsed) => return Err(AcquireError::Tx(TxError::Busy(Busy::Pool))),
        };
        let (conn, opened, has_short_waits) = match self.rested().await {
            Some(rested) => rested,
            None => (self.connect(until).await?, rt::now(), false),
        };
        let pool = self.clone();
        Ok(Lent {
            conn,
            opened,
            pool,
            permit,
            has_short_waits,
        })
    }

    /// Closes the connections that rest, because one that goes to the same server broke.
    pub(crate) fn distrust(&self) {
        self.resting().clear();
    }

    /// Waits for what is lent and closes everything.
    pub(crate) async fn close(&self, wait: Duration) {
        // What is not back by then is closed when it comes.
        let _ = rt::within(wait, self.0.permits.acquire_many(self.0.connections_max)).await;
        self.0.permits.close();
        let resting = std::mem::take(&mut *self.resting());
        for Resting { conn, .. } in resting {
            // The server also notices by itself that the socket is closed.
            let _ = rt::within(CLOSE_MAX, conn.close()).await;
        }
    }

    fn resting(&self) -> MutexGuard<'_, VecDeque<Resting>> {
        // No code panics between two changes under this lock.
        self.0.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that came back last, if it lives.
    async fn rested(&self) -> Option<(MySqlConnection, Instant, bool)> {
        let newest = self.resting().pop_back();
        let Resting {
            mut conn,
            opened,
            since,
            has_short_waits,
        } = newest?;
        if rt::now() < since + RESTED {
            return Some((conn, opened, has_short_waits));
        }
        // A probe that is late takes its connection with it.
        if let Ok(Ok(())) = rt::within(PROBE_MAX, conn.ping()).await {
            return Some((conn, opened, has_short_waits));
        }
        self.distrust();
        None
    }

    async fn connect(&self, until: Instant) -> Result<MySqlConnection, AcquireError> {
        let mut pause = RETRY_MIN;
        loop {
            let left = until.saturating_duration_since(rt::now());
            let failed = match rt::within(left.min(CONNECT_MAX), self.open()).await {
                Ok(Ok(conn)) => return Ok(conn),
                Ok(Err(error)) => error,
                // The network may be there again for the next try, but it will not answer this one any more.
                Err(rt::Elapsed) if left > CONNECT_MAX => continue,
                Err(rt::Elapsed) => return Err(down()),
            };
            match failed {
                sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                sqlx::Error::Configuration(_) => return Err(AcquireError::Server(WRONG_SESSION)),
                error => return Err(AcquireError::Tx(connect_error(&error))),
            }
            if rt::now() + pause >= until {
                return Err(down());
            }
            rt::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    async fn open(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut conn = MySqlConnection::connect_with(&self.0.options).await?;
        conn.execute(sqlx::AssertSqlSafe(self.0.set_up.clone())).await?;
        check_session(&mut conn).await?;
        Ok(conn)
    }
}

fn down() -> AcquireError {
    AcquireError::Tx(TxError::Down(Down::Connection))
}

fn connect_error(error: &sqlx::Error) -> TxError {
    match classify(error) {
        lasting @ TxError::Down(Down::Access | Down::NoSuchDatabase) => lasting,
        _ => TxError::Down(Down::Connection),
    }
}

/// Proves that the session is what the protocol assumes.
async fn check_session(conn: &mut MySqlConnection) -> Result<(), sqlx::Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_session_prepares_more_statements_than_the_server_takes() {
        let pool = Pool::new(&MySqlConnectOptions::new(), String::new(), 1);
        // The driver shows this number nowhere else.
        let shown = format!("{:?}", pool.0.options);
        assert!(shown.contains(&format!(
            "statement_cache_capacity: {}",
            DbLimits::STATEMENTS_CACHED_MAX
        )));
        const {
            assert!(
                DbLimits::STATEMENTS_CACHED_MAX < 50,
                "the server refuses the 51st of a session"
            );
        };
    }
}
