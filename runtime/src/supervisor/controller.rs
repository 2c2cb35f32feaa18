//! One logical Supervisor in one process: stands by, leads, admits, gives way.

use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ids::BindingName;
use powercontext_core::lease::Held;
use powercontext_core::supervise::fairness::rotation;
use powercontext_core::supervise::mode::SupervisorKey;
use powercontext_core::time::DbTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rt;
use crate::store::leases::LeaseName;
use crate::store::{TxError, TxName, intents};
use crate::supervisor::Shared;
use crate::supervisor::desk::{Desk, Rest};
use crate::supervisor::registry::Registration;
use crate::supervisor::status::{FamilyState, Leading};
use crate::supervisor::term::{self, Candidacy};

/// First pause of a family whose discovery failed; doubles up to [`AGAIN_MAX`].
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Longest sleep of a process that is alone: nothing depends on waking earlier.
const IDLE_MAX: Duration = Duration::from_hours(1);

pub(super) struct Controller {
    shared: Arc<Shared>,
    key: SupervisorKey,
    registrations: Vec<Arc<Registration>>,
}

/// A family and how its discovery fares.
struct Place {
    desk: Desk,
    failures: u32,
    not_before: Option<Instant>,
}

/// The term is over: nothing that it would write is written any more.
struct Over;

impl Controller {
    pub(super) fn new(shared: Arc<Shared>, key: SupervisorKey, registrations: Vec<Arc<Registration>>) -> Self {
        Self {
            shared,
            key,
            registrations,
        }
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        let mut candidacy = Candidacy::new(Arc::clone(&self.shared), self.key.clone());
        while !stop.is_cancelled() {
            let pause = match candidacy.stand().await {
                Ok(term) => {
                    let leading = self.lead(term.held(), term.over(), &stop);
                    tokio::select! { biased; () = term.over().cancelled() => {}, () = leading => {} }
                    candidacy.end(term).await;
                    Duration::ZERO
                }
                Err(pause) => pause,
            };
            tokio::select! { biased; () = stop.cancelled() => {}, () = rt::sleep(pause) => {} }
        }
    }

    /// Admits until the term is over, this process no longer fits the others, or `stop`.
    async fn lead(&self, held: &Held<LeaseName>, over: &CancellationToken, stop: &CancellationToken) {
        let Shared {
            ledger,
            settings,
            standing,
            ..
        } = &*self.shared;
        let mut places: Vec<Place> = self
            .registrations
            .iter()
            .map(|registration| Place {
                desk: Desk::new(
                    ledger.clone(),
                    held.clone(),
                    Arc::clone(registration),
                    settings.page_size,
                ),
                failures: 0,
                not_before: None,
            })
            .collect();
        let mut turn = 0;
        while !stop.is_cancelled() && standing.may_act() {
            // Registered before the look, so that what happens during it is not missed.
            let (pending, changed) = (ledger.signals().pending.notified(), ledger.signals().changed.notified());
            let Ok((rest, wants_room)) = self.cycle(&mut places, turn).await else {
                return over.cancel();
            };
            turn = turn.wrapping_add(1);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = pending => {}
                () = changed, if wants_room => {}
                () = rt::sleep(rest) => {}
            }
        }
    }

    /// Each family has its turn once. Answers how long to rest, and whether the start or end of an item ends the rest.
    async fn cycle(&self, places: &mut [Place], turn: usize) -> Result<(Duration, bool), Over> {
        let (now, pending) = match self.look().await {
            Ok(look) => look,
            Err(error) => {
                tracing::warn!(error = %error, "looking for pending work failed; trying again");
                return Ok((AGAIN_MIN, false));
            }
        };
        let discoverers = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let span = self.shared.ledger.tracer().tick(discoverers);
        let poll = self.shared.settings.poll;
        let (mut rest, mut wants_room) = (poll.unwrap_or(IDLE_MAX), false);
        for at in rotation(turn, places.len()) {
            let place = &mut places[at];
            match self.serve(place, now, pending[at]).await? {
                Rest::For(span) => rest = rest.min(span),
                Rest::Room => wants_room = true,
                Rest::Idle => {}
            }
        }
        // Each is asked, because asking forgets.
        let worked = places
            .iter_mut()
            .filter_map(|place| place.desk.take_worked().then_some(()));
        // A look that found nothing is silent.
        if worked.count() > 0 {
            span.end_as("leader");
        }
        Ok((rest, wants_room))
    }

    async fn look(&self) -> Result<(DbTime, Vec<bool>), TxError> {
        let names: Vec<BindingName> = self
            .registrations
            .iter()
            .map(|registration| registration.work.binding.clone())
            .collect();
        let names = Arc::new(names);
        let read = self
            .shared
            .ledger
            .db()
            .read_with(TxName::Scan, &names, |tx, names| Box::pin(intents::pending(tx, names)));
        read.await
    }

    async fn serve(&self, place: &mut Place, now: DbTime, is_pending: bool) -> Result<Rest, Over> {
        let begun = rt::now();
        if let Some(left) = place.not_before.and_then(|at| at.checked_duration_since(begun)) {
            return Ok(Rest::For(left));
        }
        let family = place.desk.registration().work.family.clone();
        let stepped = place.desk.step(now, is_pending).await;
        if let Some(metrics) = self.shared.ledger.db().metrics() {
            metrics.discovered(family.as_str(), rt::now().saturating_duration_since(begun));
        }
        match stepped {
            Ok(rest) => {
                place.failures = 0;
                place.not_before = None;
                if self.shared.status.set_family(&family, FamilyState::Ready) == Some(FamilyState::Degraded) {
                    tracing::info!(family = family.as_str(), "discovery works again");
                }
                Ok(rest)
            }
            Err(TxError::Fenced(_)) => Err(Over),
            Err(error) => {
                place.failures = place.failures.saturating_add(1);
                let pause = AGAIN_MIN.saturating_mul(1 << place.failures.min(5)).min(AGAIN_MAX);
                place.not_before = Some(rt::now() + pause);
                self.shared.status.set_family(&family, FamilyState::Degraded);
                term::discovery_failed(place.desk.registration(), &error, place.failures, pause);
                Ok(Rest::For(pause))
            }
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // A candidate that ended in order stands by no more; one that panicked is missed.
        let leading = if std::thread::panicking() {
            Leading::Failing
        } else {
            Leading::Standby
        };
        self.shared.status.set(&self.key, leading);
    }
}
