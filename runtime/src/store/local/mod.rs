//! SQLite in this process: one thread that writes, a few that read, and the queues before them (ADR 0018).
//!
//! A connection belongs to one thread, which runs the bodies of transactions itself: a statement is a call, not a message.
//! The writing thread commits everything that waits for it in one go ([`writer`]). Nothing here knows a table.

mod job;
mod queue;
mod reader;
mod session;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

pub(crate) use job::{Call, Failure};
pub use session::SqliteRow;
pub(crate) use session::{Cell, Session};

use crate::rt;
use crate::store::error::{Down, TxError};
use job::Job;
use queue::Queue;

/// Threads that read a file beside the one that writes.
const READERS: usize = 4;

/// A SQLite file that is open; its threads end when it is closed or dropped.
#[derive(Debug)]
pub(crate) struct Local {
    writes: Arc<Queue>,
    reads: Arc<Queue>,
    ended: Mutex<Vec<oneshot::Receiver<()>>>,
}

impl Drop for Local {
    fn drop(&mut self) {
        self.reads.close();
        self.writes.close();
    }
}

impl Local {
    /// Opens a file, making it and its directory where they are missing.
    ///
    /// # Errors
    /// [`TxError::Down`] when it cannot be opened or no thread can be started.
    pub(crate) async fn open(path: PathBuf) -> Result<Self, TxError> {
        let local = Self {
            writes: Arc::default(),
            reads: Arc::default(),
            ended: Mutex::default(),
        };
        let (opened, opens) = oneshot::channel();
        let (queue, file) = (Arc::clone(&local.writes), path.clone());
        local.thread("sqlite-writer", move || {
            // A database that was left in the middle is repaired as it is opened, which may take a while.
            let session = match Session::writing(&file) {
                Ok(session) => session,
                Err(error) => {
                    queue.close();
                    // Nobody waits only if the caller is gone, and then nobody needs the file.
                    let _ = opened.send(Err(error));
                    return;
                }
            };
            let _ = opened.send(Ok(()));
            writer::Writer::new(file, session).run(&queue);
        })?;
        opens.await.unwrap_or(Err(TxError::Down(Down::Connection)))?;
        for _ in 0..READERS {
            let (queue, file) = (Arc::clone(&local.reads), path.clone());
            local.thread("sqlite-reader", move || reader::run(&file, &queue))?;
        }
        Ok(local)
    }

    fn thread(&self, name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<(), TxError> {
        let (end, ended) = oneshot::channel();
        let started = rt::thread(name, move || {
            body();
            // Only `close` listens.
            let _ = end.send(());
        });
        started.map_err(|_| TxError::Down(Down::Connection))?;
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
        Ok(())
    }

    /// Hands a transaction to the writing thread.
    ///
    /// # Errors
    /// [`TxError`] when too many wait already, or the file is closed.
    pub(crate) fn write(&self, job: Box<dyn Job>) -> Result<(), TxError> {
        self.writes.push(job)
    }

    /// Hands a snapshot's reads to a reading thread.
    ///
    /// # Errors
    /// As [`Local::write`].
    pub(crate) fn read(&self, job: Box<dyn Job>) -> Result<(), TxError> {
        self.reads.push(job)
    }

    /// Takes nothing more, finishes what waits, and closes the connections.
    pub(crate) async fn close(&self, wait: Duration) {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        self.reads.close();
        self.writes.close();
        let all = async {
            for ended in ended {
                // A thread that panicked has ended too.
                let _ = ended.await;
            }
        };
        // A thread that is stuck in the file system is left behind.
        let _ = rt::within(wait, all).await;
    }
}

/// Whether a path lies in a directory of its own that may have to be made.
pub(crate) fn directory(path: &Path) -> Option<&Path> {
    path.parent().filter(|directory| !directory.as_os_str().is_empty())
}
