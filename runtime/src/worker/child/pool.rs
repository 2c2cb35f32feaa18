//! Children started ahead of their invocation. A spare belongs to no family: it learns what it is for when it is taken.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rt;
use crate::worker::child::process::Process;

/// The spares of a worker.
pub(super) struct Pool {
    program: PathBuf,
    spares_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spares: VecDeque<Process>,
    is_filling: bool,
}

impl Pool {
    pub(super) fn new(program: PathBuf, spares_max: usize) -> Arc<Self> {
        Arc::new(Self {
            program,
            spares_max,
            state: Mutex::default(),
        })
    }

    /// A child that waits for its invocation: the oldest spare that still lives, or a new one.
    ///
    /// # Errors
    /// Why no child can be started.
    pub(super) async fn take(self: &Arc<Self>) -> io::Result<Process> {
        let spare = self.spare();
        self.refill();
        match spare {
            Some(process) => Ok(process),
            None => Process::start(&self.program).await,
        }
    }

    fn spare(&self) -> Option<Process> {
        let mut state = self.state();
        std::iter::from_fn(|| state.spares.pop_front()).find_map(|mut spare| (!spare.has_ended()).then_some(spare))
    }

    /// Starts what is missing, beside the caller.
    pub(super) fn refill(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.is_filling || state.spares.len() >= self.spares_max {
                return;
            }
            state.is_filling = true;
        }
        let pool = Arc::clone(self);
        rt::spawn(async move { pool.fill().await });
    }

    async fn fill(&self) {
        loop {
            let started = Process::start(&self.program).await;
            let mut state = self.state();
            match started {
                Ok(process) => state.spares.push_back(process),
                Err(error) => {
                    // The next run that needs one tries again, and is told if it still fails.
                    tracing::warn!(
                        error = error.kind().to_string(),
                        "a spare child process cannot be started"
                    );
                    state.is_filling = false;
                    return;
                }
            }
            if state.spares.len() >= self.spares_max {
                state.is_filling = false;
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics between two writes under this lock, so what it guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
