//! The `single-node-runtime` lease of a single node on OceanBase: waited for at start, renewed while it runs, given back at
//! the end. Losing it is fatal, because another process works on the database then.

use std::sync::Arc;

use powercontext_core::fence::Fence;
use powercontext_core::ids::MemberId;
use powercontext_core::lease::{Acquire, Expiry, Held, Seen};
use powercontext_core::time::{DbTime, Span};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::CoordinationSettings;
use crate::roles::RoleError;
use crate::rt;
use crate::store::leases::{self, LeaseName};
use crate::store::{Db, FenceLost, Tx, TxError, TxName};

/// Longest pause between two looks at a lease that somebody holds.
const LOOK: Span = Span::seconds(1);
/// Longest pause before a renewal that failed is tried again.
const AGAIN: Span = Span::seconds(1);

/// A held and renewed lease.
pub(super) struct SingleNode {
    db: Db,
    stop: CancellationToken,
    renewing: JoinHandle<Held<LeaseName>>,
}

impl SingleNode {
    /// Stops renewing and gives the lease back, so that a successor need not wait.
    pub(super) async fn release(self) {
        self.stop.cancel();
        // It ends by itself now; after a panic there, which its own hook has reported, the lease expires.
        let Ok(held) = self.renewing.await else { return };
        let held = Arc::new(held);
        let released = self
            .db
            .tx_with(TxName::Lease, &held, |tx, held| Box::pin(leases::release(tx, held)))
            .await;
        if let Err(error) = released {
            tracing::warn!(error = %error, "the lease of the single node could not be given back; it will expire");
        }
    }
}

/// Takes the lease, waiting as long as its present holder's may last, and keeps renewing it.
pub(super) async fn acquire(
    db: &Db,
    me: &MemberId,
    times: CoordinationSettings,
    fatal: CancellationToken,
) -> Result<SingleNode, RoleError> {
    let mut give_up: Option<Instant> = None;
    let (held, sent) = loop {
        let sent = rt::now();
        match take(db, me, times.member_ttl).await? {
            (Acquire::Won(held), _) => break (held, sent),
            (Acquire::Lost(seen), now) => {
                let left = left(&seen, now);
                let until = *give_up.get_or_insert(sent + left.as_std() + LOOK.as_std());
                let holder = seen
                    .holder
                    .map_or_else(|| "unknown".to_owned(), |holder| holder.member.to_string());
                if rt::now() >= until {
                    return Err(RoleError::Held { holder });
                }
                let seconds_left = left.as_millis().div_ceil(1000);
                tracing::warn!(
                    owner = holder,
                    seconds_left,
                    "another single node holds the database; waiting for its lease to end"
                );
                rt::sleep(left.min(LOOK).as_std()).await;
            }
        }
    };
    let stop = CancellationToken::new();
    let renewing = rt::spawn(renew(db.clone(), held, times, sent, stop.clone(), fatal));
    Ok(SingleNode {
        db: db.clone(),
        stop,
        renewing,
    })
}

async fn take(db: &Db, me: &MemberId, ttl: Span) -> Result<(Acquire<LeaseName>, DbTime), TxError> {
    let input = Arc::new((me.clone(), ttl));
    db.tx_with(TxName::Lease, &input, |tx, (me, ttl)| {
        Box::pin(async move {
            let now = tx.now().await?;
            Ok((leases::acquire(tx, LeaseName::SingleNodeRuntime, me, *ttl).await?, now))
        })
    })
    .await
}

fn left(seen: &Seen<LeaseName>, now: DbTime) -> Span {
    match seen.holder.as_ref().map(|holder| holder.expiry) {
        Some(Expiry::At(at)) => at.since(now),
        Some(Expiry::Term) | None => Span::ZERO,
    }
}

/// Renews until `stop`, and answers the lease as it stands then. While the database is out of reach for longer than the
/// lease, another process may take it; until somebody has, this one goes on: every write of an item has a fence of its
/// own. `fatal` is raised when the lease is, or in between was, somebody else's.
async fn renew(
    db: Db,
    mut held: Held<LeaseName>,
    times: CoordinationSettings,
    mut sent: Instant,
    stop: CancellationToken,
    fatal: CancellationToken,
) -> Held<LeaseName> {
    let mut pause = times.member_heartbeat;
    let mut is_told = false;
    loop {
        tokio::select! { biased; () = stop.cancelled() => return held, () = rt::sleep(pause.as_std()) => {} }
        let now = rt::now();
        match extend(&db, &held, times.member_ttl).await {
            Ok(extended) => {
                (held, sent, is_told, pause) = (extended, now, false, times.member_heartbeat);
            }
            Err(TxError::Fenced(_)) => {
                tracing::error!("the lease of the single node is lost");
                fatal.cancel();
                return held;
            }
            Err(error) => {
                pause = times.member_heartbeat.min(AGAIN);
                tracing::warn!(error = %error, "the lease of the single node could not be renewed; trying again");
            }
        }
        if !is_told && rt::now() >= sent + times.member_ttl.as_std() {
            is_told = true;
            tracing::error!("the lease of the single node has run out; another process may take the database");
        }
    }
}

async fn extend(db: &Db, held: &Held<LeaseName>, ttl: Span) -> Result<Held<LeaseName>, TxError> {
    let input = Arc::new((held.clone(), ttl));
    db.tx_with(TxName::Heartbeat, &input, |tx, (held, ttl)| {
        Box::pin(async move {
            match leases::renew(tx, held, *ttl).await {
                Err(TxError::Fenced(_)) => retake(tx, held, *ttl).await,
                renewed => renewed,
            }
        })
    })
    .await
}

/// Takes a lease again that ran out, if nobody had it since.
async fn retake(tx: &mut Tx, held: &Held<LeaseName>, ttl: Span) -> Result<Held<LeaseName>, TxError> {
    match leases::acquire(tx, held.key().clone(), held.member(), ttl).await? {
        Acquire::Won(again) if again.fence() == Fence::after(Some(held.fence())) => Ok(again),
        // Rolled back with the error: the lease stays whose it is.
        Acquire::Won(_) | Acquire::Lost(_) => Err(TxError::Fenced(FenceLost::Lease)),
    }
}
