//! A COMMIT whose reply never comes, or that never arrives: one effect, no false failure, no orphaned lease.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use powercontext::families::memory::edit::edit;
use powercontext::families::memory::read;
use powercontext::ledger::{Ended, Flushed, capture};
use powercontext::rt;
use powercontext::store::TxError;
use powercontext::worker::{Inline, Worker};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::memory::{Edit, EntryKind, EntryText};
use powercontext_tests::proxy::{Act, At, Rule};
use powercontext_tests::wait::until;
use tokio_util::sync::CancellationToken;

use crate::kit::{Rig, claim, request, source, worker_settings};

/// Both ends that a lost reply can have.
const CUTS: [Act; 2] = [Act::CutAfter, Act::CutBefore];
/// How often each is done where the issue of a lost reply is the worst.
const OFTEN: u32 = 50;
const SELDOM: u32 = 10;
/// Longest wait for an item to be seen.
const SOON: Duration = Duration::from_secs(10);

fn cases(times: u32) -> impl Iterator<Item = (Act, String)> {
    CUTS.into_iter()
        .flat_map(move |cut| (0..times).map(move |n| (cut, format!("{cut:?} {n}"))))
}

fn cut(rig: &Rig, statement: &'static str, act: Act) {
    rig.proxy.arm(Rule::on_commit_of(statement, act));
}

fn acted(rig: &Rig) -> anyhow::Result<()> {
    ensure!(rig.proxy.is_disarmed(), "no such commit was sent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_whose_commit_is_cut_leaves_one_item_and_tells_it() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(OFTEN) {
        let scope = ScopeId::parse(&name)?;
        rig.capture(&scope, "1").await?;
        cut(&rig, "works.insert", act);
        let Flushed::Accepted { id, created } = rig.ledger.flush(request(&scope)).await? else {
            anyhow::bail!("{name} was not accepted");
        };
        acted(&rig)?;
        ensure!(created, "{name}: made for this request, and told otherwise");
        ensure!(rig.rows("pc_work_items", &scope).await? == 1, "{name}: not one item");
        ensure!(rig.state(id).await? == "queued", "{name}: another item was told");
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_commit_is_cut_is_adopted_or_never_happened() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(OFTEN) {
        let (scope, id) = rig.queued(&name).await?;
        cut(&rig, "attempts.open", act);
        // A claim that finds nothing has committed nothing: the server may show an item a moment after it was acknowledged.
        let lost = until("the item is there to be claimed", SOON, async || {
            let claimed = rig.ledger.claim(&claim(4)).await;
            Ok(Some(claimed).filter(|claimed| !matches!(claimed, Ok(claimed) if claimed.is_empty())))
        })
        .await?;
        ensure!(matches!(lost, Err(TxError::Unknown)), "{name}: {lost:?}");
        acted(&rig)?;
        let mut found = rig.ledger.adopt(Vec::new()).await?;
        ensure!(
            found.len() == usize::from(act == Act::CutAfter),
            "{name}: adopted {}",
            found.len()
        );
        if found.is_empty() {
            found = rig.ledger.claim(&claim(4)).await?;
        }
        ensure!(
            found.len() == 1 && *found[0].held.key() == id,
            "{name}: claimed {}",
            found.len()
        );
        ensure!(
            rig.ledger.adopt(vec![id]).await?.is_empty(),
            "{name}: adopted what runs"
        );
        let done = rig.done(&found[0]).await?;
        ensure!(rig.ledger.finish(&found[0], done).await? == Ended::Succeeded, "{name}");
        rig.succeeded_once(&scope, id).await?;
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_whose_commit_is_cut_succeeds_once() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(OFTEN) {
        let claimed = rig.running(&name).await?;
        let done = rig.done(&claimed).await?;
        cut(&rig, "attempts.close", act);
        let ended = rig.ledger.finish(&claimed, done).await?;
        acted(&rig)?;
        ensure!(ended == Ended::Succeeded, "{name}: {ended:?}");
        rig.succeeded_once(&claimed.scope, *claimed.held.key()).await?;
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_or_a_release_whose_commit_is_cut_is_written_once() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(SELDOM) {
        let claimed = rig.running(&name).await?;
        let id = *claimed.held.key();
        cut(&rig, "attempts.close", act);
        ensure!(
            matches!(rig.ledger.release(&claimed).await?, Ended::Waits { .. }),
            "{name}"
        );
        acted(&rig)?;
        ensure!(rig.outcomes(id).await? == ["released"], "{name}");

        let again = rig.ledger.claim(&claim(1)).await?;
        ensure!(
            again.len() == 1 && *again[0].held.key() == id,
            "{name}: not claimed again"
        );
        cut(&rig, "attempts.close", act);
        let ended = rig.ledger.fail(&again[0], FailCode::InvalidPayload).await?;
        acted(&rig)?;
        ensure!(ended == Ended::Failed, "{name}: {ended:?}");
        ensure!(rig.outcomes(id).await? == ["released", "failed"], "{name}");
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capture_whose_commit_is_cut_is_kept_once() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(SELDOM) {
        let scope = ScopeId::parse(&name)?;
        rig.capture(&scope, "before").await?;
        cut(&rig, "sources.insert", act);
        let captured = capture(&rig.db, source(&scope, "1")?).await?;
        acted(&rig)?;
        ensure!(captured.position.get() == 2, "{name}: {captured:?}");
        let again = capture(&rig.db, source(&scope, "1")?).await?;
        ensure!(
            again.replayed && again.position == captured.position,
            "{name}: {again:?}"
        );
        ensure!(rig.rows("pc_sources", &scope).await? == 2, "{name}");
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_whose_commit_is_cut_is_told_as_done() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(SELDOM) {
        let claimed = rig.running(&format!("{name} running")).await?;
        let (_, waiting) = rig.queued(&format!("{name} waiting")).await?;
        let running = *claimed.held.key();
        for (id, state) in [(waiting, "cancelled"), (running, "cancelling")] {
            let version = rig.direct.work(id).await?.map_or(0, |row| row.item.version);
            cut(&rig, "works.save", act);
            let row = rig.ledger.cancel(id, version).await?;
            acted(&rig)?;
            ensure!(row.item.state.name() == state, "{name}: {}", row.item.state.name());
            ensure!(row.item.version == version + 1, "{name}: version {}", row.item.version);
        }
        let ended = rig.ledger.finish(&claimed, rig.done(&claimed).await?).await?;
        ensure!(ended == Ended::Cancelled, "{name}: {ended:?}");
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_retry_whose_commit_is_cut_revives_once() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(SELDOM) {
        let claimed = rig.running(&name).await?;
        let id = *claimed.held.key();
        let ended = rig.direct.fail(&claimed, FailCode::InvalidPayload).await?;
        ensure!(ended == Ended::Failed, "{name}: {ended:?}");
        let version = rig.direct.work(id).await?.map_or(0, |row| row.item.version);
        cut(&rig, "works.save", act);
        let row = rig.ledger.retry(id, version).await?;
        acted(&rig)?;
        ensure!(row.item.state.name() == "queued", "{name}: {}", row.item.state.name());
        ensure!(row.item.counters.recoveries == 1, "{name}: revived more than once");
        // Out of the way of the next case's claim.
        rig.direct.cancel(id, row.item.version).await?;
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_whose_commit_is_cut_makes_one_revision() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    for (act, name) in cases(SELDOM) {
        let scope = ScopeId::parse(&name)?;
        let remember = Edit::Remember {
            kind: EntryKind::parse("fact")?,
            text: EntryText::parse("The office closes at six.")?,
            expected: None,
        };
        cut(&rig, "artifacts.insert", act);
        let changed = edit(&rig.db, &scope, remember, None).await?;
        acted(&rig)?;
        ensure!(changed.revision.get() == 1, "{name}: {changed:?}");
        ensure!(rig.rows("pc_artifacts", &scope).await? == 1, "{name}");
        let entries = read::entries(rig.direct.db(), &scope, true).await?;
        ensure!(entries.entries.len() == 1, "{name}: {} entries", entries.entries.len());
        ensure!(entries.entries[0] == changed.entry, "{name}: another entry was told");
    }
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_claims_and_finishes_are_cut_runs_every_item_once() -> anyhow::Result<()> {
    const ITEMS: usize = 24;
    let rig = Rig::new().await?;
    let mut items = Vec::with_capacity(ITEMS);
    for n in 0..ITEMS {
        items.push(rig.queued(&format!("scope {n}")).await?);
    }
    for act in CUTS.into_iter().cycle().take(6) {
        for (statement, skip) in [("attempts.open", 0), ("attempts.close", 1)] {
            let at = At::Commit(statement);
            rig.proxy.arm(Rule { at, act, skip });
        }
    }
    let executor = Arc::new(Inline::new([Arc::clone(&rig.family)]));
    let worker = Worker::new(rig.ledger.clone(), executor, worker_settings());
    let stop = CancellationToken::new();
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
    acted(&rig)?;
    for (scope, id) in &items {
        rig.succeeded_once(scope, *id).await?;
    }
    rig.check().await
}
