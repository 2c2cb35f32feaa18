//! Terms: how a candidate becomes the leader, stays it, and stops.
//!
//! Fences carry safety: each write of a term compares its own. The clock here only ends a term early, counted from before the
//! renewal was sent, so a leader whose renewals do not arrive stops admitting before anybody else may begin.

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::fence::Fence;
use powercontext_core::lease::{Expiry, Held};
use powercontext_core::supervise::mode::SupervisorKey;
use powercontext_core::time::Span;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::rt;
use crate::store::leases::{self, LeaseName};
use crate::store::modes::{self, Term, TermLength};
use crate::store::{Db, TxError, TxName};
use crate::supervisor::Shared;
use crate::supervisor::registry::Registration;
use crate::supervisor::status::Leading;
use crate::telemetry::metrics::LeadershipChange;

/// Longest pause between two looks at a lease that somebody holds.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Shortest.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// Pause after a look that failed or was in vain for a reason that does not go away by itself.
const AGAIN: Duration = Duration::from_secs(1);

/// A candidate for one lease.
pub(super) struct Candidacy {
    shared: Arc<Shared>,
    key: SupervisorKey,
    last: Option<Fence>,
}

/// A term that this process leads.
pub(super) struct Leadership {
    held: Held<LeaseName>,
    over: CancellationToken,
    renewing: Option<(DropGuard, JoinHandle<()>)>,
}

impl Leadership {
    pub(super) fn held(&self) -> &Held<LeaseName> {
        &self.held
    }

    /// Raised when the term is over, for whatever reason.
    pub(super) fn over(&self) -> &CancellationToken {
        &self.over
    }
}

impl Candidacy {
    pub(super) fn new(shared: Arc<Shared>, key: SupervisorKey) -> Self {
        Self {
            shared,
            key,
            last: None,
        }
    }

    /// Tries once to become the leader; answers how long to wait before the next try.
    pub(super) async fn stand(&mut self) -> Result<Leadership, Duration> {
        if !self.shared.standing.may_act() {
            self.becomes(Leading::Odd);
            return Err(AGAIN);
        }
        let sent = rt::now();
        match self.try_acquire().await {
            Ok(Ok(held)) => Ok(self.won(held, sent)),
            Ok(Err(pause)) => Err(pause),
            Err(error) => {
                self.becomes(Leading::Failing);
                tracing::warn!(error = %error, lease = %self.key, "the lease of a supervisor could not be looked at; trying again");
                Err(AGAIN)
            }
        }
    }

    async fn try_acquire(&self) -> Result<Result<Held<LeaseName>, Duration>, TxError> {
        let Shared { ledger, settings, .. } = &*self.shared;
        if let TermLength::Timed(_) = settings.length
            && let Some(left) = self.left().await?
        {
            self.becomes(Leading::Standby);
            return Ok(Err(left.as_std().clamp(LOOK_MIN, LOOK_MAX)));
        }
        let input = Arc::new((self.key.clone(), ledger.me().clone(), settings.length, settings.mode));
        let acquired = ledger
            .db()
            .tx_with(TxName::Lease, &input, |tx, (key, me, length, mode)| {
                Box::pin(modes::acquire(tx, key, me, *length, *mode))
            });
        Ok(match acquired.await? {
            Term::Won(held) => Ok(held),
            Term::Lost => {
                self.becomes(Leading::Standby);
                Err(LOOK_MIN)
            }
            Term::ForeignMode { stored } => {
                if self.becomes(Leading::ForeignMode) {
                    tracing::error!(
                        mode = settings.mode.as_str(),
                        stored = stored.as_str(),
                        "another mode of supervision is stored; this process does not lead until they agree"
                    );
                }
                Err(AGAIN)
            }
        })
    }

    /// How long another holder's lease lasts, if it does, without a lock.
    async fn left(&self) -> Result<Option<Span>, TxError> {
        let ledger = &self.shared.ledger;
        let input = Arc::new((LeaseName::Supervisor(self.key.clone()), ledger.me().clone()));
        let read = ledger.db().read_with(TxName::Lease, &input, |tx, (name, me)| {
            Box::pin(async move {
                let (seen, is_live) = leases::peek(tx, name.clone()).await?;
                let now = tx.now().await?;
                let other = seen.holder.filter(|holder| is_live && holder.member != *me);
                Ok(other.and_then(|holder| match holder.expiry {
                    Expiry::At(at) => Some(at.since(now)),
                    Expiry::Term => None,
                }))
            })
        });
        read.await
    }

    fn won(&mut self, held: Held<LeaseName>, sent: Instant) -> Leadership {
        let fence = held.fence();
        let change = match self.last {
            None => LeadershipChange::Acquired,
            Some(_) => LeadershipChange::Reacquired,
        };
        self.last = Some(fence);
        self.becomes(Leading::Leader(fence));
        self.count(change, Some(fence));
        tracing::info!(lease = %self.key, fence = %fence, "this process leads");
        let over = CancellationToken::new();
        let renewing = match self.shared.settings.length {
            TermLength::Process => None,
            TermLength::Timed(length) => {
                let stop = CancellationToken::new();
                let renewal = Renewal {
                    db: self.shared.ledger.db().clone(),
                    held: held.clone(),
                    length,
                    every: self.shared.settings.renew,
                    over: over.clone(),
                    stop: stop.clone(),
                };
                // However this term ends, also by a panic, its lease is not renewed any more.
                Some((stop.drop_guard(), rt::spawn(renewal.run(sent))))
            }
        };
        Leadership { held, over, renewing }
    }

    /// Stops renewing and gives the lease back, unless it is lost.
    pub(super) async fn end(&self, term: Leadership) {
        if let Some((stop, renewing)) = term.renewing {
            drop(stop);
            // It ends by itself now; a panic there was reported by its own hook.
            let _ = renewing.await;
        }
        self.becomes(Leading::Standby);
        self.count(LeadershipChange::Lost, None);
        if term.over.is_cancelled() {
            tracing::warn!(lease = %self.key, fence = %term.held.fence(), "this process leads no more: its term is over");
            return;
        }
        let held = Arc::new(term.held);
        let released = self
            .shared
            .ledger
            .db()
            .tx_with(TxName::Lease, &held, |tx, held| Box::pin(leases::release(tx, held)));
        match released.await {
            Ok(()) => tracing::info!(lease = %self.key, fence = %held.fence(), "the lease was given back"),
            Err(error) => {
                tracing::warn!(error = %error, lease = %self.key, "the lease could not be given back; it will expire");
            }
        }
    }

    fn becomes(&self, leading: Leading) -> bool {
        self.shared.status.set(&self.key, leading) != Some(leading)
    }

    fn count(&self, change: LeadershipChange, fence: Option<Fence>) {
        if let Some(metrics) = self.shared.ledger.db().metrics() {
            metrics.leadership_changed(change);
            metrics.set_fence(&self.key.name(), fence);
        }
    }
}

struct Renewal {
    db: Db,
    held: Held<LeaseName>,
    length: Span,
    every: Duration,
    over: CancellationToken,
    stop: CancellationToken,
}

impl Renewal {
    /// Renews until `stop`, or until the term is over. `sent`: when the last request that succeeded was sent.
    async fn run(self, sent: Instant) {
        let mut trusted_until = sent + self.length.as_std();
        let mut next = sent + self.every;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.over.cancelled() => return,
                () = rt::sleep_until(trusted_until) => return self.over.cancel(),
                () = rt::sleep_until(next) => {}
            }
            let sent = rt::now();
            let mut renewed = std::pin::pin!(self.renew());
            let renewed = tokio::select! {
                biased;
                renewed = &mut renewed => renewed,
                () = rt::sleep_until(trusted_until) => return self.over.cancel(),
            };
            match renewed {
                Ok(()) => {
                    trusted_until = sent + self.length.as_std();
                    next = sent + self.every;
                }
                Err(TxError::Fenced(_)) => return self.over.cancel(),
                Err(error) => {
                    tracing::warn!(error = %error, "the lease of a supervisor could not be renewed; trying again");
                    next = rt::now() + AGAIN.min(self.every);
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), TxError> {
        let input = Arc::new((self.held.clone(), self.length));
        let renewed = self
            .db
            .autocommit_with(TxName::Heartbeat, &input, |tx, (held, length)| {
                Box::pin(leases::renew(tx, held, *length))
            });
        renewed.await.map(|_| ())
    }
}

/// Logs the failed discovery of a family, once a failure.
pub(super) fn discovery_failed(registration: &Registration, error: &TxError, failures: u32, delay: Duration) {
    tracing::warn!(
        binding = registration.work.binding.as_str(),
        family = registration.work.family.as_str(),
        stage = "discovery",
        code = error.label(),
        error = %error,
        failures,
        delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
        "artifact_processing.failed"
    );
}
