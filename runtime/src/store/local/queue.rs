//! Transactions that wait for a thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::store::error::{Busy, Down, TxError};
use crate::store::local::job::Job;

/// Most transactions that wait; more callers than any limit of the API lets in.
const WAITING_MAX: usize = 8192;

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    is_closed: bool,
}

/// First come, first served.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    came: Condvar,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl Queue {
    pub(super) fn push(&self, job: Box<dyn Job>) -> Result<(), TxError> {
        let mut state = self.state();
        if state.is_closed {
            return Err(TxError::Down(Down::Connection));
        }
        if state.jobs.len() >= WAITING_MAX {
            return Err(TxError::Busy(Busy::Pool));
        }
        state.jobs.push_back(job);
        drop(state);
        self.came.notify_one();
        Ok(())
    }

    /// The next one, if one waits now.
    pub(super) fn take(&self) -> Option<Box<dyn Job>> {
        self.state().jobs.pop_front()
    }

    /// The next one, as soon as there is one; `None` once the queue is closed and empty.
    pub(super) fn wait(&self) -> Option<Box<dyn Job>> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets nothing more in.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.came.notify_all();
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state().jobs.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics between two changes under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
