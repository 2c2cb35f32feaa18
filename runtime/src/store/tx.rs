//! `Db::tx`: the only door to the database (ADR 0004).
//!
//! A transaction runs on a task of its own, so a dropped request cannot abandon an open `BEGIN` and take the next
//! borrower's acknowledged write with it. It has a deadline, after which its future and its connection are destroyed
//! together. A connection whose transaction ended in any way but a clean commit or rollback is never reused. A commit
//! whose reply was lost is [`TxError::Unknown`], never a failure. On SQLite the task hands the body to the file's thread
//! ([`local`](crate::store::local)) and waits for it under the same deadline.

mod doors;
mod packets;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use powercontext_core::fence::Fence;
use powercontext_core::time::DbTime;
use tokio::time::Instant;

use crate::rt;
use crate::store::conn::{Conn, Dialect, Row, Value};
use crate::store::db::{ACQUIRE_WAIT, Db};
use crate::store::error::{Down, DriverError, FenceLost, TxError};
use crate::store::local::{Call, Failure, Local, Session};
use crate::store::locks::{LockKind, LockOrder};
use crate::store::names::TxName;
use crate::store::notes::{self, Note};

/// What a transaction's closure returns.
pub type TxFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, TxError>> + Send + 't>>;

/// A transaction's body as a plain function of the transaction and its input.
pub type Body<I, T> = for<'a> fn(&'a mut Tx, &'a I) -> TxFuture<'a, T>;

/// How often a busy transaction is run in all.
const RUNS_MAX: u32 = 5;
/// After this time a busy transaction is not run again: clients that wait for it give up at ten seconds, and a file that
/// another program has kept locked for so long will not be free in a moment.
const RUN_AGAIN_WITHIN: Duration = Duration::from_secs(5);

/// After what a transaction is run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// After a busy run, and after one whose connection broke before COMMIT was sent.
    BusyOrBroken,
    /// Only after one whose connection broke.
    Broken,
}

/// How far one run of a transaction has come, seen from outside of its future.
#[derive(Debug, Default)]
struct Progress {
    acquired: AtomicBool,
    commit_sent: AtomicBool,
}

impl Progress {
    /// Whether the same transaction may help when it is run again. A connection that broke before COMMIT was sent has
    /// written nothing; a wait for a connection that was in vain has cost its time already.
    fn may_run_again(&self, error: &TxError, after: Again) -> bool {
        let broke = *error == TxError::Down(Down::Connection);
        let busy = error.is_retryable() && after == Again::BusyOrBroken;
        (busy || broke) && self.acquired.load(Ordering::Acquire)
    }
}

/// An open transaction.
#[derive(Debug)]
pub struct Tx {
    conn: Option<Conn>,
    dialect: Dialect,
    now: Option<DbTime>,
    locks: LockOrder,
    notes: Vec<Note>,
    progress: Arc<Progress>,
    /// Whether BEGIN still has to go out, before or with the next statement.
    begins: bool,
    /// What goes out with the next statement.
    waiting: packets::Writes,
    /// What goes out together with COMMIT.
    last: Option<packets::Writes>,
}

impl Drop for Tx {
    fn drop(&mut self) {
        // Still here: neither committed nor rolled back. The connection must not live on in that state.
        if let Some(conn) = self.conn.take() {
            conn.destroy();
        }
    }
}

impl Tx {
    /// A transaction that is open on this connection.
    pub(crate) fn on(conn: Conn) -> Self {
        let dialect = match conn {
            Conn::OceanBase(_) => Dialect::OceanBase,
            Conn::Sqlite(_) => Dialect::Sqlite,
        };
        Self {
            conn: Some(conn),
            dialect,
            now: None,
            locks: LockOrder::default(),
            notes: Vec::new(),
            progress: Arc::default(),
            begins: false,
            waiting: packets::Writes::default(),
            last: None,
        }
    }

    /// The session of the thread that ran it, and what to count once it is committed.
    pub(crate) fn into_session(mut self) -> (Option<Box<Session>>, Vec<Note>) {
        let notes = std::mem::take(&mut self.notes);
        match self.conn.take() {
            Some(Conn::Sqlite(session)) => (Some(session), notes),
            _ => (None, notes),
        }
    }

    fn conn(&mut self) -> &mut Conn {
        self.conn
            .as_mut()
            .expect("the connection leaves only when the transaction ends")
    }

    /// The dialect in use.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Database time, read once per transaction.
    ///
    /// # Errors
    /// [`TxError`] when the database does not answer.
    pub async fn now(&mut self) -> Result<DbTime, TxError> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        let sql = match self.dialect {
            Dialect::OceanBase => "-- clock.now\nSELECT UTC_TIMESTAMP(6) AS now",
            Dialect::Sqlite => "-- clock.now\nSELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now",
        };
        let now = self.fetch_one(sql, &[]).await?.time("now")?;
        self.now = Some(now);
        Ok(now)
    }

    /// Notes that the next statement locks a row, and checks the order in debug builds (design, "Lock order").
    pub(crate) fn locks(&mut self, kind: LockKind, key: &str) {
        self.locks.take(kind, key);
    }

    /// Notes that the next statement locks a row unless somebody else has it.
    pub(crate) fn locks_if_free(&mut self, kind: LockKind, key: &str) {
        self.locks.take_free(kind, key);
    }

    /// Takes the database time that a packet has read, unless it was read before.
    pub(crate) fn read_now(&mut self, now: DbTime) -> DbTime {
        *self.now.get_or_insert(now)
    }

    /// Remembers something to count once this transaction has committed.
    pub(crate) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// Runs a write and answers how many rows it touched.
    pub(crate) async fn execute(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<u64, TxError> {
        self.begin().await?;
        self.conn()
            .execute(sql, args)
            .await
            .map_err(|error| report(sql, &error))
    }

    /// Runs a write that must touch exactly one row.
    pub(crate) async fn execute_one(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<(), TxError> {
        let touched = self.execute(sql, args).await;
        packets::touches(sql, touched, &packets::ONE, None)
    }

    /// Runs a read.
    pub(crate) async fn fetch(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Vec<Row>, TxError> {
        self.begin().await?;
        self.conn().fetch(sql, args).await.map_err(|error| report(sql, &error))
    }

    /// Runs a read that answers at most one row.
    pub(crate) async fn fetch_opt(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Option<Row>, TxError> {
        Ok(self.fetch(sql, args).await?.into_iter().next())
    }

    /// Runs a read that answers one row.
    pub(crate) async fn fetch_one(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Row, TxError> {
        let missing = TxError::Rows {
            statement: statement_name(sql),
            expected: 1,
            touched: 0,
        };
        self.fetch_opt(sql, args).await?.ok_or(missing)
    }

    async fn commit(&mut self) -> Result<(), TxError> {
        if let Some(last) = self.last.take() {
            return self.commit_with(&last).await;
        }
        if self.begins {
            self.give_back();
            return Ok(());
        }
        self.progress.commit_sent.store(true, Ordering::Release);
        match self.conn().raw("COMMIT").await {
            Ok(()) => {
                self.give_back();
                Ok(())
            }
            Err(_) => Err(TxError::Unknown),
        }
    }

    /// Runs a body up to its last write.
    async fn run<T, F>(&mut self, f: &F) -> Result<T, TxError>
    where
        F: for<'t> Fn(&'t mut Self) -> TxFuture<'t, T> + Send + Sync,
    {
        let value = f(self).await?;
        self.flush().await?;
        Ok(value)
    }

    /// Runs a body without a transaction around it. Every statement is its own commit, so one whose reply is lost may have
    /// written.
    async fn one_by_one<T, F>(&mut self, f: &F) -> Result<T, TxError>
    where
        F: for<'t> Fn(&'t mut Self) -> TxFuture<'t, T> + Send + Sync,
    {
        self.wait_long().await?;
        self.progress.commit_sent.store(true, Ordering::Release);
        match self.run(f).await {
            Ok(value) => {
                self.give_back();
                Ok(value)
            }
            Err(TxError::Down(Down::Connection)) => Err(TxError::Unknown),
            Err(error) => {
                // Nothing is open; this proves that the connection is still of use.
                self.rollback().await;
                Err(error)
            }
        }
    }

    /// On SQLite every write proves that this process still owns the file.
    pub(crate) async fn check_term(&mut self, term: Fence) -> Result<(), TxError> {
        let sql = "-- leases.term\nSELECT fence FROM pc_scheduler_leases WHERE lease_name = 'single-node-runtime'";
        let stored = self
            .fetch_opt(sql, &[])
            .await?
            .map(|row| row.int("fence"))
            .transpose()?;
        if stored == Some(term.to_row()) {
            Ok(())
        } else {
            Err(TxError::Fenced(FenceLost::Term))
        }
    }

    async fn rollback(&mut self) {
        if self.conn().raw("ROLLBACK").await.is_ok() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(conn) = self.conn.take() {
            conn.give_back();
        }
    }
}

/// The name in a statement's first line.
fn statement_name(sql: &'static str) -> &'static str {
    sql.lines()
        .next()
        .map_or("unnamed", |line| line.trim_start_matches("-- "))
}

/// Classifies a driver's error; one that this code does not expect is logged with the statement's name, never its text.
fn report(sql: &'static str, error: &DriverError) -> TxError {
    let classified = error.classify();
    if matches!(classified, TxError::Down(Down::Other(_)) | TxError::Corrupt(_)) {
        tracing::warn!(statement = statement_name(sql), error = %classified, "a statement was refused by the database");
    }
    classified
}

/// Whether a run of a closure may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Write,
    Read,
    /// Writes whose statements commit one by one. SQLite, where a write is one call of this process, makes no difference.
    Autocommit,
}

impl Db {
    /// Runs a transaction that may write. The closure may run more than once and must only touch the transaction.
    ///
    /// # Errors
    /// [`TxError`]; everything but [`TxError::Unknown`] means that nothing was written.
    pub async fn tx<T, F>(&self, name: TxName, f: F) -> Result<T, TxError>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
    {
        self.detached(name, Mode::Write, Again::BusyOrBroken, f).await
    }

    /// Runs reads. They see committed rows, on SQLite one snapshot of them.
    ///
    /// # Errors
    /// [`TxError`], never `Unknown`.
    pub async fn read<T, F>(&self, name: TxName, f: F) -> Result<T, TxError>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
    {
        self.detached(name, Mode::Read, Again::BusyOrBroken, f).await
    }

    async fn detached<T, F>(&self, name: TxName, mode: Mode, again: Again, f: F) -> Result<T, TxError>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
    {
        let db = self.clone();
        let task = rt::spawn(async move { db.run(name, mode, again, &Arc::new(f)).await });
        match task.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(TxError::Down(Down::Connection)),
        }
    }

    async fn run<T, F>(&self, name: TxName, mode: Mode, again: Again, f: &Arc<F>) -> Result<T, TxError>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
    {
        // All runs share one deadline, so that no caller waits longer than it, however often the transaction is run.
        let until = rt::now() + self.limits().deadline();
        let last_start = rt::now() + RUN_AGAIN_WITHIN;
        let mut runs = 1;
        loop {
            let progress = Arc::new(Progress::default());
            let result = match self.local() {
                Some(local) => self.hand_over(local, name, mode, f, until, &progress).await,
                None => self.run_once(name, mode, &**f, until, &progress).await,
            };
            match &result {
                Err(error) if progress.may_run_again(error, again) && runs < RUNS_MAX && rt::now() < last_start => {
                    tracing::debug!(tx = name.label(), run = runs, error = %error, "a transaction is run again");
                    rt::sleep(Duration::from_millis(u64::from(rt::random() % (10 << runs)))).await;
                    runs += 1;
                }
                _ => return result,
            }
        }
    }

    /// Hands the body to the file's thread and waits for it.
    async fn hand_over<T, F>(
        &self,
        local: &Local,
        name: TxName,
        mode: Mode,
        f: &Arc<F>,
        until: Instant,
        progress: &Progress,
    ) -> Result<T, TxError>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
    {
        let term = self.term().filter(|_| mode != Mode::Read);
        let (call, caller) = Call::new(name, Arc::clone(f), term, until);
        match mode {
            Mode::Read => local.read(Box::new(call))?,
            Mode::Write | Mode::Autocommit => local.write(Box::new(call))?,
        }
        let (has_begun, answer) = caller.wait(rt::now() + ACQUIRE_WAIT.as_std(), until).await;
        progress.acquired.store(has_begun, Ordering::Release);
        match answer {
            Ok((value, notes)) => {
                self.count(notes);
                fail_point(name, ".after_commit");
                Ok(value)
            }
            Err(Failure::Tx(error)) => Err(error),
            Err(Failure::Panic(panic)) => std::panic::resume_unwind(panic),
        }
    }

    fn count(&self, notes: Vec<Note>) {
        if let Some(metrics) = self.metrics() {
            notes::count(metrics, notes);
        }
    }

    async fn run_once<T, F>(
        &self,
        name: TxName,
        mode: Mode,
        f: &F,
        until: Instant,
        progress: &Arc<Progress>,
    ) -> Result<T, TxError>
    where
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync,
    {
        let left = until.saturating_duration_since(rt::now());
        let work = self.within_transaction(name, mode, f, Arc::clone(progress));
        let result = match rt::within(left, work).await {
            Ok(result) => result,
            // The future is gone, and with it the connection (`Drop for Tx`). A COMMIT on its way may still happen.
            Err(rt::Elapsed) if progress.commit_sent.load(Ordering::Acquire) => Err(TxError::Unknown),
            Err(rt::Elapsed) => Err(TxError::Down(Down::Deadline)),
        };
        let is_broken = matches!(
            result,
            Err(TxError::Unknown | TxError::Down(Down::Connection | Down::Deadline))
        );
        if is_broken && progress.acquired.load(Ordering::Acquire) {
            self.distrust();
        }
        result
    }

    async fn within_transaction<T, F>(
        &self,
        name: TxName,
        mode: Mode,
        f: &F,
        progress: Arc<Progress>,
    ) -> Result<T, TxError>
    where
        F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync,
    {
        let conn = self.acquire(name).await?;
        progress.acquired.store(true, Ordering::Release);
        let mut tx = Tx::on(conn);
        tx.progress = progress;
        tx.begins = mode == Mode::Write;
        if mode == Mode::Autocommit {
            return tx.one_by_one(f).await;
        }
        let result = tx.run(f).await;
        match result {
            // The connection is gone; a ROLLBACK would only wait for an answer.
            Err(error @ TxError::Down(Down::Connection)) => Err(error),
            // Reads there are statements of their own: at read-committed a transaction around them shows nothing more.
            result if mode == Mode::Read => {
                tx.give_back();
                result
            }
            Ok(value) => {
                fail_point(name, ".before_commit");
                tx.commit().await?;
                self.count(std::mem::take(&mut tx.notes));
                fail_point(name, ".after_commit");
                Ok(value)
            }
            Err(error) => {
                tx.rollback().await;
                Err(error)
            }
        }
    }
}

/// A named point at which a crash test stops the process; nothing in shipped builds.
#[cfg_attr(
    not(feature = "failpoints"),
    expect(unused_variables, reason = "the point exists only in test builds")
)]
pub(crate) fn fail_point(name: TxName, point: &str) {
    #[cfg(feature = "failpoints")]
    fail::fail_point!(&format!("{}{point}", name.label()));
}
