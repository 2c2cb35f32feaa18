//! One transaction and a network that goes silent or breaks: it ends within its deadline, its connection goes with it, the
//! pool keeps all its places, and nobody else waits for what it had locked longer than the server's limit.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::ledger::{CaptureError, Ended, capture};
use powercontext::rt;
use powercontext::store::{Busy, Down, TxError, TxName};
use powercontext_core::ids::ScopeId;
use powercontext_tests::proxy::{Act, At, Mode, Rule};
use powercontext_tests::wait::until;
use tokio::sync::Barrier;

use crate::kit::{CONNECTIONS, Rig, claim, limits, source};

/// What a busy machine may add to any limit.
const SLACK: Duration = Duration::from_secs(2);

fn mute(rig: &Rig, at: At, act: Act) {
    rig.proxy.arm(Rule { at, act, skip: 0 });
}

/// That so many transactions as the pool has places can be open at once, now.
async fn has_every_place(rig: &Rig) -> anyhow::Result<()> {
    let all = Arc::new(Barrier::new(CONNECTIONS as usize));
    let mut open = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (db, all) = (rig.db.clone(), Arc::clone(&all));
        open.spawn(async move {
            db.tx(TxName::Ping, move |tx| {
                let all = Arc::clone(&all);
                Box::pin(async move {
                    tx.now().await?;
                    all.wait().await;
                    Ok(())
                })
            })
            .await
        });
    }
    for done in open.join_all().await {
        done.context("a place in the pool is lost")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_inside_a_transaction_ends_at_the_deadline_and_nothing_was_written() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    let scope = ScopeId::parse("s")?;
    rig.capture(&scope, "before").await?;
    has_every_place(&rig).await?;
    mute(&rig, At::Statement("sources.insert"), Act::MuteBefore);
    let started = rt::now();
    let lost = capture(&rig.db, source(&scope, "1")?).await;
    let took = started.elapsed();
    ensure!(lost == Err(CaptureError::Tx(TxError::Down(Down::Deadline))), "{lost:?}");
    ensure!(took <= limits().deadline() + SLACK, "it took {took:?}");

    has_every_place(&rig).await?;
    let again = capture(&rig.db, source(&scope, "1")?).await?;
    ensure!(!again.replayed && again.position.get() == 2, "{again:?}");
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_after_a_claims_commit_is_unknown_and_the_lease_or_the_next_claim_settles_it() -> anyhow::Result<()> {
    tokio::try_join!(silent_claim(Act::MuteAfter, true), silent_claim(Act::MuteBefore, false))?;
    Ok(())
}

async fn silent_claim(act: Act, is_committed: bool) -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    let (scope, id) = rig.queued("s").await?;
    mute(&rig, At::Commit("attempts.open"), act);
    let started = rt::now();
    let lost = rig.ledger.claim(&claim(1)).await;
    let took = started.elapsed();
    ensure!(matches!(lost, Err(TxError::Unknown)), "{act:?}: {lost:?}");
    ensure!(took <= limits().deadline() + SLACK, "{act:?}: it took {took:?}");
    has_every_place(&rig).await?;
    // The deadline is longer than the shortest lease: by now nothing may be adopted.
    ensure!(
        rig.ledger.adopt(Vec::new()).await?.is_empty(),
        "{act:?}: adopted after its lease"
    );
    if is_committed {
        rig.ledger.recover().await?;
        let outcomes = rig.outcomes(id).await?;
        ensure!(outcomes == ["lease_expired_retry"], "{outcomes:?}");
        return rig.check().await;
    }
    let found = rig.ledger.claim(&claim(1)).await?;
    ensure!(found.len() == 1 && *found[0].held.key() == id, "not claimed");
    let done = rig.done(&found[0]).await?;
    ensure!(rig.ledger.finish(&found[0], done).await? == Ended::Succeeded);
    rig.succeeded_once(&scope, id).await?;
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_client_keeps_its_locks_no_longer_than_the_transaction_limit() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    let scope = ScopeId::parse("s")?;
    rig.capture(&scope, "before").await?;
    mute(&rig, At::Statement("intents.mark_all_dirty"), Act::MuteBefore);
    let (db, frozen) = (rig.db.clone(), source(&scope, "frozen")?);
    let frozen = rt::spawn(async move { capture(&db, frozen).await });
    let started = until("the frozen transaction holds its locks", SLACK, async || {
        Ok(rig.proxy.is_disarmed().then(rt::now))
    })
    .await?;
    let mut waits = 0;
    let waited = loop {
        match capture(rig.direct.db(), source(&scope, "other")?).await {
            Ok(captured) => {
                ensure!(captured.position.get() == 2, "{captured:?}");
                break started.elapsed();
            }
            Err(CaptureError::Tx(TxError::Busy(Busy::Lock | Busy::Limit))) => waits += 1,
            Err(error) => return Err(error.into()),
        }
    };
    let limit = limits().transaction.as_std();
    ensure!(
        waited <= limit + SLACK,
        "others waited {waited:?}, {waits} times in vain"
    );
    println!("locks of a frozen client were free after {waited:?} (limit {limit:?})");
    ensure!(frozen.await?.is_err(), "the frozen capture was acknowledged");
    ensure!(
        rig.rows("pc_sources", &scope).await? == 2,
        "the frozen capture was kept"
    );
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_at_rest_cost_nobody_a_failure() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    let scope = ScopeId::parse("s")?;
    let mut positions = 0;
    for mode in [Mode::Reset, Mode::Refuse, Mode::HalfOpen, Mode::BlackHole, Mode::Stall] {
        has_every_place(&rig).await?;
        rig.proxy.set(mode).await?;
        rig.proxy.set(Mode::Pass).await?;
        let started = rt::now();
        for n in 0..2 * CONNECTIONS {
            let captured = capture(&rig.db, source(&scope, &format!("{mode:?} {n}"))?).await;
            let captured = captured.with_context(|| format!("after {mode:?}"))?;
            positions += 1;
            ensure!(
                captured.position.get() == positions && !captured.replayed,
                "{captured:?}"
            );
        }
        ensure!(started.elapsed() < SLACK, "{mode:?}: it took {:?}", started.elapsed());
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_in_a_silent_network_all_hear_within_the_deadline() -> anyhow::Result<()> {
    tokio::try_join!(callers_in(Mode::BlackHole), callers_in(Mode::HalfOpen))?;
    Ok(())
}

async fn callers_in(mode: Mode) -> anyhow::Result<()> {
    const CALLERS: u32 = 32;
    let rig = Rig::new().await?;
    let scope = ScopeId::parse("s")?;
    has_every_place(&rig).await?;
    rig.proxy.set(mode).await?;
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..CALLERS {
        let (db, source) = (rig.db.clone(), source(&scope, &n.to_string())?);
        callers.spawn(async move {
            let started = rt::now();
            let answer = capture(&db, source).await;
            (answer, started.elapsed())
        });
    }
    for (answer, took) in callers.join_all().await {
        ensure!(answer.is_err(), "{mode:?}: acknowledged by nobody");
        ensure!(took <= limits().deadline() + SLACK, "{mode:?}: it took {took:?}");
    }
    rig.proxy.set(Mode::Pass).await?;
    let healed = rt::now();
    has_every_place(&rig).await?;
    println!(
        "{mode:?}: every place of the pool back {:?} after it healed",
        healed.elapsed()
    );
    ensure!(rig.rows("pc_sources", &scope).await? == 0);
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_changes_nothing_but_time() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    rig.proxy.set(Mode::Delay(Duration::from_millis(10))).await?;
    let claimed = rig.running("slow").await?;
    let done = rig.done(&claimed).await?;
    ensure!(rig.ledger.finish(&claimed, done).await? == Ended::Succeeded);
    rig.succeeded_once(&claimed.scope, *claimed.held.key()).await?;
    rig.check().await
}
