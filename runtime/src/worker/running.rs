//! The runs of this process: who they are, how to stop them, and until when their leases can be trusted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use powercontext_core::fence::Fence;
use powercontext_core::ids::{WorkId, WorkKind};
use powercontext_core::lease::Held;
use powercontext_core::work::ends::is_given_up;
use tokio::time::Instant;

use crate::families::Cancel;
use crate::rt;
use crate::worker::LeaseSettings;

/// Why a run was stopped from outside. The first reason stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// An operator asked for the end.
    Operator,
    /// The worker stops and the grace is over.
    Drain,
    /// The lease is lost, or can no longer be trusted.
    LeaseLost,
    /// The run took longer than its kind may.
    Timeout,
}

/// One run, seen from outside.
#[derive(Debug)]
pub(super) struct RunHandle {
    pub(super) held: Held<WorkId>,
    pub(super) kind: WorkKind,
    pub(super) cancel: Cancel,
    stop: OnceLock<Stop>,
    trusted_until: Mutex<Option<Instant>>,
    /// When a heartbeat was sent that was answered while the lease was good.
    answered: Mutex<Instant>,
    is_abandoned: AtomicBool,
    is_ending: AtomicBool,
    end_tried: OnceLock<Instant>,
    given_up: OnceLock<Instant>,
}

impl RunHandle {
    /// A run whose lease can be trusted until `trusted_until`, counted from before the claim was sent; `None` where a lease
    /// has no time.
    pub(super) fn new(held: Held<WorkId>, kind: WorkKind, trusted_until: Option<Instant>) -> Self {
        let (cancel, stop) = (Cancel::new(), OnceLock::new());
        Self {
            held,
            kind,
            cancel,
            stop,
            trusted_until: Mutex::new(trusted_until),
            answered: Mutex::new(rt::now()),
            is_abandoned: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            end_tried: OnceLock::new(),
            given_up: OnceLock::new(),
        }
    }

    /// Stops the run.
    pub(super) fn stop(&self, why: Stop) {
        // A run that is being stopped already keeps its first reason.
        let _ = self.stop.set(why);
        self.cancel.raise();
    }

    /// Why the run was stopped, if it was.
    pub(super) fn stopped(&self) -> Option<Stop> {
        self.stop.get().copied()
    }

    /// A heartbeat sent at `sent` was answered, whatever it said. Once the lease is over it says nothing of what was before.
    pub(super) fn answered(&self, sent: Instant) {
        if self.trusted_until().is_some_and(|until| sent < until) {
            *lock(&self.answered) = sent;
        }
    }

    /// Whether the database answered its heartbeats but did not take its end.
    pub(super) fn is_in_vain(&self, lease: LeaseSettings) -> bool {
        let now = rt::now();
        let trusted = self.trusted_until();
        let unanswered = trusted
            .map_or(now, |until| until.min(now))
            .saturating_duration_since(*lock(&self.answered));
        is_given_up(
            self.end_tried().map(|since| now.saturating_duration_since(since)),
            trusted.map(|until| until.saturating_duration_since(now)),
            unanswered,
            lease.length,
            lease.heartbeat,
        )
    }

    /// The lease was renewed by a heartbeat sent at `sent`.
    pub(super) fn renewed(&self, sent: Instant, lease: Duration) {
        *lock(&self.trusted_until) = Some(sent + lease);
    }

    /// Gives up on the end of the run: its lease is renewed no more, and it keeps its slot.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped and does not end.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Nothing of the family's part goes on: its end is being written, and its slot is free.
    pub(super) fn ends(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Whether only its end is still to be written.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Its end is written from now on, and tried again where the database does not take it.
    pub(super) fn tries_end(&self) {
        // The first try counts.
        let _ = self.end_tried.set(rt::now());
    }

    /// When its end was first tried.
    pub(super) fn end_tried(&self) -> Option<Instant> {
        self.end_tried.get().copied()
    }

    /// Its end was tried in vain for too long: its lease is renewed no more, so that somebody can take the item over.
    pub(super) fn give_up(&self) {
        let _ = self.given_up.set(rt::now());
    }

    /// When that was.
    pub(super) fn given_up(&self) -> Option<Instant> {
        self.given_up.get().copied()
    }

    /// What it is known by: an item may be run again while the end of its last run still waits for the database.
    fn key(&self) -> (WorkId, Fence) {
        (*self.held.key(), self.held.fence())
    }

    /// Until when the lease can be trusted; `None` where it has no time.
    pub(super) fn trusted_until(&self) -> Option<Instant> {
        *lock(&self.trusted_until)
    }
}

/// Every run of this process.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<BTreeMap<(WorkId, Fence), Arc<RunHandle>>>);

impl Running {
    pub(super) fn insert(&self, handle: Arc<RunHandle>) {
        lock(&self.0).insert(handle.key(), handle);
    }

    /// Forgets a run; whether it was the last one of its kind.
    pub(super) fn remove(&self, run: &RunHandle) -> bool {
        let mut runs = lock(&self.0);
        let gone = runs.remove(&run.key());
        gone.is_some_and(|gone| runs.values().all(|run| run.kind != gone.kind))
    }

    /// Stops the runs of an item.
    pub(super) fn stop(&self, id: WorkId, why: Stop) {
        for run in lock(&self.0).values().filter(|run| *run.held.key() == id) {
            run.stop(why);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<RunHandle>> {
        lock(&self.0).values().cloned().collect()
    }

    /// The runs whose leases are to be renewed.
    pub(super) fn renewable(&self) -> Vec<Arc<RunHandle>> {
        let mut runs = self.all();
        runs.retain(|run| !run.is_abandoned() && run.given_up().is_none());
        runs
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// How many take a slot.
    pub(super) fn busy(&self) -> usize {
        lock(&self.0).values().filter(|run| !run.is_ending()).count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics between two writes under these locks, so what they guard is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
