//! A thread that reads: one snapshot a transaction. Its connection is opened when it is first needed.

use std::path::Path;

use crate::store::error::{Down, TxError, sqlite};
use crate::store::local::job::{Job, Ran};
use crate::store::local::queue::Queue;
use crate::store::local::session::Session;

/// Reads until the queue is closed.
pub(super) fn run(path: &Path, queue: &Queue) {
    let mut resting = None;
    while let Some(mut job) = queue.wait() {
        if !job.begin() {
            continue;
        }
        let result = read(path, &mut resting, &mut *job);
        job.settle(result);
    }
}

fn read(path: &Path, resting: &mut Option<Box<Session>>, job: &mut dyn Job) -> Result<(), TxError> {
    let session = match resting.take() {
        Some(session) => session,
        None => Session::reading(path)?,
    };
    session.call("BEGIN").map_err(|error| sqlite(&error))?;
    let (session, ran) = job.run(session, true);
    if let Some(session) = session {
        // One that cannot even end a read is not used again.
        if session.is_idle() || session.call("ROLLBACK").is_ok() {
            *resting = Some(session);
        }
    }
    match ran {
        Ran::Well => Ok(()),
        Ran::Failed(error) => Err(error),
        Ran::Waits => Err(TxError::Down(Down::Deadline)),
    }
}
