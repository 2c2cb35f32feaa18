//! The thread that writes: group commit (ADR 0018).
//!
//! One COMMIT costs one fsync, however much it commits. So the writer takes every transaction that waits, runs one after
//! the other in one `BEGIN IMMEDIATE … COMMIT`, each behind a savepoint of its own, and answers all of them after that
//! COMMIT and none before. What a reader of this file must be able to see:
//!
//! - **Nobody is told too early.** [`Job::settle`] with `Ok` is called in one place, after COMMIT has succeeded.
//! - **A failure is its own.** A body that fails, panics or is fenced out is rolled back to its savepoint; the others stay.
//! - **Nobody waits for a neighbour's business.** A body that waits for anything but the database leaves the group and runs
//!   by itself after it.
//! - **A group never decides a fate.** When the group as a whole cannot be committed (the engine has rolled everything back,
//!   COMMIT was refused, a caller gave up meanwhile), it comes apart: each member is run again by itself, and what becomes
//!   of it then is what would have become of it without a group. Bodies may be run again; that is `Db::tx`'s contract.
//! - **Unknown is unknown for all.** An I/O error of COMMIT may leave a complete commit in the log, which a later start
//!   would find. All members are told so.

use std::path::PathBuf;
use std::time::Duration;

use crate::rt;
use crate::store::error::{Down, TxError, is_io, sqlite};
use crate::store::local::job::{Job, Ran};
use crate::store::local::queue::Queue;
use crate::store::local::session::Session;

/// Most transactions of one commit.
const GROUP_MAX: usize = 64;
/// A group takes nobody more after this time: who came first waits no longer than this for those behind it.
const GROUP_SPAN_MAX: Duration = Duration::from_millis(10);

type Member = Box<dyn Job>;

/// The one writer of a file.
pub(super) struct Writer {
    path: PathBuf,
    /// `None` after a connection that could not be trusted any more.
    session: Option<Box<Session>>,
}

impl Writer {
    pub(super) fn new(path: PathBuf, session: Box<Session>) -> Self {
        let session = Some(session);
        Self { path, session }
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self, queue: &Queue) {
        while let Some(first) = queue.wait() {
            self.group(first, queue);
        }
    }

    /// Runs whoever waits, and commits.
    fn group(&mut self, first: Member, queue: &Queue) {
        let until = rt::now() + GROUP_SPAN_MAX;
        let (mut members, mut later) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(job) = next {
            if job.begin() {
                later.extend(self.join(job, &mut members));
            }
            let takes_more = members.len() < GROUP_MAX && rt::now() < until;
            next = if takes_more { queue.take() } else { None };
        }
        self.commit(members);
        self.each_alone(later);
    }

    /// Runs a transaction as the group's next member. One that fails is told at once and leaves no trace; one that leaves
    /// the group, because it would make the others wait, comes back.
    fn join(&mut self, mut job: Member, members: &mut Vec<Member>) -> Option<Member> {
        let is_first = members.is_empty();
        // The first one needs no savepoint: a rollback of everything is a rollback of it alone.
        let ran = if is_first {
            self.begin().map_or_else(Ran::Failed, |()| self.body(&mut *job, true))
        } else {
            self.behind_savepoint(&mut *job)
        };
        if ran == Ran::Well {
            members.push(job);
            return None;
        }
        self.undo(members);
        match ran {
            Ran::Failed(error) => job.settle(Err(error)),
            Ran::Well | Ran::Waits => return Some(job),
        }
        None
    }

    fn behind_savepoint(&mut self, job: &mut dyn Job) -> Ran {
        if let Err(error) = self.call("SAVEPOINT member") {
            return Ran::Failed(error);
        }
        match self.body(job, false) {
            Ran::Well => self.call("RELEASE member").map_or_else(Ran::Failed, |()| Ran::Well),
            ran => ran,
        }
    }

    fn body(&mut self, job: &mut dyn Job, may_wait: bool) -> Ran {
        let Some(session) = self.session.take() else {
            return Ran::Failed(TxError::Down(Down::Connection));
        };
        let (session, ran) = job.run(session, may_wait);
        self.session = session;
        ran
    }

    /// Takes back what the last one did, and nothing of those before it.
    fn undo(&mut self, members: &mut Vec<Member>) {
        if members.is_empty() {
            self.rollback();
            return;
        }
        let is_open = self.session.as_ref().is_some_and(|session| !session.is_idle());
        if !is_open
            || self
                .call("ROLLBACK TO member")
                .and_then(|()| self.call("RELEASE member"))
                .is_err()
        {
            // The engine has taken everything back, or will not say what is left.
            self.come_apart(std::mem::take(members));
        }
    }

    fn commit(&mut self, members: Vec<Member>) {
        if members.is_empty() {
            return;
        }
        let waiting = members.iter().filter(|job| job.commits()).count();
        if waiting < members.len() {
            return self.come_apart(members);
        }
        let Err(error) = self.send("COMMIT") else {
            for job in members {
                job.settle(Ok(()));
            }
            return;
        };
        let is_unknown = is_io(&error);
        let error = sqlite(&error);
        self.rollback();
        if is_unknown || members.len() == 1 {
            for job in members {
                job.settle(Err(if is_unknown { TxError::Unknown } else { error.clone() }));
            }
        } else {
            self.come_apart(members);
        }
    }

    /// Nothing of the group is left; each of it is run by itself.
    fn come_apart(&mut self, members: Vec<Member>) {
        self.rollback();
        self.each_alone(members);
    }

    fn each_alone(&mut self, jobs: Vec<Member>) {
        for job in jobs.into_iter().filter(|job| job.begin_again()) {
            let mut alone = Vec::new();
            // It is the first one, which may wait, so it never comes back.
            let _ = self.join(job, &mut alone);
            self.commit(alone);
        }
    }

    /// Ends the transaction, whatever state it is in. A connection that cannot is closed, which does it too.
    fn rollback(&mut self) {
        if let Some(session) = self.session.take()
            && (session.is_idle() || session.call("ROLLBACK").is_ok())
        {
            self.session = Some(session);
        }
    }

    /// Opens the transaction, and before it the connection where the last one is gone.
    fn begin(&mut self) -> Result<(), TxError> {
        if self.session.is_none() {
            self.session = Some(Session::writing(&self.path)?);
        }
        self.call("BEGIN IMMEDIATE")
    }

    fn call(&self, sql: &'static str) -> Result<(), TxError> {
        self.send(sql).map_err(|error| sqlite(&error))
    }

    fn send(&self, sql: &'static str) -> rusqlite::Result<()> {
        let session = self.session.as_ref().ok_or(rusqlite::Error::InvalidQuery)?;
        session.call(sql)
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
