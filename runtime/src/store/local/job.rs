//! A transaction on its way: its body, its caller, and how far it has come.
//!
//! The caller and the thread agree by one atomic [`Stage`] on what a caller that stops waiting is told: before COMMIT the
//! transaction is taken back ([`Stage::GivenUp`]), so nothing was written; afterwards its outcome is unknown.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use powercontext_core::fence::Fence;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::rt::{self, Stopped};
use crate::store::conn::Conn;
use crate::store::error::{Busy, Down, TxError};
use crate::store::local::session::Session;
use crate::store::names::TxName;
use crate::store::notes::Note;
use crate::store::tx::{Tx, TxFuture, fail_point};

/// How far a transaction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// No thread has it yet.
    Waiting,
    /// Its body runs or has run.
    Running,
    /// The commit that it belongs to was begun.
    Committing,
    /// Its caller does not wait any more.
    GivenUp,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Committing, Self::GivenUp];
}

/// A [`Stage`] that two threads share.
#[derive(Debug, Default)]
struct Shared(AtomicU8);

impl Shared {
    fn get(&self) -> Stage {
        Stage::ALL[usize::from(self.0.load(Ordering::Acquire))]
    }

    fn step(&self, from: Stage, to: Stage) -> bool {
        self.0
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// From any stage; answers the one before.
    fn give_up(&self) -> Stage {
        Stage::ALL[usize::from(self.0.swap(Stage::GivenUp as u8, Ordering::AcqRel))]
    }
}

/// Why a transaction has no value.
pub(crate) enum Failure {
    Tx(TxError),
    /// The body panicked; nothing was written.
    Panic(Box<dyn Any + Send>),
}

/// What a caller is told: the value, and what is to be counted now that it is committed.
pub(crate) type Answer<T> = Result<(T, Vec<Note>), Failure>;

/// The caller's end.
pub(crate) struct Caller<T> {
    stage: Arc<Shared>,
    answer: oneshot::Receiver<Answer<T>>,
}

impl<T> Caller<T> {
    /// Waits for the answer: until `begins_by` for a thread, then until `until` for the rest.
    pub(crate) async fn wait(mut self, begins_by: Instant, until: Instant) -> (bool, Answer<T>) {
        let first = rt::within(
            begins_by.min(until).saturating_duration_since(rt::now()),
            &mut self.answer,
        )
        .await;
        let answer = match first {
            Ok(answer) => Ok(answer),
            // No thread had time for it. If one takes it at this very moment, it goes on.
            Err(rt::Elapsed) if self.stage.step(Stage::Waiting, Stage::GivenUp) => {
                return (false, Err(Failure::Tx(TxError::Busy(Busy::Pool))));
            }
            Err(rt::Elapsed) => rt::within(until.saturating_duration_since(rt::now()), &mut self.answer).await,
        };
        if let Ok(Ok(answer)) = answer {
            return (true, answer);
        }
        // The thread is gone, or too late.
        let stage = self.stage.give_up();
        let error = match (stage, answer) {
            (Stage::Committing, _) => TxError::Unknown,
            (_, Ok(_)) => TxError::Down(Down::Connection),
            (_, Err(rt::Elapsed)) => TxError::Down(Down::Deadline),
        };
        (stage != Stage::Waiting, Err(Failure::Tx(error)))
    }
}

/// How a body's run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ran {
    /// Well; the value waits for the commit.
    Well,
    /// It failed or panicked.
    Failed(TxError),
    /// It was stopped, because it waits for something else than the database.
    Waits,
}

impl From<TxError> for Ran {
    fn from(error: TxError) -> Self {
        Self::Failed(error)
    }
}

/// What a thread does with a transaction.
pub(crate) trait Job: Send {
    /// Takes it; `false` when nobody waits for it any more.
    fn begin(&self) -> bool;

    /// Runs its body on an open transaction, and keeps the value. A body that waits for anything but the database is stopped
    /// unless it `may_wait`.
    fn run(&mut self, session: Box<Session>, may_wait: bool) -> (Option<Box<Session>>, Ran);

    /// Its commit begins; `false` when nobody waits for it any more.
    fn commits(&self) -> bool;

    /// It did not happen after all and is run again; `false` when nobody waits for it any more.
    fn begin_again(&self) -> bool;

    /// Tells the caller. `Ok` only once the value is committed.
    fn settle(self: Box<Self>, result: Result<(), TxError>);
}

/// A transaction's body with all that its run needs.
pub(crate) struct Call<T, F> {
    pub(crate) name: TxName,
    pub(crate) body: Arc<F>,
    /// The term that a write must prove.
    pub(crate) term: Option<Fence>,
    /// When a body that still runs is stopped.
    pub(crate) until: Instant,
    /// What the body may use beside the database.
    runtime: Handle,
    stage: Arc<Shared>,
    caller: oneshot::Sender<Answer<T>>,
    value: Option<(T, Vec<Note>)>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<T, F> Call<T, F>
where
    T: Send + 'static,
    F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
{
    /// A call and its caller's end.
    pub(crate) fn new(name: TxName, body: Arc<F>, term: Option<Fence>, until: Instant) -> (Self, Caller<T>) {
        let (caller, answer) = oneshot::channel();
        let stage = Arc::<Shared>::default();
        let call = Self {
            name,
            body,
            term,
            until,
            runtime: Handle::current(),
            stage: Arc::clone(&stage),
            caller,
            value: None,
            panic: None,
        };
        (call, Caller { stage, answer })
    }

    fn body(&self, tx: &mut Tx, may_wait: bool) -> Result<T, Ran> {
        let run = async {
            if let Some(term) = self.term {
                tx.check_term(term).await?;
            }
            let value = (self.body)(tx).await?;
            fail_point(self.name, ".before_commit");
            Ok::<T, TxError>(value)
        };
        match rt::run_here(&self.runtime, may_wait.then_some(self.until), run) {
            Ok(result) => result.map_err(Ran::Failed),
            Err(Stopped::Waits) => Err(Ran::Waits),
            Err(Stopped::Elapsed) => Err(Ran::Failed(TxError::Down(Down::Deadline))),
        }
    }
}

impl<T, F> Job for Call<T, F>
where
    T: Send + 'static,
    F: for<'t> Fn(&'t mut Tx) -> TxFuture<'t, T> + Send + Sync + 'static,
{
    fn begin(&self) -> bool {
        self.stage.step(Stage::Waiting, Stage::Running)
    }

    fn run(&mut self, session: Box<Session>, may_wait: bool) -> (Option<Box<Session>>, Ran) {
        session.stop_at(Some(self.until));
        let mut tx = Tx::on(Conn::Sqlite(session));
        // The transaction is rolled back after a panic, so nobody sees what it left half done.
        let result = match catch_unwind(AssertUnwindSafe(|| self.body(&mut tx, may_wait))) {
            Ok(result) => result,
            Err(panic) => {
                self.panic = Some(panic);
                Err(Ran::Failed(TxError::Down(Down::Connection)))
            }
        };
        let (session, notes) = tx.into_session();
        if let Some(session) = &session {
            session.stop_at(None);
        }
        let ran = match result {
            Ok(value) => {
                self.value = Some((value, notes));
                Ran::Well
            }
            Err(ran) => ran,
        };
        (session, ran)
    }

    fn commits(&self) -> bool {
        self.stage.step(Stage::Running, Stage::Committing)
    }

    fn begin_again(&self) -> bool {
        self.stage.step(Stage::Committing, Stage::Running) || self.stage.get() == Stage::Running
    }

    fn settle(self: Box<Self>, result: Result<(), TxError>) {
        let answer = match (result, self.value, self.panic) {
            (_, _, Some(panic)) => Err(Failure::Panic(panic)),
            (Ok(()), Some(value), None) => Ok(value),
            (Ok(()), None, None) => Err(Failure::Tx(TxError::Down(Down::Connection))),
            (Err(error), ..) => Err(Failure::Tx(error)),
        };
        // A caller that does not wait any more was told so already.
        let _ = self.caller.send(answer);
    }
}
