//! What the paths of the ledger cost: round trips and commits as the proxy counts them (ADR 0017). A figure here is a
//! promise of `docs/performance.md`.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::ledger::{Claimed, Done, Ended, Flushed, KindSpec, Kinds, LeaseTerm, Ledger};
use powercontext::rt;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::refs::Position;
use powercontext_core::time::Span;
use powercontext_core::work::Outcome;
use powercontext_tests::proxy::Counts;
use powercontext_tests::wait::until;

use crate::kit::{Rig, claim, kind, request};

/// Round trips and commits since an earlier count.
fn since(rig: &Rig, before: Counts) -> (u64, u64) {
    let now = rig.proxy.counts();
    (now.round_trips - before.round_trips, now.commits - before.commits)
}

async fn queued(rig: &Rig, from: usize, count: usize) -> anyhow::Result<()> {
    for n in from..from + count {
        rig.queued(&format!("scope {n}")).await?;
    }
    Ok(())
}

/// A run that read its input and wrote nothing, so that nothing of it counts as consumed.
async fn nothing_to_do(rig: &Rig, claimed: &Claimed) -> anyhow::Result<Done> {
    Ok(Done {
        write: None,
        cursor: Position::START,
        ..rig.done(claimed).await?
    })
}

/// One statement on each connection that will be used, so that none of them is opened while the counts are watched.
async fn warm(rig: &Rig) -> anyhow::Result<()> {
    let (_, id) = rig.queued("warm").await?;
    let claimed = rig.ledger.claim(&claim(1)).await?;
    ensure!(claimed.len() == 1 && *claimed[0].held.key() == id);
    let done = nothing_to_do(rig, &claimed[0]).await?;
    ensure!(rig.ledger.finish(&claimed[0], done).await? == Ended::Succeeded);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_is_two_round_trips_and_one_commit() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    warm(&rig).await?;
    for n in 0..5 {
        let claimed = rig.running(&format!("{n}")).await?;
        let done = nothing_to_do(&rig, &claimed).await?;
        let before = rig.proxy.counts();
        ensure!(rig.ledger.finish(&claimed, done).await? == Ended::Succeeded);
        ensure!(since(&rig, before) == (2, 1), "{:?}", since(&rig, before));
    }
    rig.check().await
}

/// An item that waits for another attempt is due again by then.
const DUE_WITHIN: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_after_one_in_vain_ends_as_decided_ahead() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    warm(&rig).await?;
    let mut claimed = rig.running("in vain").await?;
    let code = FailCode::ProviderTimeout;
    for outcome in [Outcome::Released, Outcome::Conflict, Outcome::RetryWait] {
        let ended = match outcome {
            Outcome::Released => rig.ledger.release(&claimed).await?,
            Outcome::Conflict => rig.ledger.conflict(&claimed, FailCode::HeadChanged).await?,
            _ => rig.ledger.fail(&claimed, code).await?,
        };
        ensure!(
            matches!(ended, Ended::Waits { outcome: told, .. } if told == outcome),
            "{ended:?}"
        );
        // Not at once: a retry has its delay.
        claimed = until("the item is due again", DUE_WITHIN, async || {
            Ok(rig.ledger.claim(&claim(1)).await?.pop())
        })
        .await?;
    }
    let done = nothing_to_do(&rig, &claimed).await?;
    let before = rig.proxy.counts();
    ensure!(rig.ledger.finish(&claimed, done).await? == Ended::Succeeded);
    ensure!(since(&rig, before) == (2, 1), "{:?}", since(&rig, before));
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finishes_that_are_ready_together_cost_less_than_one_by_one() -> anyhow::Result<()> {
    const ITEMS: usize = 48;
    let rig = Rig::new().await?;
    warm(&rig).await?;
    queued(&rig, 0, ITEMS).await?;
    let mut running = Vec::new();
    for claimed in rig.ledger.claim(&claim(64)).await? {
        let done = nothing_to_do(&rig, &claimed).await?;
        running.push((claimed, done));
    }
    ensure!(running.len() == ITEMS);
    let before = rig.proxy.counts();
    let ledger = &rig.ledger;
    let finishes = running
        .into_iter()
        .map(|(claimed, done)| async move { ledger.finish(&claimed, done).await });
    for ended in futures_util::future::join_all(finishes).await {
        ensure!(ended? == Ended::Succeeded);
    }
    let (round_trips, commits) = since(&rig, before);
    ensure!(
        round_trips <= 16 && commits <= 6,
        "{round_trips} round trips, {commits} commits"
    );
    let open = "select count(*) from pc_work_items where status <> 'succeeded'";
    ensure!(rig.number(open.to_owned()).await? == 0);
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_finish_that_is_not_usual_does_not_fail_the_others() -> anyhow::Result<()> {
    const ITEMS: usize = 24;
    let rig = Rig::new().await?;
    queued(&rig, 0, ITEMS).await?;
    let mut running = Vec::new();
    for claimed in rig.ledger.claim(&claim(64)).await? {
        let done = nothing_to_do(&rig, &claimed).await?;
        running.push((claimed, done));
    }
    let (lapsed, cancelled) = (*running[3].0.held.key(), *running[7].0.held.key());
    rig.execute(format!(
        "update pc_work_items set lease_expires_at = utc_timestamp(6) - interval 1 second where work_id = '{lapsed}'"
    ))
    .await?;
    rig.direct.cancel(cancelled, 2).await?;
    let ledger = &rig.ledger;
    let finishes = running.into_iter().map(|(claimed, done)| async move {
        let id = *claimed.held.key();
        (id, ledger.finish(&claimed, done).await)
    });
    for (id, ended) in futures_util::future::join_all(finishes).await {
        let wanted = match id {
            id if id == lapsed => Ended::Lost,
            id if id == cancelled => Ended::Cancelled,
            _ => Ended::Succeeded,
        };
        ensure!(ended? == wanted, "{id}");
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_a_few_round_trips_however_many_it_takes_and_one_when_there_is_nothing() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    warm(&rig).await?;
    let before = rig.proxy.counts();
    ensure!(rig.ledger.claim(&claim(64)).await?.is_empty());
    ensure!(since(&rig, before) == (1, 0), "{:?}", since(&rig, before));
    queued(&rig, 0, 70).await?;
    for (wanted, taken) in [(1, 1), (3, 3), (64, 64), (64, 2)] {
        let before = rig.proxy.counts();
        ensure!(rig.ledger.claim(&claim(wanted)).await?.len() == taken);
        // Three, and up to three more where a start is kept for ordinary items, which are read by a statement of their own.
        let (trips, commits) = since(&rig, before);
        ensure!(
            (3..=6).contains(&trips) && commits == 1,
            "{taken}: {trips} trips, {commits} commits"
        );
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_family_with_a_cap_is_one_round_trip_more_and_one_when_no_slot_is_free() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    warm(&rig).await?;
    let spec = KindSpec {
        slots_max: NonZeroU16::new(12),
        ..kind()
    };
    let lease = LeaseTerm::Timed(Span::seconds(60));
    let capped = Ledger::new(rig.ledger.db().clone(), Kinds::new([spec]), rt::member_id(), lease);
    queued(&rig, 0, 20).await?;
    // The first one also makes the slots.
    let first = capped.claim(&claim(1)).await?.pop().context("nothing was claimed")?;
    for (wanted, taken) in [(1, 1), (3, 3), (64, 7)] {
        let before = rig.proxy.counts();
        ensure!(capped.claim(&claim(wanted)).await?.len() == taken);
        let (trips, commits) = since(&rig, before);
        ensure!(
            (4..=7).contains(&trips) && commits == 1,
            "{taken}: {trips} trips, {commits} commits"
        );
    }
    let before = rig.proxy.counts();
    ensure!(capped.claim(&claim(64)).await?.is_empty());
    ensure!(since(&rig, before) == (1, 0), "{:?}", since(&rig, before));
    let done = nothing_to_do(&rig, &first).await?;
    let before = rig.proxy.counts();
    ensure!(capped.finish(&first, done).await? == Ended::Succeeded);
    ensure!(since(&rig, before) == (2, 1), "a finish: {:?}", since(&rig, before));
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_is_three_round_trips_for_one_as_for_hundreds() -> anyhow::Result<()> {
    const SCOPES: usize = 200;
    let rig = Rig::new().await?;
    warm(&rig).await?;
    let scopes: Vec<ScopeId> = (0..SCOPES)
        .map(|n| ScopeId::parse(format!("{n}")))
        .collect::<Result<_, _>>()?;
    for scope in &scopes {
        rig.capture(scope, "1").await?;
    }
    let before = rig.proxy.counts();
    ensure!(matches!(
        rig.ledger.flush(request(&scopes[0])).await?,
        Flushed::Accepted { created: true, .. }
    ));
    ensure!(since(&rig, before) == (3, 1), "{:?}", since(&rig, before));
    let before = rig.proxy.counts();
    let requests = scopes
        .iter()
        .map(|scope| (scope.clone(), serde_json::json!({})))
        .collect();
    let answers = rig.ledger.flush_many(&kind().kind, requests).await?;
    ensure!(since(&rig, before) == (3, 1), "{:?}", since(&rig, before));
    for (n, answer) in answers.into_iter().enumerate() {
        let created = matches!(answer?, Flushed::Accepted { created: true, .. });
        ensure!(created == (n > 0), "{n}");
    }
    let before = rig.proxy.counts();
    let idle = rig.ledger.flush(request(&ScopeId::parse("nothing here")?)).await?;
    ensure!(matches!(idle, Flushed::Idle { .. }), "{idle:?}");
    ensure!(since(&rig, before) == (1, 0), "{:?}", since(&rig, before));
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_steady_refill_needs_less_than_a_round_trip_an_item_for_its_claims() -> anyhow::Result<()> {
    use powercontext::worker::{Inline, Worker, WorkerSettings};
    use tokio_util::sync::CancellationToken;

    const ITEMS: usize = 120;
    let rig = Rig::new().await?;
    queued(&rig, 0, ITEMS).await?;
    let family = Arc::new(crate::kit::Nothing::new());
    let settings = WorkerSettings {
        concurrency: 16,
        ..crate::kit::worker_settings()
    };
    let worker = Worker::new(rig.ledger.clone(), Arc::new(Inline::new([family as _])), settings);
    let stop = CancellationToken::new();
    let before = rig.proxy.counts();
    let working = rt::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    until("every item ends", Duration::from_secs(30), async || {
        let open = "select count(*) from pc_work_items where status <> 'succeeded'";
        Ok((rig.number(open.to_owned()).await? == 0).then_some(()))
    })
    .await?;
    stop.cancel();
    working.await?;
    let (round_trips, commits) = since(&rig, before);
    let finishes = 2 * ITEMS as u64;
    ensure!(
        round_trips <= finishes + ITEMS as u64 && commits <= 2 * ITEMS as u64,
        "{round_trips} round trips and {commits} commits for {ITEMS} items"
    );
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_that_writes_a_memory_is_two_round_trips_more_however_much_it_writes() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    warm(&rig).await?;
    for sources in [1, 3, 9] {
        let scope = ScopeId::parse(format!("{sources} sources"))?;
        for n in 1..sources {
            rig.capture(&scope, &format!("source {n}")).await?;
        }
        let claimed = rig.running(scope.as_str()).await?;
        let done = rig.done(&claimed).await?;
        let before = rig.proxy.counts();
        ensure!(rig.ledger.finish(&claimed, done).await? == Ended::Succeeded);
        ensure!(since(&rig, before) == (4, 1), "{sources}: {:?}", since(&rig, before));
    }
    rig.check().await
}

/// Another source of a scope, and an item for it.
async fn more(rig: &Rig, scope: &ScopeId, source: &str) -> anyhow::Result<()> {
    rig.capture(scope, source).await?;
    let asked = rig.direct.flush(request(scope)).await?;
    ensure!(matches!(asked, Flushed::Accepted { created: true, .. }), "{asked:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_never_rests_is_ended_by_its_rows_and_one_that_rests_as_decided_ahead() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    warm(&rig).await?;
    let scope = ScopeId::parse("busy")?;
    let mut claimed = rig.running(scope.as_str()).await?;
    // The first end finds out, and prepares what it needs then. The fourth run finds its source consumed by the third.
    for (n, wanted) in (0..5).zip([None, Some(7), Some(7), Some(6), Some(4)]) {
        let is_followed = n < 3;
        let source = format!("more {n}");
        if is_followed {
            more(&rig, &scope, &source).await?;
        }
        let done = rig.done(&claimed).await?;
        let before = rig.proxy.counts();
        ensure!(rig.ledger.finish(&claimed, done).await? == Ended::Succeeded);
        let (trips, commits) = since(&rig, before);
        ensure!(
            wanted.is_none_or(|wanted| trips == wanted) && commits == 1,
            "{n}: {trips} trips, {commits} commits"
        );
        if !is_followed {
            more(&rig, &scope, &source).await?;
        }
        claimed = rig
            .ledger
            .claim(&claim(1))
            .await?
            .pop()
            .context("nothing was claimed")?;
    }
    rig.check().await
}
