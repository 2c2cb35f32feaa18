//! The worker's end of a family's only door: reads from the store, writes under the run's lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use powercontext_core::fail::FailCode;

use crate::families::memory::{load, read};
use crate::families::{
    self, Committed, DomainWrite, HostError, Load, Loaded, ProcessorHost, Reserve, Reserved, Search, SearchHit,
};
use crate::ledger::{self, Claimed, Ledger};
use crate::store::standing::Standing;
use crate::store::{Down, TxError, TxName, cursors};
use crate::telemetry::trace::Below;
use crate::worker::spans;

/// Answers one run from the store.
pub(super) struct StoreHost {
    ledger: Ledger,
    claimed: Claimed,
    below: Below,
    /// Where the scope stood before the run began, for its first load.
    standing: Mutex<Option<Standing>>,
    /// Whether a request of the run met a database that was out of reach or busy.
    was_away: AtomicBool,
}

impl StoreHost {
    /// The host of a claimed item; `below` is where the spans of its transactions belong.
    pub(super) fn new(ledger: Ledger, claimed: Claimed, below: Below) -> Self {
        Self {
            ledger,
            claimed,
            below,
            standing: Mutex::default(),
            was_away: AtomicBool::new(false),
        }
    }

    /// Whether this is how a run ends that the database failed: nothing of that is the item's doing.
    pub(super) fn is_outage(&self, code: FailCode) -> bool {
        code == HostError::Unavailable.fail_code() && self.was_away.load(Ordering::Relaxed)
    }

    fn error(&self, error: &TxError) -> HostError {
        let told = host_error(error);
        if told == HostError::Unavailable {
            self.was_away.store(true, Ordering::Relaxed);
        }
        told
    }

    /// The end of an item whose cursor stands at the journal head already: it needs nobody to run it. Whatever cannot be
    /// read here is left to the run.
    pub(super) async fn nothing_pending(&self) -> Option<families::Done> {
        #[cfg(feature = "test-families")]
        if let Some(spec) = self.test_family() {
            let done = families::test_only::nothing_pending(self.ledger.db(), &self.claimed.scope, spec).await;
            return done.ok()?;
        }
        let standing = load::standing(self.ledger.db(), &self.claimed.scope).await.ok()?;
        let done = load::nothing_pending(&standing);
        *self.standing() = Some(standing);
        done
    }

    fn standing(&self) -> MutexGuard<'_, Option<Standing>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind of the run, if it is that of a family that only tests have.
    #[cfg(feature = "test-families")]
    fn test_family(&self) -> Option<&ledger::KindSpec> {
        let spec = self.ledger.kinds().get(&self.claimed.kind);
        spec.filter(|spec| families::test_only::is_one(spec))
    }

    fn belongs(&self, write: &DomainWrite) -> Result<(), HostError> {
        let scope = match write {
            DomainWrite::Memory(memory) => &memory.scope,
            #[cfg(feature = "test-families")]
            DomainWrite::TestOnly(step) => &step.scope,
        };
        // A run may write its own scope and no other, whatever its executor sends.
        if *scope == self.claimed.scope {
            Ok(())
        } else {
            Err(HostError::Refused(FailCode::Unhandled))
        }
    }
}

#[async_trait]
impl ProcessorHost for StoreHost {
    async fn load(&self, request: Load) -> Result<Loaded, HostError> {
        #[cfg(feature = "test-families")]
        if let Some(spec) = self.test_family() {
            let loaded = families::test_only::load(self.ledger.db(), &self.claimed.scope, spec).await;
            return loaded.map_err(|error| self.error(&error));
        }
        let standing = self.standing().take();
        load::load_from(self.ledger.db(), &self.claimed.scope, request, standing)
            .await
            .map_err(|error| self.error(&error))
    }

    async fn search(&self, request: Search) -> Result<Vec<SearchHit>, HostError> {
        let found = read::search(self.ledger.db(), &self.claimed.scope, &request.query, request.limit).await;
        let hits = found.map_err(|error| match error {
            read::SearchError::HeadMoves => HostError::Conflict(FailCode::HeadChanged),
            read::SearchError::Tx(error) => self.error(&error),
        })?;
        let hit = |hit: read::Hit| SearchHit {
            citation: hit.citation,
            text: hit.text,
            score: hit.score,
        };
        Ok(hits.hits.into_iter().map(hit).collect())
    }

    async fn reserve(&self, _request: Reserve) -> Result<Reserved, HostError> {
        // Memory has no allowance of its own: its one request a window is bounded by the item's budget of attempts.
        Ok(Reserved::Granted)
    }

    async fn commit_window(&self, write: DomainWrite) -> Result<Committed, HostError> {
        self.belongs(&write)?;
        let span = spans::commit(&self.below, &self.ledger, &self.claimed);
        let committed = self
            .ledger
            .commit_window(&self.claimed, ledger_write(&write, &span.below()))
            .await;
        spans::committed(span, &committed);
        committed.map_err(|error| self.error(&error))?;
        let binding = self
            .ledger
            .kinds()
            .get(&self.claimed.kind)
            .map(|spec| spec.binding.clone());
        let binding = binding.ok_or(HostError::Refused(FailCode::Unhandled))?;
        let key = Arc::new((self.claimed.scope.clone(), binding));
        let cursor = self.ledger.db().read_with(TxName::Load, &key, |tx, (scope, binding)| {
            Box::pin(cursors::get(tx, scope, binding))
        });
        Ok(Committed {
            cursor: cursor.await.map_err(|error| self.error(&error))?,
        })
    }
}

fn host_error(error: &TxError) -> HostError {
    match error {
        TxError::Refused(code @ (FailCode::CursorChanged | FailCode::HeadChanged)) => HostError::Conflict(*code),
        TxError::Refused(FailCode::CancelRequested) => HostError::Cancelled,
        TxError::Refused(code) => HostError::Refused(*code),
        TxError::Fenced(_) => HostError::LeaseLost,
        TxError::Busy(_)
        | TxError::Unknown
        | TxError::Down(Down::Connection | Down::Deadline | Down::Access | Down::NoSuchDatabase) => {
            HostError::Unavailable
        }
        // Nothing that passes: to give the item back for it would be to run it for ever.
        TxError::Constraint | TxError::Rows { .. } | TxError::Corrupt(_) | TxError::Down(_) => {
            HostError::Refused(FailCode::Unhandled)
        }
    }
}

/// A family's end as the ledger takes it.
pub(super) fn ledger_done(done: &families::Done, below: &Below) -> ledger::Done {
    ledger::Done {
        write: done.write.as_ref().map(|write| ledger_write(write, below)),
        head_read: done.reached.journal_head,
        cursor: done.reached.cursor,
        code: done.result.code.as_str(),
        result: done.result.payload.clone(),
    }
}

fn ledger_write(write: &DomainWrite, below: &Below) -> Arc<dyn ledger::DomainWrite> {
    Arc::new(spans::Traced::new(write, below.clone()))
}
