//! Membership: this process announces itself, says that it lives, and learns whether it fits the others.
//!
//! A process that does not fit says so of itself and neither leads nor claims; the others do not care. Where a process is
//! alone on its file there are no members, and it always fits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use powercontext_core::supervise::member::{Member, Odd, Role, judge};
use powercontext_core::time::Span;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rt;
use crate::store::{Db, Tx, TxError, TxName, members};

/// Pause before a heartbeat that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a process knows of itself among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It fits.
    Ready,
    /// It does not, for this reason.
    Odd(Odd),
    /// Its own row may be gone: nobody counts it as alive.
    Unknown,
}

#[derive(Debug)]
struct Inner {
    odd: Option<Odd>,
    /// Until when the others count this process as alive; `None` where nobody asks.
    alive_until: Option<Instant>,
}

/// Shared view of this process's own fit; cheap to clone.
#[derive(Debug, Clone)]
pub struct Standing(Arc<Mutex<Inner>>);

impl Standing {
    /// A process that is alone.
    pub fn alone() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            odd: None,
            alive_until: None,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code panics between two writes under this lock, so what it guards is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may lead and claim. One that cannot reach the database may: its leases say what it may write.
    pub fn may_act(&self) -> bool {
        self.inner().odd.is_none()
    }

    /// How it stands.
    pub fn fit(&self) -> Fit {
        let inner = self.inner();
        match (inner.odd, inner.alive_until) {
            (Some(odd), _) => Fit::Odd(odd),
            (None, Some(until)) if until <= rt::now() => Fit::Unknown,
            (None, _) => Fit::Ready,
        }
    }
}

/// A member of a deployment; cheap to clone.
#[derive(Debug, Clone)]
pub struct Membership(Arc<Announced>);

#[derive(Debug)]
struct Announced {
    db: Db,
    me: Member,
    ttl: Span,
    every: Duration,
    standing: Standing,
}

impl Membership {
    /// Announces a member and judges it among those that live. Its row stays whatever the judgement; [`Membership::leave`]
    /// takes it back.
    ///
    /// # Errors
    /// [`TxError`].
    pub async fn join(db: Db, mut me: Member, ttl: Span, every: Duration) -> Result<(Self, Result<(), Odd>), TxError> {
        let sent = rt::now();
        me.started_at = db
            .read(TxName::Members, |tx| Box::pin(async move { tx.now().await }))
            .await?;
        let standing = Standing::alone();
        let membership = Self(Arc::new(Announced {
            db,
            me,
            ttl,
            every,
            standing,
        }));
        let judged = membership.beat().await?;
        membership.saw(sent, judged);
        Ok((membership, judged))
    }

    /// How this process stands.
    pub fn standing(&self) -> &Standing {
        &self.0.standing
    }

    fn saw(&self, sent: Instant, judged: Result<(), Odd>) {
        let mut inner = self.0.standing.inner();
        let was = inner.odd;
        inner.odd = judged.err();
        inner.alive_until = Some(sent + self.0.ttl.as_std());
        drop(inner);
        match judged {
            Err(odd) if was != Some(odd) => tracing::error!(reason = %odd, "this process is misconfigured"),
            Ok(()) if was.is_some() => tracing::info!("this process fits the others again"),
            _ => {}
        }
    }

    /// Says that this process lives, and judges it among those that do. Each write may be repeated, so no transaction is
    /// needed around them.
    async fn beat(&self) -> Result<Result<(), Odd>, TxError> {
        let input = Arc::new((self.0.me.clone(), self.0.ttl));
        let beat = self.0.db.autocommit_with(TxName::Heartbeat, &input, |tx, (me, ttl)| {
            Box::pin(async move {
                if !members::beat(tx, &me.id, *ttl).await? {
                    members::announce(tx, me, *ttl).await?;
                }
                members::live(tx).await
            })
        });
        Ok(judge(&self.0.me, &beat.await?))
    }

    /// Says that this process lives, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let mut pause = self.0.every;
        loop {
            tokio::select! { biased; () = stop.cancelled() => return, () = rt::sleep(pause) => {} }
            let sent = rt::now();
            match self.beat().await {
                Ok(judged) => {
                    self.saw(sent, judged);
                    pause = self.0.every;
                }
                Err(error) => {
                    tracing::warn!(error = %error, "this process could not say that it lives; trying again");
                    pause = self.0.every.min(AGAIN);
                }
            }
        }
    }

    /// Takes the member's row back.
    pub async fn leave(&self) {
        let id = Arc::new(self.0.me.id.clone());
        let left = self
            .0
            .db
            .tx_with(TxName::Members, &id, |tx, id| Box::pin(members::leave(tx, id)));
        if let Err(error) = left.await {
            tracing::warn!(error = %error, "the row of this member could not be taken back; it will expire");
        }
    }
}

/// Members that live now.
///
/// # Errors
/// [`TxError`].
pub async fn live(db: &Db) -> Result<Vec<Member>, TxError> {
    db.read(TxName::Members, |tx: &mut Tx| Box::pin(members::live(tx)))
        .await
}

/// Whether some member leads, and whether some member works, whatever their revision.
pub fn present(live: &[Member]) -> (bool, bool) {
    let has = |serves: fn(Role) -> bool| live.iter().any(|member| serves(member.role));
    (has(Role::leads), has(Role::works))
}
