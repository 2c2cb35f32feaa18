//! What the tests of supervision share: processes that lead or stand by on one database, and short words for what they see.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use powercontext::ledger::{AdmitRequest, Cause, KindSpec, Ledger};
use powercontext::rt;
use powercontext::store::leases::LeaseName;
use powercontext::store::modes::{self, Term, TermLength};
use powercontext::store::{TxError, TxName, bindings};
use powercontext::supervisor::members::Standing;
use powercontext::supervisor::{Leading, PendingWork, Registration, Registry, Supervisor, SupervisorSettings};
use powercontext_core::ids::{ScopeId, WorkId};
use powercontext_core::lease::Held;
use powercontext_core::schedule::Schedule;
use powercontext_core::supervise::mode::{Mode, SupervisorKey};
use powercontext_core::supervise::scan::{PendingSeq, ScanGeneration, ScanState};
use powercontext_core::time::Span;
use powercontext_tests::wait::until;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ledger_kit::{Kit, THREE_ATTEMPTS, binding};

/// Long enough for a slow machine; no test waits for it when all is well.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);
/// A schedule whose second check no test lives to see.
pub(crate) const RARELY: Schedule = Schedule::Interval(Span::seconds(36_000));
/// A term that no test outlives.
pub(crate) const LONG_TERM: TermLength = TermLength::Timed(Span::seconds(600));

pub(crate) fn memory(schedule: Schedule) -> Registration {
    Registration {
        work: KindSpec::memory(THREE_ATTEMPTS),
        prefix: "MEMORY".to_owned(),
        schedule,
        pending: PendingWork::Sources,
        wanted: None,
        workers_max: None,
        timeout: Span::seconds(600),
        is_triggerable: true,
    }
}

pub(crate) fn settings(mode: Mode, length: TermLength) -> SupervisorSettings {
    SupervisorSettings {
        mode,
        length,
        renew: Duration::from_secs(1),
        page_size: 10,
        poll: Some(Duration::from_millis(100)),
    }
}

/// A process that supervises Memory until it is dropped or stopped.
pub(crate) struct Process {
    pub(crate) supervisor: Supervisor,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(ledger: &Ledger, schedule: Schedule, settings: SupervisorSettings) -> Self {
        Self::with(ledger, vec![memory(schedule)], settings, Standing::alone())
    }

    pub(crate) fn with(
        ledger: &Ledger,
        registrations: Vec<Registration>,
        settings: SupervisorSettings,
        standing: Standing,
    ) -> Self {
        let registry = Registry::new(registrations).unwrap_or_else(|faults| panic!("{faults:?}"));
        let supervisor = Supervisor::new(ledger.clone(), registry, settings, standing);
        let stop = CancellationToken::new();
        let (running, stopped) = (supervisor.clone(), stop.clone());
        let task = rt::spawn(async move { running.run(stopped).await });
        Self {
            supervisor,
            stop,
            task: Some(task),
        }
    }

    /// Ends in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.await?;
        }
        Ok(())
    }

    pub(crate) fn leading(&self, key: &SupervisorKey) -> Option<Leading> {
        self.supervisor.status().supervisors().get(key).copied()
    }

    pub(crate) async fn leads(&self, key: &SupervisorKey) -> anyhow::Result<i64> {
        until("a leader", WITHIN, async || {
            Ok(match self.leading(key) {
                Some(Leading::Leader(fence)) => Some(fence.to_row()),
                _ => None,
            })
        })
        .await
    }

    pub(crate) async fn is(&self, leading: Leading) -> anyhow::Result<()> {
        until("a standing", WITHIN, async || {
            Ok((self.leading(&SupervisorKey::Global) == Some(leading)).then_some(()))
        })
        .await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // As abrupt as a kill: nothing is given back.
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Kit {
    /// A term of the global Supervisor for a process.
    pub(crate) async fn term(&self, ledger: &Ledger) -> anyhow::Result<Held<LeaseName>> {
        match self.stand(ledger, &SupervisorKey::Global, Mode::Global).await? {
            Term::Won(held) => Ok(held),
            other => bail!("not won: {other:?}"),
        }
    }

    pub(crate) async fn stand(&self, ledger: &Ledger, key: &SupervisorKey, mode: Mode) -> anyhow::Result<Term> {
        let input = Arc::new((key.clone(), ledger.me().clone(), mode));
        let stood = self.db().tx_with(TxName::Lease, &input, |tx, (key, me, mode)| {
            Box::pin(modes::acquire(tx, key, me, LONG_TERM, *mode))
        });
        Ok(stood.await?)
    }

    pub(crate) async fn admit(
        &self,
        ledger: &Ledger,
        term: &Held<LeaseName>,
        scope: &ScopeId,
        cause: Cause,
    ) -> Result<Option<WorkId>, TxError> {
        let request = AdmitRequest {
            kind: memory(RARELY).work.kind,
            scope: scope.clone(),
            cause,
            wanted: None,
        };
        ledger.admit(term, request).await
    }

    /// The stored state of Memory's checks, and the place of its scan.
    pub(crate) async fn scan(&self) -> anyhow::Result<(ScanState, PendingSeq)> {
        let read = self.db().read(TxName::Load, |tx| {
            Box::pin(async move { bindings::get(tx, &binding()).await })
        });
        Ok(read.await?)
    }

    /// Lets the leases of all Supervisors run out.
    pub(crate) async fn end_terms(&self) -> anyhow::Result<()> {
        let mut raw = self.raw().await?;
        let ago = raw.ago(1);
        let sql = format!("update pc_scheduler_leases set lease_expires_at = {ago} where lease_name = 'global'");
        raw.execute(&sql).await?;
        Ok(())
    }

    /// Waits for so many items that are not over, and answers their scopes.
    pub(crate) async fn live_scopes(&self, count: usize) -> anyhow::Result<BTreeSet<String>> {
        until(&format!("{count} live items"), WITHIN, async || {
            let mut raw = self.raw().await?;
            let sql = "select scope_id from pc_work_items where status not in ('succeeded', 'cancelled')";
            let rows = raw.rows(sql).await?;
            let scopes: anyhow::Result<Vec<String>> = rows.iter().map(|row| row.text(0)).collect();
            let scopes = scopes?;
            anyhow::ensure!(scopes.len() <= count, "{} live items instead of {count}", scopes.len());
            Ok((scopes.len() == count).then(|| scopes.into_iter().collect()))
        })
        .await
    }

    pub(crate) async fn scan_is(
        &self,
        what: &str,
        is: impl Fn(&ScanState, PendingSeq) -> bool,
    ) -> anyhow::Result<ScanState> {
        until(what, WITHIN, async || {
            let (state, place) = self.scan().await?;
            Ok(is(&state, place).then_some(state))
        })
        .await
    }
}

pub(crate) fn scan(number: u64) -> Cause {
    Cause::Scan(ScanGeneration::from_row(number))
}
