//! The claim loop: takes due work into free slots, sleeps when there is none, drains when it must stop.
//!
//! Where leases have a time the loop polls with a growing pause, because other processes make work too. Where the process
//! is alone (SQLite) it reads nothing while idle: it sleeps until the next item is due or somebody here makes work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use powercontext_core::ids::{WorkId, WorkKind};
use powercontext_core::lease::Expiry;
use powercontext_core::work::WorkState;
use powercontext_core::work::ends::{Ends, Room};
use powercontext_core::work::lapse::next_look;

use crate::ledger::{Claim, Claimed, Ended};
use crate::rt;
use crate::store::TxError;
use crate::telemetry::trace::Span;
use crate::worker::Worker;
use crate::worker::heartbeat::give_up;
use crate::worker::run::Run;
use crate::worker::running::{RunHandle, Stop};
use crate::worker::slots::{Usage, held_max, wanted};
use crate::worker::spans;

/// Shortest pause between two looks for work.
const POLL_MIN: Duration = Duration::from_millis(10);
/// A freed slot waits this long for others, so that one claim refills them together.
const LINGER: Duration = Duration::from_millis(2);
/// Slots that are refilled without waiting for more.
const LINGER_FREED: usize = 16;
/// How often what is ready to run goes first, where a process is alone: a no-op ends within a few turns.
const LINGER_TURNS: u32 = 32;
/// Longest sleep of an idle process that is alone: nothing depends on waking earlier.
const IDLE_MAX: Duration = Duration::from_hours(1);
/// How long runs that were given back may take to say so.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// A run that ended, and how.
type RunEnd = (Arc<RunHandle>, Ended);

/// What the loop remembers from one look to the next.
struct Loop {
    turn: usize,
    pause: Duration,
    /// Until when a claim whose outcome nobody told us may still commit: its items are ours and nobody runs them.
    adopt_until: Option<Instant>,
    /// When leases that are over are looked for; at once where that is not known.
    lapse_at: Option<Instant>,
    /// Items whose ends could not be written, and until when they may still be held here. They are never adopted: the model would
    /// be called again for an end that cannot be written either.
    aside: BTreeMap<WorkId, Instant>,
    /// Whether the database takes the ends of runs. Moments count from `since`.
    ends: Ends,
    since: Instant,
    ended: (mpsc::Sender<RunEnd>, mpsc::Receiver<RunEnd>),
    cancels: broadcast::Receiver<WorkId>,
}

impl Loop {
    /// A run may have been given up by the heartbeat.
    fn note_given_up(&mut self, run: &RunHandle) {
        let since_start = |moment: Instant| moment.saturating_duration_since(self.since);
        if let (Some(tried), Some(given_up)) = (run.end_tried(), run.given_up()) {
            self.ends = self.ends.given_up(since_start(tried), since_start(given_up));
        }
    }
}

impl Worker {
    /// Claims and runs work until `stop`, then drains.
    pub async fn run(&self, stop: CancellationToken) {
        let beats = CancellationToken::new();
        let watch = self.0.gate.clone().map(|gate| {
            let (ledger, beats) = (self.0.ledger.clone(), beats.clone());
            rt::spawn(async move { gate.watch(&beats, &ledger.signals().work).await })
        });
        let heart = self.0.settings.lease.map(|lease| {
            let (worker, beats) = (self.clone(), beats.clone());
            rt::spawn(async move { worker.heartbeats(lease, beats).await })
        });
        let mut state = Loop {
            turn: 0,
            pause: POLL_MIN,
            adopt_until: None,
            lapse_at: None,
            aside: BTreeMap::new(),
            ends: Ends::default(),
            since: rt::now(),
            ended: mpsc::channel(self.held_max() + self.0.settings.kinds.len()),
            cancels: self.0.ledger.signals().cancels.subscribe(),
        };
        while !stop.is_cancelled() {
            let pause = self.look(&mut state).await;
            self.wait(&mut state, rt::now() + pause, &stop).await;
        }
        self.drain(&mut state).await;
        beats.cancel();
        for task in heart.into_iter().chain(watch) {
            // It ends by itself now; a panic there was reported by its own hook.
            let _ = task.await;
        }
    }

    fn held_max(&self) -> usize {
        held_max(self.0.settings.concurrency) as usize
    }

    /// Waits until there is a reason to look for work, at most until `until`.
    async fn wait(&self, state: &mut Loop, until: Instant, stop: &CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((run, ended)) = state.ended.1.recv() => if self.forget(state, &run, &ended) {
                    return self.gather(state).await;
                },
                signal = state.cancels.recv() => self.cancelled(signal).await,
                () = self.0.freed.notified() => return self.gather(state).await,
                () = self.0.ledger.signals().work.notified() => {
                    state.pause = POLL_MIN;
                    return;
                }
                () = rt::sleep_until(until) => return,
            }
        }
    }

    /// There is room for a claim. Waits a little for more, so that one claim takes all of it.
    async fn gather(&self, state: &mut Loop) {
        state.pause = POLL_MIN;
        if self.0.settings.lease.is_none() {
            // A claim costs no round trips here, so nobody waits: what ends in this very moment comes along.
            for _ in 0..LINGER_TURNS {
                self.forget_ended(state);
                if self.0.running.len() == 0 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            return;
        }
        let until = rt::now() + LINGER;
        // With nothing left to wait for, or enough to make a claim worth its round trips, it goes on at once.
        let busy = self.0.running.busy();
        while busy.saturating_sub(self.0.running.busy()) < LINGER_FREED && self.0.running.busy() > 0 {
            tokio::select! {
                biased;
                () = self.0.freed.notified() => {}
                () = rt::sleep_until(until) => break,
            }
        }
        self.forget_ended(state);
    }

    fn forget_ended(&self, state: &mut Loop) {
        while let Ok((run, ended)) = state.ended.1.try_recv() {
            self.forget(state, &run, &ended);
        }
    }

    /// An end is written. Whether it is a reason to look again: what it made claimable was signalled by the ledger.
    fn forget(&self, state: &mut Loop, run: &Arc<RunHandle>, ended: &Ended) -> bool {
        let was_in_the_way = self.0.running.len() >= self.held_max();
        let was_last = self.0.running.remove(run);
        if let (Ended::Lost, Some(lease)) = (ended, self.0.settings.lease) {
            give_up(std::slice::from_ref(run), lease);
        }
        state.note_given_up(run);
        let db = self.0.ledger.db();
        match (ended, self.0.settings.lease, run.end_tried()) {
            (Ended::Lost, Some(lease), Some(_)) => {
                // The last heartbeat may have been taken as late as that.
                let over = db.limits().deadline() + db.settled_after() + lease.length;
                state.aside.insert(*run.held.key(), rt::now() + over);
            }
            // It may still be held here, perhaps under a lease that no clock ends.
            (Ended::Lost, _, _) => state.adopt_until = Some(rt::now() + db.settled_after()),
            _ => state.ends = state.ends.written(state.since.elapsed()),
        }
        was_in_the_way || was_last || *ended == Ended::Lost
    }

    async fn cancelled(&self, signal: Result<WorkId, broadcast::error::RecvError>) {
        if let Ok(id) = signal {
            return self.cancel_requested(id);
        }
        // Too many at once for the channel: the marks are in the rows.
        for handle in self.0.running.all() {
            match self.0.ledger.work(*handle.held.key()).await {
                Ok(Some(row)) if matches!(row.item.state, WorkState::Cancelling(_)) => handle.stop(Stop::Operator),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %error, "a cancel mark could not be read; the run's end will meet it");
                }
            }
        }
    }

    /// One look for work; how long to sleep unless something happens.
    async fn look(&self, state: &mut Loop) -> Duration {
        let before = rt::now();
        match self.take(state, before).await {
            Ok(0) => self.idle_pause(state).await,
            Ok(_) => {
                state.pause = POLL_MIN;
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(error = %error, "looking for work failed; trying again");
                if matches!(error, TxError::Unknown | TxError::Down(_)) {
                    state.adopt_until = Some(rt::now() + self.0.ledger.db().settled_after());
                }
                state.pause = (state.pause * 2).clamp(POLL_MIN * 10, self.0.settings.poll_max.max(POLL_MIN * 10));
                state.pause
            }
        }
    }

    async fn take(&self, state: &mut Loop, before: Instant) -> Result<usize, TxError> {
        let ledger = &self.0.ledger;
        if let Some(lease) = self.0.settings.lease
            && state.lapse_at.is_none_or(|at| before >= at)
        {
            let next = ledger.recover_lapsed().await?;
            state.lapse_at = Some(before + next_look(next, lease.heartbeat, self.0.settings.poll_max));
        }
        let mut claimed = Vec::new();
        state.aside.retain(|_, until| before < *until);
        if let Some(until) = state.adopt_until {
            let running = self.0.running.all();
            let running = running.iter().map(|handle| handle.held.key());
            claimed = ledger
                .adopt(running.chain(state.aside.keys()).copied().collect())
                .await?;
            state.adopt_until = Some(until).filter(|until| before < *until);
        }
        let kinds = self.wanted(state);
        state.turn = state.turn.wrapping_add(1);
        if claimed.is_empty() && !kinds.is_empty() {
            let span = spans::claim(ledger, &kinds);
            claimed = ledger.claim(&Claim { kinds }).await?;
            spans::claimed(span, claimed.len());
        }
        let taken = claimed.len();
        let stored = spans::stored(ledger, &claimed).await;
        for claimed in claimed {
            let span = spans::execute(ledger, &claimed, stored.get(claimed.held.key()));
            state.aside.remove(claimed.held.key());
            self.start(claimed, span, before, &state.ended.0);
        }
        Ok(taken)
    }

    /// How many of each kind to claim now.
    fn wanted(&self, state: &mut Loop) -> Vec<(WorkKind, u32)> {
        let kinds = wanted(&self.usage(), self.0.settings.concurrency, state.turn);
        let Some(lease) = self.0.settings.lease else {
            return kinds;
        };
        let running = self.0.running.all();
        for run in &running {
            state.note_given_up(run);
        }
        match state.ends.room(state.since.elapsed(), lease.length, running.len()) {
            Room::All => kinds,
            Room::One => kinds.into_iter().take(1).map(|(kind, _)| (kind, 1)).collect(),
            Room::Nothing => Vec::new(),
        }
    }

    fn usage(&self) -> Vec<Usage> {
        let is_closed = self.0.gate.as_ref().is_some_and(|gate| gate.is_closed());
        let may_act = self.0.standing.may_act();
        let running = self.0.running.all();
        let kinds = self
            .0
            .settings
            .kinds
            .iter()
            .filter(|settings| self.0.executor.knows(&settings.kind));
        kinds
            .map(|settings| {
                let of_kind = running.iter().filter(|handle| handle.kind == settings.kind);
                let (ending, busy): (Vec<_>, Vec<_>) = of_kind.partition(|handle| handle.is_ending());
                let count = |runs: Vec<_>| u32::try_from(runs.len()).unwrap_or(u32::MAX);
                Usage {
                    kind: settings.kind.clone(),
                    cap: settings.cap,
                    running: count(busy),
                    ending: count(ending),
                    is_held: !may_act || (settings.needs_model && is_closed),
                }
            })
            .collect()
    }

    async fn idle_pause(&self, state: &mut Loop) -> Duration {
        if self.0.settings.lease.is_some() {
            let pause = state.pause;
            state.pause = (state.pause * 2).min(self.0.settings.poll_max.max(POLL_MIN));
            // What a dead process held is looked for the moment that its lease is over.
            let lapse = state.lapse_at.map(|at| at.saturating_duration_since(rt::now()));
            return lapse.map_or(pause, |left| pause.min(left.max(POLL_MIN)));
        }
        if state.adopt_until.is_some() {
            return self.0.settings.poll_max;
        }
        let wanted = wanted(&self.usage(), self.0.settings.concurrency, 0);
        let kinds: Vec<_> = wanted.into_iter().map(|(kind, _)| kind).collect();
        if kinds.is_empty() {
            return IDLE_MAX;
        }
        match self.0.ledger.next_due_of(&kinds).await {
            Ok(due) => due.map_or(IDLE_MAX, |span| span.as_std().clamp(POLL_MIN, IDLE_MAX)),
            Err(error) => {
                tracing::warn!(error = %error, "reading the next due time failed; trying again");
                self.0.settings.poll_max
            }
        }
    }

    fn start(&self, claimed: Claimed, span: Span, before: Instant, ended: &mpsc::Sender<RunEnd>) {
        let settings = self
            .0
            .settings
            .kinds
            .iter()
            .find(|settings| settings.kind == claimed.kind);
        let Some(settings) = settings else {
            return;
        };
        let gate = self.0.gate.clone().filter(|_| settings.needs_model);
        // What is left of the lease: an adopted item was claimed a while ago.
        let trusted_until = match claimed.held.holder().expiry {
            Expiry::Term => None,
            Expiry::At(at) => Some(before + at.since(claimed.claimed_at).as_std()),
        };
        let handle = Arc::new(RunHandle::new(
            claimed.held.clone(),
            claimed.kind.clone(),
            trusted_until,
        ));
        self.0.running.insert(Arc::clone(&handle));
        let running = Arc::clone(&handle);
        let run = Run {
            ledger: self.0.ledger.clone(),
            executor: Arc::clone(&self.0.executor),
            claimed,
            handle,
            freed: Arc::clone(&self.0.freed),
            timeout: settings.timeout,
            gate,
            below: span.below(),
        };
        let ended = ended.clone();
        rt::spawn(async move {
            // A panic where the end is written ends this run alone: its item is adopted, as after any end that got lost.
            let end = rt::spawn(run.execute(span)).await.unwrap_or(Ended::Lost);
            // The loop that would hear this may be gone; then nobody counts slots any more.
            let _ = ended.send((running, end)).await;
        });
    }

    /// Lets runs go on for the grace, then gives back what still runs. Heartbeats go on beside it.
    async fn drain(&self, state: &mut Loop) {
        let grace = rt::now() + self.0.settings.grace;
        self.await_runs(state, grace).await;
        for handle in self.0.running.all() {
            handle.stop(Stop::Drain);
        }
        self.await_runs(state, rt::now() + RELEASE_MAX).await;
        let left = self.0.running.len();
        if left > 0 {
            tracing::warn!(left, "runs did not end in time; their leases will expire");
        }
    }

    async fn await_runs(&self, state: &mut Loop, until: Instant) {
        while self.0.running.len() > 0 {
            tokio::select! {
                biased;
                Some((run, ended)) = state.ended.1.recv() => { self.forget(state, &run, &ended); }
                signal = state.cancels.recv() => self.cancelled(signal).await,
                () = rt::sleep_until(until) => return,
            }
        }
    }
}
