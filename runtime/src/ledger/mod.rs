//! The Work Ledger: one use case a file, each one transaction around the pure decisions of the core.
//!
//! Who may call what: an API enqueues, reads, cancels and retries; a Worker claims, renews, ends and recovers. Every
//! write of a run takes the [`Held`](powercontext_core::lease::Held) lease that the claim granted, and compares owner,
//! fence and expiry in the statement itself (I3). A commit of unknown outcome is re-read before anything else is written.

mod admit;
mod busy;
mod capture;
mod claim;
mod end;
mod flush;
mod kinds;
mod looks;
mod maintain;
mod operations;
mod operator;
mod recover;
mod signals;
mod slots;
mod together;
mod trace;
mod wait;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use powercontext_core::ids::{MemberId, WorkKind};
use powercontext_core::lease::Expiry;
use powercontext_core::supervise::fairness::StartShare;
use powercontext_core::time::{DbTime, Span};

pub use admit::{AdmitRequest, Cause, Wanted};
pub use capture::{CaptureError, Captured, NewSource, capture};
pub use claim::{Claim, Claimed};
pub use end::{DomainWrite, Done, Ended};
pub use flush::{FlushError, FlushRequest, Flushed};
pub use kinds::{KindSpec, Kinds};
pub use maintain::{Cleaned, Upkeep, maintain};
pub use operations::{Page, PageRequest};
pub use operator::OperatorError;
pub use signals::Signals;
pub use wait::{Waited, Waiters};

use crate::ledger::looks::Looks;
use crate::store::Db;
use crate::telemetry::trace::Tracer;

/// How long a claim is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseTerm {
    /// As long as this process owns the SQLite file.
    Process,
    /// So long on the database's clock; renewed by heartbeats.
    Timed(Span),
}

impl LeaseTerm {
    fn from(self, now: DbTime) -> Expiry {
        match self {
            Self::Process => Expiry::Term,
            Self::Timed(span) => Expiry::At(now.plus(span)),
        }
    }
}

struct Inner {
    db: Db,
    kinds: Kinds,
    me: MemberId,
    lease: LeaseTerm,
    signals: Signals,
    tracer: OnceLock<Tracer>,
    together: together::Together,
    busy: busy::BusyLanes,
    /// How many of the starts of a kind since its last ordinary one were others'.
    shares: Mutex<BTreeMap<WorkKind, StartShare>>,
    looks: Looks,
    slots_made: slots::Made,
}

/// The ledger as one process uses it; cheap to clone.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

impl Ledger {
    /// The ledger in `db`, for the process `me`.
    pub fn new(db: Db, kinds: Kinds, me: MemberId, lease: LeaseTerm) -> Self {
        Self(Arc::new(Inner {
            db,
            kinds,
            me,
            lease,
            signals: Signals::default(),
            tracer: OnceLock::new(),
            together: together::Together::default(),
            busy: busy::BusyLanes::default(),
            shares: Mutex::default(),
            looks: Looks::default(),
            slots_made: slots::Made::default(),
        }))
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.0.db
    }

    /// The kinds of work that this build knows.
    pub fn kinds(&self) -> &Kinds {
        &self.0.kinds
    }

    /// This process.
    pub fn me(&self) -> &MemberId {
        &self.0.me
    }

    /// How long a claim of this process is good.
    pub fn lease(&self) -> LeaseTerm {
        self.0.lease
    }

    /// Wake-ups inside this process.
    pub fn signals(&self) -> &Signals {
        &self.0.signals
    }
}
