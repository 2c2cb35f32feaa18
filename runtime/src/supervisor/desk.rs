//! One family in the hands of a leader: what it has to do next, in small steps.
//!
//! First the dirty marks that were lost are found again, once a term; then what is owed and has no item; then the scan. A
//! step reads bounded pages and gives way after [`STEP_MAX`], so a large family never keeps the others waiting.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use powercontext_core::ids::ScopeId;
use powercontext_core::lease::Held;
use powercontext_core::supervise::scan::{Next, PendingSeq, ScanState};
use powercontext_core::time::DbTime;
use tokio::time::Instant;

use crate::ledger::{AdmitRequest, Cause, Ledger};
use crate::rt;
use crate::store::leases::LeaseName;
use crate::store::{Dialect, TxError};
use crate::supervisor::registry::{PendingWork, Registration};
use crate::supervisor::scan::Rows;

/// Longest step of one family before the next has its turn.
const STEP_MAX: Duration = Duration::from_secs(2);
/// Pause between two pages.
const PAGE_PAUSE: Duration = Duration::from_millis(10);
/// How often what is owed is searched for. It is owed without an item only when rows were lost, so this is a safeguard.
const DEBTS_EVERY: Duration = Duration::from_mins(1);
/// Admissions on their way at once, where transactions run beside each other.
const ADMISSIONS_AT_ONCE: usize = 4;

/// When a family wants attention again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// After this time.
    For(Duration),
    /// When items of it have started or ended.
    Room,
    /// When something becomes pending.
    Idle,
}

#[derive(Debug)]
enum Search<P> {
    /// From here on.
    At(P),
    /// Through; the next begins then, if ever.
    Over(Option<Instant>),
}

/// A family under one term.
pub(super) struct Desk {
    ledger: Ledger,
    rows: Rows,
    page_size: u32,
    state: Option<(ScanState, PendingSeq)>,
    marks: Search<Option<ScopeId>>,
    debts: Search<PendingSeq>,
    /// A scan of the system's work has begun, and its end was not seen yet.
    is_system_busy: bool,
    /// Whether a step has written something.
    has_worked: bool,
}

impl Desk {
    pub(super) fn new(ledger: Ledger, term: Held<LeaseName>, registration: Arc<Registration>, page_size: u32) -> Self {
        let marks = match registration.pending {
            PendingWork::Sources => Search::At(None),
            PendingWork::Marks | PendingWork::System(_) => Search::Over(None),
        };
        let rows = Rows {
            db: ledger.db().clone(),
            term,
            registration,
        };
        Self {
            ledger,
            rows,
            page_size,
            state: None,
            marks,
            debts: Search::At(PendingSeq::START),
            is_system_busy: false,
            has_worked: false,
        }
    }

    pub(super) fn registration(&self) -> &Arc<Registration> {
        &self.rows.registration
    }

    /// Whether something was written since the last time this was asked.
    pub(super) fn take_worked(&mut self) -> bool {
        std::mem::take(&mut self.has_worked)
    }

    /// Does what there is to do, for at most [`STEP_MAX`]. After an error the rows are read again.
    pub(super) async fn step(&mut self, now: DbTime, is_pending: bool) -> Result<Rest, TxError> {
        let result = self.steps(now, is_pending).await;
        if result.is_err() {
            self.state = None;
        }
        result
    }

    async fn steps(&mut self, now: DbTime, is_pending: bool) -> Result<Rest, TxError> {
        let until = rt::now() + STEP_MAX;
        loop {
            let more = self.search().await?;
            let rest = self.scan(now, is_pending).await?;
            if let (false, Some(rest)) = (more, rest) {
                return Ok(self.or_debts(rest));
            }
            if rt::now() >= until {
                return Ok(Rest::For(PAGE_PAUSE));
            }
            rt::sleep(PAGE_PAUSE).await;
        }
    }

    /// One page of lost marks and one of debts. `true` when there is more of either.
    async fn search(&mut self) -> Result<bool, TxError> {
        if let Search::At(after) = &self.marks {
            let page = self.rows.unread(after.clone(), self.page_size).await?;
            if !page.lost.is_empty() {
                let lost = page.lost.len();
                self.has_worked = true;
                self.rows.mark(page.lost).await?;
                tracing::info!(recovered = lost, "scopes with unread sources were marked again");
            }
            self.marks = match page.last {
                Some(last) => Search::At(Some(last)),
                None => Search::Over(None),
            };
        }
        if matches!(self.debts, Search::Over(Some(again)) if again <= rt::now()) {
            self.debts = Search::At(PendingSeq::START);
        }
        if let Search::At(after) = self.debts {
            let (lost, next) = self.rows.owed(after, self.page_size).await?;
            for scope in lost {
                if self.admit(scope, Cause::Debt).await? {
                    tracing::warn!("an invocation that was owed had no work item and has one again");
                }
            }
            // Alone on its file a process loses no rows to others: once is enough.
            let again = (self.rows.db.dialect() == Dialect::OceanBase).then(|| rt::now() + DEBTS_EVERY);
            self.debts = next.map_or(Search::Over(again), Search::At);
        }
        Ok(matches!(self.marks, Search::At(_)) || matches!(self.debts, Search::At(_)))
    }

    fn or_debts(&self, rest: Rest) -> Rest {
        match (&self.debts, rest) {
            (Search::Over(Some(again)), Rest::For(span)) => {
                Rest::For(span.min(again.saturating_duration_since(rt::now())))
            }
            _ => rest,
        }
    }

    async fn admit(&self, scope: ScopeId, cause: Cause) -> Result<bool, TxError> {
        let request = AdmitRequest {
            kind: self.rows.registration.work.kind.clone(),
            scope,
            cause,
            wanted: self.rows.registration.wanted.clone(),
        };
        Ok(self.ledger.admit(&self.rows.term, request).await?.is_some())
    }

    /// One step of the scan; `None` when another may follow at once.
    async fn scan(&mut self, now: DbTime, is_pending: bool) -> Result<Option<Rest>, TxError> {
        let (state, place) = match self.state {
            Some(known) => known,
            None => self.rows.load().await?,
        };
        let system = self.rows.registration.system_scope().cloned();
        let state = match (&system, state.checkpoint) {
            // A new deployment has nothing to clean up: the first time comes after one interval.
            (Some(_), None) => self.rows.rest().await?,
            _ => state,
        };
        self.state = Some((state, place));
        let schedule = &self.rows.registration.schedule;
        let next = state.next(schedule, now, is_pending || system.is_some(), true);
        match next {
            Next::End => {
                self.has_worked = true;
                self.state = Some((self.rows.end().await?, PendingSeq::START));
                Ok(None)
            }
            Next::Begin { .. } => self.begin(false).await,
            Next::Page => self.page(state, place).await,
            Next::Full => Ok(Some(Rest::Room)),
            Next::Rest(moment) => {
                let is_watched = is_pending || self.is_system_busy;
                if let Some(scope) = system.filter(|_| is_watched && schedule.is_enabled()) {
                    match self.rows.system(&scope).await? {
                        // A run left something over: the next one is due at once.
                        (true, false) => return self.begin(true).await,
                        // It runs; its end says whether something is left.
                        (true, true) => return Ok(Some(Rest::Room)),
                        (false, _) => self.is_system_busy = false,
                    }
                }
                let span = moment.map(|moment| Rest::For(moment.since(now).as_std() + Duration::from_millis(1)));
                Ok(Some(span.unwrap_or(Rest::Idle)))
            }
        }
    }

    async fn begin(&mut self, regardless: bool) -> Result<Option<Rest>, TxError> {
        if self.rows.room().await? == 0 {
            return Ok(Some(Rest::Room));
        }
        let state = self.rows.begin(regardless).await?;
        self.has_worked = true;
        self.is_system_busy = true;
        self.state = Some((state, PendingSeq::START));
        // Not due after all by a hair: the next look tells when.
        Ok(state.upper.is_none().then_some(Rest::For(PAGE_PAUSE)))
    }

    async fn page(&mut self, state: ScanState, place: PendingSeq) -> Result<Option<Rest>, TxError> {
        let Some(upper) = state.upper else { return Ok(None) };
        let room = self.rows.room().await?;
        if room == 0 {
            return Ok(Some(Rest::Room));
        }
        self.has_worked = true;
        let page = self.rows.dirty(place, upper, self.page_size).await?;
        let is_last = page.len() < self.page_size as usize;
        // A scope with an invocation that is not over is busy: its item reads what is pending.
        let free = page.iter().filter(|pending| !pending.is_owed);
        let chosen: Vec<_> = free.take(room as usize).cloned().collect();
        let rest_is_busy = page.iter().filter(|pending| !pending.is_owed).count() == chosen.len();
        let place = match chosen.last() {
            Some(last) if !rest_is_busy => last.seq,
            _ => page.last().map_or(place, |last| last.seq),
        };
        let scopes = chosen.into_iter().map(|pending| pending.scope);
        let mut admissions = stream::iter(scopes)
            .map(|scope| self.admit(scope, Cause::Scan(state.generation)))
            .buffer_unordered(ADMISSIONS_AT_ONCE);
        let mut failed = None;
        // All of them end before an error is told: none is left behind on its way.
        while let Some(admitted) = admissions.next().await {
            failed = failed.or(admitted.err());
        }
        drop(admissions);
        if let Some(error) = failed {
            return Err(error);
        }
        let state = if is_last && rest_is_busy {
            self.rows.end().await?
        } else {
            self.rows.place(place).await?
        };
        self.state = Some((state, place));
        Ok(None)
    }
}
