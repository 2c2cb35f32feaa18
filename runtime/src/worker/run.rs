//! One run from hand-over to its recorded end.
//!
//! The family's code runs on a task of its own, so that its panic is a failed attempt and nothing more. Its end is written
//! as often as it takes while the lease can be trusted; after that somebody else decides about the item (I10). A run that
//! needs a model asks the provider gate before it begins, and a provider failure that the gate puts down to a known outage
//! gives the item back instead of costing it an attempt. So does a database that is out of reach when the run reads.

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::fail::FailCode;
use powercontext_core::usage::{ModelOperation, Purpose};
use powercontext_core::work::gate::{self, Ticket, Verdict};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::families;
use crate::inference::Usage;
use crate::ledger::{Claimed, Ended, Ledger};
use crate::rt;
use crate::store::usage::{self, Spent};
use crate::store::{FenceLost, TxError};
use crate::telemetry::metrics::InvocationEnd;
use crate::telemetry::trace::{Below, Span};
use crate::worker::executor::Executor;
use crate::worker::gate::ProviderGate;
use crate::worker::host::{StoreHost, ledger_done};
use crate::worker::running::{RunHandle, Stop};
use crate::worker::spans;

/// Pauses between tries to write an end that the database does not take just now.
const END_PAUSE_MIN: Duration = Duration::from_millis(50);
const END_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long an end is tried where a lease has no time of its own.
const END_TRIES_FOR: Duration = Duration::from_mins(2);

/// How long a stopped run may take to end: a second from SIGTERM to SIGKILL, and five more (`design.md` §2).
const EXIT_MAX: Duration = Duration::from_secs(6);

/// How the family's part ended.
enum End {
    Done(Box<families::Done>),
    Failed(FailCode),
    Conflict(FailCode),
    Released,
    /// Nobody may write anything about the item here any more.
    Lost,
}

/// A claimed item in execution.
pub(super) struct Run {
    pub(super) ledger: Ledger,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) claimed: Claimed,
    pub(super) handle: Arc<RunHandle>,
    /// Hears that the family's part is over and the slot free.
    pub(super) freed: Arc<Notify>,
    pub(super) timeout: Duration,
    /// Set for a kind that needs a model.
    pub(super) gate: Option<Arc<ProviderGate>>,
    /// Where the spans of its transactions belong.
    pub(super) below: Below,
}

impl Run {
    /// Runs the item and records its end, also as that of `span`.
    pub(super) async fn execute(self, span: Span) -> Ended {
        let begun = rt::now();
        let end = self.family().await;
        self.handle.ends();
        self.freed.notify_one();
        self.note(&end, rt::now().saturating_duration_since(begun));
        let usage = match &end {
            End::Done(done) => done.usage,
            _ => Usage::default(),
        };
        let ended = self.record(end).await;
        tracing::info!(
            kind = self.claimed.kind.as_str(),
            work_id = %self.claimed.held.key(),
            attempt = self.claimed.attempt.get(),
            outcome = ended.label(),
            "an attempt ended"
        );
        spans::executed(span, &ended);
        self.add_up(usage).await;
        ended
    }

    /// Counts the invocation, and logs its failure, once.
    fn note(&self, end: &End, took: Duration) {
        let Some(spec) = self.ledger.kinds().get(&self.claimed.kind) else {
            return;
        };
        let counted = match end {
            End::Done(_) => InvocationEnd::Completed,
            End::Failed(FailCode::WorkerTimeout) => InvocationEnd::TimedOut,
            End::Failed(FailCode::CancelRequested) | End::Conflict(_) | End::Released | End::Lost => {
                InvocationEnd::Neither
            }
            End::Failed(_) => InvocationEnd::Failed,
        };
        if let Some(metrics) = self.ledger.db().metrics() {
            metrics.invoked(spec.family.as_str(), took, counted);
        }
        if let (End::Failed(code), InvocationEnd::Failed | InvocationEnd::TimedOut) = (end, counted) {
            let held = &self.claimed.held;
            let delay = spec.retry.delay_max(self.claimed.budget_used);
            tracing::warn!(
                binding = spec.binding.as_str(),
                family = spec.family.as_str(),
                work_id = %held.key(),
                trigger = self.claimed.trigger(),
                generation = self.claimed.requested.get(),
                member = held.member().as_str(),
                fence = %held.fence(),
                stage = "run",
                code = code.code(),
                error_type = code.category(),
                failures = self.claimed.budget_used,
                delay_ms = delay.as_millis(),
                "artifact_processing.failed"
            );
        }
    }

    /// Adds what the model cost to the statistics, whatever became of its result; never the work's concern.
    async fn add_up(&self, usage: Usage) {
        let family = self.ledger.kinds().get(&self.claimed.kind).map(|spec| &spec.family);
        let Some(purpose) = family.and_then(Purpose::of).filter(|_| usage.requests > 0) else {
            return;
        };
        let spent = Spent {
            scope: self.claimed.scope.clone(),
            purpose,
            operation: ModelOperation::Generation,
            requests: usage.requests.into(),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            input_complete: usage.input_complete,
            output_complete: usage.output_complete,
        };
        if let Err(error) = usage::add(self.ledger.db(), spent).await {
            tracing::warn!(error = error.label(), "the cost of a run is missing in the statistics");
        }
    }

    async fn family(&self) -> End {
        if !serde_json::from_slice::<serde_json::Value>(&self.claimed.payload).is_ok_and(|payload| payload.is_object())
        {
            return End::Failed(FailCode::InvalidPayload);
        }
        let ticket = self.gate.as_ref().map(|gate| gate.begin());
        if ticket == Some(None) {
            // It was claimed while the gate closed.
            return End::Released;
        }
        let ticket = ticket.flatten();
        let host = StoreHost::new(self.ledger.clone(), self.claimed.clone(), self.below.clone());
        if self.executor.is_elsewhere(&self.claimed.kind)
            && let Some(done) = host.nothing_pending().await
        {
            return End::Done(Box::new(done));
        }
        let host = Arc::new(host);
        let store = Arc::clone(&host);
        let (executor, handle) = (Arc::clone(&self.executor), &self.handle);
        let cancel = handle.cancel.clone();
        let (kind, scope) = (self.claimed.kind.clone(), self.claimed.scope.clone());
        let mut task = rt::spawn(async move { executor.run(&kind, &scope, host, &cancel).await });
        let result = tokio::select! {
            biased;
            () = handle.cancel.raised() => None,
            result = &mut task => Some(result),
            () = rt::sleep(self.timeout) => { handle.stop(Stop::Timeout); None }
        };
        let Some(result) = result else {
            self.await_exit(task).await;
            return self.stopped();
        };
        if let Some(ticket) = ticket
            && let Ok(run) = &result
            && self.is_outage(ticket, run)
        {
            return End::Released;
        }
        match result {
            Ok(Ok(done)) => End::Done(Box::new(done)),
            Ok(Err(code @ (FailCode::CursorChanged | FailCode::HeadChanged))) => End::Conflict(code),
            Ok(Err(FailCode::LeaseExpired)) => End::Lost,
            Ok(Err(code)) if store.is_outage(code) => End::Released,
            Ok(Err(code)) => End::Failed(code),
            Err(_) => End::Failed(FailCode::Unhandled),
        }
    }

    /// Tells the gate how the provider served the run; whether it failed as a known outage makes it.
    fn is_outage(&self, ticket: Ticket, run: &Result<families::Done, FailCode>) -> bool {
        let Some(gate) = &self.gate else {
            return false;
        };
        match run {
            Ok(done) if done.usage.requests > 0 => gate.answered(ticket),
            Err(FailCode::ProviderInvalidOutput) => gate.answered(ticket),
            Err(code) if gate::is_outage(*code) => {
                return gate.failed(ticket, &self.claimed.scope, *code) == Verdict::Release;
            }
            // Nothing that the provider had a part in.
            Ok(_) | Err(_) => {}
        }
        false
    }

    /// Waits until a stopped run has ended, so that nothing of it goes on beside the next one. A run that cannot be ended
    /// keeps its slot, and its lease runs out.
    async fn await_exit<T>(&self, mut task: JoinHandle<T>) {
        // Whatever a stopped run says does not count any more.
        if rt::within(EXIT_MAX, &mut task).await.is_err() {
            self.handle.abandon();
            tracing::error!(
                kind = self.claimed.kind.as_str(),
                work_id = %self.claimed.held.key(),
                "a stopped run does not end: its lease is given up and its slot stays taken until it does"
            );
            let _ = task.await;
        }
    }

    fn stopped(&self) -> End {
        match self.handle.stopped() {
            Some(Stop::Operator) | None => End::Failed(FailCode::CancelRequested),
            Some(Stop::Drain) => End::Released,
            Some(Stop::LeaseLost) => End::Lost,
            Some(Stop::Timeout) => End::Failed(FailCode::WorkerTimeout),
        }
    }

    /// Writes the end until the database has taken it or the lease cannot be trusted any more. The lease is renewed beside it,
    /// but not for ever (`core::work::ends`).
    async fn record(&self, mut end: End) -> Ended {
        if !matches!(end, End::Lost) {
            self.handle.tries_end();
        }
        let give_up = rt::now() + END_TRIES_FOR;
        let mut pause = END_PAUSE_MIN;
        let mut is_unknown = false;
        loop {
            let written = match self.write(&end).await {
                // What took the item away may be our own end, whose reply was lost.
                Ok(Ended::Lost) if is_unknown => {
                    let ended = self.ledger.outcome(&self.claimed).await;
                    ended.map(|ended| ended.unwrap_or(Ended::Lost))
                }
                written => written,
            };
            let error = match written {
                Ok(ended) => return ended,
                Err(error) => error,
            };
            is_unknown |= error == TxError::Unknown;
            match error {
                TxError::Refused(code @ (FailCode::CursorChanged | FailCode::HeadChanged)) => end = End::Conflict(code),
                TxError::Busy(_) | TxError::Down(_) | TxError::Unknown => {
                    if rt::now() >= self.handle.trusted_until().unwrap_or(give_up) {
                        return Ended::Lost;
                    }
                    tracing::warn!(error = %error, "the end of an attempt could not be written yet; trying again");
                    rt::sleep(pause).await;
                    pause = (pause * 2).min(END_PAUSE_MAX);
                }
                TxError::Fenced(FenceLost::Item | FenceLost::Lease | FenceLost::Term) => return Ended::Lost,
                error if matches!(end, End::Done(_)) => {
                    tracing::error!(error = %error, "the result of an attempt was refused by the database");
                    end = End::Failed(FailCode::Unhandled);
                }
                error => {
                    tracing::error!(error = %error, "the end of an attempt was refused by the database");
                    return Ended::Lost;
                }
            }
        }
    }

    async fn write(&self, end: &End) -> Result<Ended, TxError> {
        match end {
            End::Done(done) => {
                let span = spans::commit(&self.below, &self.ledger, &self.claimed);
                let ended = self
                    .ledger
                    .finish(&self.claimed, ledger_done(done, &span.below()))
                    .await;
                spans::committed(span, &ended);
                ended
            }
            End::Failed(code) => {
                let span = spans::retry(&self.below, &self.claimed, *code);
                let ended = self.ledger.fail(&self.claimed, *code).await;
                spans::retried(span, &ended);
                ended
            }
            End::Conflict(code) => {
                let span = spans::retry(&self.below, &self.claimed, *code);
                let ended = self.ledger.conflict(&self.claimed, *code).await;
                spans::retried(span, &ended);
                ended
            }
            End::Released => self.ledger.release(&self.claimed).await,
            End::Lost => Ok(Ended::Lost),
        }
    }
}
