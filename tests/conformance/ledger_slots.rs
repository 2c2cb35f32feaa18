//! Caps over a whole deployment: all processes together never run more items of a family than its cap, and every end of a
//! run gives its slot back (I13, I14).

use std::num::NonZeroU16;
use std::sync::Arc;

use powercontext::ledger::{Claimed, Done, Ended, Ledger};
use powercontext::rt;
use powercontext::store::{TxError, TxName, slots};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{FamilyName, ScopeId};
use powercontext_core::refs::Position;
use powercontext_core::work::Outcome;
use powercontext_tests::db::TestDb;

use crate::ledger_kit::{Kit, LONG_LEASE, capped, claim, ledger, step, waits};

/// Runs each on both engines, where all processes together may run one item.
macro_rules! on_both_engines_with_one_slot {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::with_one_slot(powercontext_tests::db::TestDb::sqlite().await?, async |kit| super::$name(kit).await).await
            })*
        }

        mod oceanbase {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                let db = powercontext_tests::db::TestDb::oceanbase_alone().await?;
                super::with_one_slot(db, async |kit| super::$name(kit).await).await
            })*
        }
    };
}

on_both_engines_with_one_slot! {
    the_slots_of_a_cap_are_shared_by_all_processes,
    every_end_of_a_run_gives_its_slot_back,
    an_end_by_somebody_else_gives_the_slot_back,
    a_process_that_dies_keeps_its_slot_until_its_lease_is_recovered,
    a_claim_whose_reply_was_lost_keeps_its_slot_until_its_run_ends,
    a_higher_cap_adds_slots_and_a_lower_one_leaves_the_upper_ones_alone,
    a_family_without_a_cap_has_no_slots,
    processes_that_claim_at_once_never_pass_the_cap,
    finishes_together_give_all_their_slots_back,
}

async fn with_one_slot(db: TestDb, test: impl AsyncFnOnce(&Kit) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let kit = Kit::capped(db, NonZeroU16::new(1));
    test(&kit).await?;
    kit.check().await
}

/// A process that knows this cap; `None` for one that knows none.
fn process(kit: &Kit, cap: u16) -> Ledger {
    ledger(kit.db(), capped(NonZeroU16::new(cap)), LONG_LEASE)
}

async fn queue(kit: &Kit, name: &str, count: usize) -> anyhow::Result<Vec<ScopeId>> {
    let mut scopes = Vec::new();
    for n in 0..count {
        let scope = kit.scope_with_source(&format!("{name}{n}")).await?;
        kit.accepted(&scope).await?;
        scopes.push(scope);
    }
    Ok(scopes)
}

/// How many slots there are, and how many of them are held.
async fn slots(kit: &Kit) -> anyhow::Result<(i64, i64)> {
    let sql = "select count(*), count(work_id) from pc_artifact_processing_slots where family = 'memory'";
    let rows = kit.raw().await?.rows(sql).await?;
    Ok((rows[0].int(0)?, rows[0].int(1)?))
}

async fn only(ledger: &Ledger) -> anyhow::Result<Claimed> {
    let mut claimed = claim(ledger, 64).await?;
    anyhow::ensure!(claimed.len() == 1, "{} items were claimed with one slot", claimed.len());
    Ok(claimed.remove(0))
}

async fn the_slots_of_a_cap_are_shared_by_all_processes(kit: &Kit) -> anyhow::Result<()> {
    let (a, b) = (process(kit, 3), process(kit, 3));
    queue(kit, "s", 8).await?;
    let mut running = claim(&a, 2).await?;
    assert_eq!(running.len(), 2);
    let others = claim(&b, 64).await?;
    assert_eq!((others.len(), slots(kit).await?), (1, (3, 3)));
    assert!(claim(&a, 64).await?.is_empty() && claim(&b, 64).await?.is_empty());
    kit.check().await?;
    for expected in [7, 6, 5] {
        let ended = running.pop().expect("something runs");
        assert!(ended.usual.is_some() && ended.slot.is_some());
        assert_eq!(kit.finish(&a, &ended).await?, Ended::Succeeded);
        assert_eq!(kit.live().await?.len(), expected);
        let next = claim(&b, 64).await?;
        assert_eq!((next.len(), slots(kit).await?), (1, (3, 3)));
        running.extend(next);
    }
    Ok(())
}

async fn every_end_of_a_run_gives_its_slot_back(kit: &Kit) -> anyhow::Result<()> {
    let (a, b) = (&kit.a, &kit.b);
    for way in [
        "finish", "general", "retry", "fail", "conflict", "release", "window", "refused",
    ] {
        queue(kit, way, 1).await?;
        let mut run = only(a).await?;
        assert_eq!(slots(kit).await?, (1, 1), "{way}");
        let id = *run.held.key();
        match way {
            "finish" => assert_eq!(kit.finish(a, &run).await?, Ended::Succeeded),
            "general" => {
                run.usual = None;
                assert_eq!(kit.finish(a, &run).await?, Ended::Succeeded);
            }
            "retry" => assert!(waits(
                a.fail(&run, FailCode::ProviderTimeout).await?,
                Outcome::RetryWait
            )),
            "fail" => assert_eq!(a.fail(&run, FailCode::InvalidPayload).await?, Ended::Failed),
            "conflict" => assert!(waits(a.conflict(&run, FailCode::HeadChanged).await?, Outcome::Conflict)),
            "release" => assert!(waits(a.release(&run).await?, Outcome::Released)),
            _ => {
                b.cancel(id, kit.row(id).await?.item.version).await?;
                assert_eq!(slots(kit).await?, (1, 1), "it still runs");
                if way == "window" {
                    let write = step(&run.scope, kit.cursor(&run.scope).await?, Position::new(1));
                    let ended = a.commit_window(&run, write).await;
                    assert_eq!(ended, Err(TxError::Refused(FailCode::CancelRequested)));
                } else {
                    assert_eq!(kit.finish(a, &run).await?, Ended::Cancelled);
                }
            }
        }
        assert_eq!(slots(kit).await?, (1, 0), "{way}");
        kit.check().await?;
        // In its back-off it holds none; out of the way of the next one.
        let mut raw = kit.raw().await?;
        let later = raw.ago(-1000);
        raw.execute(&format!(
            "update pc_work_items set available_at = {later}, ready_at = {later} where status = 'retry_wait'"
        ))
        .await?;
    }
    Ok(())
}

async fn an_end_by_somebody_else_gives_the_slot_back(kit: &Kit) -> anyhow::Result<()> {
    // One that knows no cap, as an API does, finds the slot all the same.
    let other = process(kit, 0);
    for way in [
        "cancel of a lapsed run",
        "recovery",
        "recovery of a cancelled run",
        "adoption",
    ] {
        let scopes = queue(kit, way, 1).await?;
        let run = only(&kit.a).await?;
        let id = *run.held.key();
        let version = kit.row(id).await?.item.version;
        match way {
            "cancel of a lapsed run" => {
                kit.lapse(id).await?;
                other.cancel(id, version).await?;
            }
            "recovery" => {
                kit.lapse(id).await?;
                assert_eq!(other.recover().await?, 1);
            }
            "adoption" => {
                other.cancel(id, version).await?;
                assert!(kit.a.adopt(Vec::new()).await?.is_empty());
            }
            _ => {
                other.cancel(id, version).await?;
                kit.lapse(id).await?;
                assert_eq!(other.recover().await?, 1);
            }
        }
        assert_eq!(slots(kit).await?, (1, 0), "{way}");
        assert_eq!(kit.finish(&kit.a, &run).await?, Ended::Lost, "{way}");
        assert_eq!(slots(kit).await?, (1, 0), "{way}: a stale end gives nothing back");
        kit.check().await?;
        if way == "recovery" {
            let again = only(&kit.b).await?;
            assert_eq!(again.scope, scopes[0]);
            assert_eq!(kit.finish(&kit.b, &again).await?, Ended::Succeeded);
        }
    }
    Ok(())
}

async fn a_process_that_dies_keeps_its_slot_until_its_lease_is_recovered(kit: &Kit) -> anyhow::Result<()> {
    let (a, b) = (process(kit, 4), process(kit, 4));
    queue(kit, "s", 10).await?;
    let dead = claim(&a, 64).await?;
    assert_eq!(dead.len(), 4);
    drop(a);
    assert!(claim(&b, 64).await?.is_empty());
    for run in &dead {
        kit.lapse(*run.held.key()).await?;
    }
    assert!(claim(&b, 64).await?.is_empty(), "only recovery frees a slot");
    assert_eq!(b.recover().await?, 4);
    assert_eq!(slots(kit).await?, (4, 0));
    let running = claim(&b, 64).await?;
    assert_eq!(running.len(), 4);
    for run in &dead {
        assert_eq!(kit.finish(&kit.a, run).await?, Ended::Lost);
    }
    assert_eq!(slots(kit).await?, (4, 4));
    Ok(())
}

async fn a_claim_whose_reply_was_lost_keeps_its_slot_until_its_run_ends(kit: &Kit) -> anyhow::Result<()> {
    queue(kit, "s", 2).await?;
    let lost = only(&kit.a).await?;
    let adopted = kit.a.adopt(Vec::new()).await?;
    assert_eq!(adopted.len(), 1);
    assert_eq!(adopted[0].held, lost.held);
    assert!(adopted[0].usual.is_none());
    assert!(claim(&kit.b, 64).await?.is_empty());
    assert_eq!(kit.finish(&kit.a, &adopted[0]).await?, Ended::Succeeded);
    assert_eq!(slots(kit).await?, (1, 0));
    only(&kit.b).await.map(drop)
}

async fn a_higher_cap_adds_slots_and_a_lower_one_leaves_the_upper_ones_alone(kit: &Kit) -> anyhow::Result<()> {
    queue(kit, "s", 9).await?;
    let low = only(&kit.a).await?;
    let three = process(kit, 3);
    let high = claim(&three, 64).await?;
    assert_eq!((high.len(), slots(kit).await?), (2, (3, 3)));
    assert_eq!(kit.finish(&kit.a, &low).await?, Ended::Succeeded);
    let again = only(&kit.b).await?;
    assert_eq!(
        slots(kit).await?,
        (3, 3),
        "the lower cap leaves the upper slots to those who know them"
    );
    for run in &high {
        assert_eq!(kit.finish(&three, run).await?, Ended::Succeeded);
    }
    assert_eq!(slots(kit).await?, (3, 1));
    assert!(claim(&kit.a, 64).await?.is_empty());
    assert_eq!(kit.finish(&kit.b, &again).await?, Ended::Succeeded);
    only(&kit.a).await.map(drop)
}

async fn a_family_without_a_cap_has_no_slots(kit: &Kit) -> anyhow::Result<()> {
    let free = process(kit, 0);
    queue(kit, "s", 5).await?;
    let running = claim(&free, 64).await?;
    assert!(running.len() == 5 && running.iter().all(|run| run.usual.is_some()));
    assert_eq!(slots(kit).await?, (0, 0));
    for run in &running {
        assert_eq!(kit.finish(&free, run).await?, Ended::Succeeded);
    }
    // Slots that a process with a cap makes are no concern of the others.
    let cap = NonZeroU16::new(2).expect("not zero");
    let input = Arc::new((FamilyName::memory(), cap));
    for _ in 0..2 {
        let made = kit.db().tx_with(TxName::Claim, &input, |tx, (family, cap)| {
            Box::pin(slots::make(tx, family, *cap))
        });
        made.await?;
    }
    assert_eq!(slots(kit).await?, (2, 0));
    Ok(())
}

async fn processes_that_claim_at_once_never_pass_the_cap(kit: &Kit) -> anyhow::Result<()> {
    const CAP: u16 = 3;
    queue(kit, "s", 24).await?;
    let processes = [(); 4].map(|()| Arc::new(process(kit, CAP)));
    let mut running: Vec<(Arc<Ledger>, Claimed)> = Vec::new();
    while !kit.live().await?.is_empty() {
        let mut claims = Vec::new();
        for ledger in &processes {
            let ledger = Arc::clone(ledger);
            claims.push(rt::spawn(async move {
                let claimed = claim(&ledger, 2).await?;
                anyhow::Ok((ledger, claimed))
            }));
        }
        for claims in claims {
            let (ledger, claimed) = claims.await??;
            running.extend(claimed.into_iter().map(|claimed| (Arc::clone(&ledger), claimed)));
        }
        assert!(running.len() <= usize::from(CAP), "{} run at once", running.len());
        let held = slots(kit).await?;
        assert_eq!(held, (i64::from(CAP), i64::try_from(running.len())?));
        kit.check().await?;
        // One ends, so that each round has free slots and held ones.
        if let Some((ledger, run)) = running.pop() {
            assert_eq!(kit.finish(&ledger, &run).await?, Ended::Succeeded);
        }
    }
    Ok(())
}

async fn finishes_together_give_all_their_slots_back(kit: &Kit) -> anyhow::Result<()> {
    let process = process(kit, 24);
    queue(kit, "s", 24).await?;
    let running = claim(&process, 64).await?;
    assert_eq!((running.len(), slots(kit).await?), (24, (24, 24)));
    let finishes = running.iter().map(|run| {
        let nothing = Done {
            write: None,
            head_read: Position::new(1),
            cursor: Position::START,
            code: "processed",
            result: serde_json::json!({}),
        };
        process.finish(run, nothing)
    });
    for ended in futures_util::future::join_all(finishes).await {
        assert_eq!(ended?, Ended::Succeeded);
    }
    assert_eq!(slots(kit).await?, (24, 0));
    Ok(())
}
