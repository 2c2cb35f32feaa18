//! Claiming: who gets what, what is left alone, and what becomes of a claim whose reply was lost (I2, I5, I9).

use std::collections::BTreeSet;
use std::time::Duration;

use powercontext::ledger::{Claim, Ended, KindSpec, Kinds, LeaseTerm, Ledger};
use powercontext::rt;
use powercontext::store::works::Beat;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::WorkId;
use powercontext_core::lease::Expiry;
use powercontext_core::refs::Position;
use powercontext_core::supervise::intent::Dirty;
use powercontext_core::time::Span;
use powercontext_core::work::ready::WHOLE_EVERY;
use powercontext_core::work::{AttemptNo, Outcome};

use crate::ledger_kit::{Kit, LONG_LEASE, THREE_ATTEMPTS, claim, claim_one, ledger, on_both_engines_alone, waits};

on_both_engines_alone! {
    a_kind_without_work_does_not_keep_another_from_being_claimed,
    of_two_processes_that_claim_at_once_one_gets_the_item,
    each_claim_counts_the_attempt_and_raises_the_fence_by_one,
    two_processes_share_forty_lanes_without_overlap,
    a_claim_takes_no_more_than_it_asks_for_and_at_most_64,
    a_locked_lane_never_slows_fifty_others,
    a_worker_with_one_free_slot_is_not_stopped_by_ten_locked_lanes,
    an_item_that_is_not_due_is_not_claimed,
    an_item_that_became_ready_before_what_was_looked_at_is_found_by_the_next_whole_look,
    an_unknown_payload_version_stays_at_its_lane_head_and_other_lanes_flow,
    an_unknown_kind_is_left_alone,
    a_lane_that_cannot_be_read_does_not_stop_the_others,
    a_process_adopts_what_it_holds_and_does_not_run,
    cancelling_items_end_cancelled_when_they_are_adopted,
    a_heartbeat_moves_the_expiry_and_never_the_version_and_tells_of_cancel_and_loss,
    a_heartbeat_passes_over_a_row_that_somebody_holds,
    a_lease_without_a_time_lasts_as_long_as_its_process,
}

async fn of_two_processes_that_claim_at_once_one_gets_the_item(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..10 {
        let scope = kit.scope_with_source(&format!("{n}")).await?;
        let (id, _) = kit.accepted(&scope).await?;
        let (one, two) = tokio::join!(claim(&kit.a, 4), claim(&kit.b, 4));
        let mut all = one?;
        all.extend(two?);
        assert_eq!(all.len(), 1, "both got it, or nobody");
        assert_eq!(*all[0].held.key(), id);
        assert_eq!(all[0].held.fence().to_row(), 1);
        let winner = if all[0].held.member() == kit.a.me() {
            &kit.a
        } else {
            &kit.b
        };
        assert_eq!(kit.finish(winner, &all[0]).await?, Ended::Succeeded);
    }
    Ok(())
}

async fn each_claim_counts_the_attempt_and_raises_the_fence_by_one(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    kit.capture(&scope).await?;
    let (id, _) = kit.accepted(&scope).await?;
    for n in 1..=3 {
        let claimed = claim_one(if n == 2 { &kit.b } else { &kit.a }).await?;
        assert_eq!(claimed.held.fence().to_row(), i64::from(n));
        assert_eq!((claimed.attempt.get(), claimed.budget_used), (n, n));
        assert_eq!(claimed.dirty, Dirty::from_row(2));
        let row = kit.row(id).await?;
        assert_eq!((row.item.state.name(), row.item.counters.attempts), ("running", n));
        let owner = if n == 2 { &kit.b } else { &kit.a };
        kit.check().await?;
        let ended = owner.fail(&claimed, FailCode::ProviderTimeout).await?;
        assert!(n == 3 || waits(ended, Outcome::RetryWait), "{ended:?}");
        kit.all_due().await?;
    }
    assert_eq!(kit.outcomes(id).await?, ["retry_wait", "retry_wait", "failed"]);
    Ok(())
}

async fn many(kit: &Kit, lanes: usize) -> anyhow::Result<BTreeSet<WorkId>> {
    let mut ids = BTreeSet::new();
    for n in 0..lanes {
        let scope = kit.scope_with_source(&format!("lane {n}")).await?;
        ids.insert(kit.accepted(&scope).await?.0);
    }
    Ok(ids)
}

async fn two_processes_share_forty_lanes_without_overlap(kit: &Kit) -> anyhow::Result<()> {
    let ids = many(kit, 40).await?;
    let mut claimed = Vec::new();
    while claimed.len() < ids.len() {
        let (one, two) = tokio::join!(claim(&kit.a, 7), claim(&kit.b, 7));
        let (one, two) = (one?, two?);
        assert!(!one.is_empty() || !two.is_empty(), "work is left and nobody gets any");
        claimed.extend(one.into_iter().chain(two).map(|claimed| *claimed.held.key()));
    }
    assert_eq!(claimed.len(), ids.len());
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), ids);
    Ok(())
}

async fn a_claim_takes_no_more_than_it_asks_for_and_at_most_64(kit: &Kit) -> anyhow::Result<()> {
    many(kit, 70).await?;
    assert_eq!(claim(&kit.a, 0).await?.len(), 0);
    assert_eq!(claim(&kit.a, 1).await?.len(), 1);
    assert_eq!(claim(&kit.a, 3).await?.len(), 3);
    assert_eq!(claim(&kit.a, 1000).await?.len(), 64);
    assert_eq!(claim(&kit.a, 1000).await?.len(), 2);
    assert_eq!(claim(&kit.a, 1000).await?.len(), 0);
    Ok(())
}

async fn a_locked_lane_never_slows_fifty_others(kit: &Kit) -> anyhow::Result<()> {
    let ids = many(kit, 51).await?;
    let mut raw = kit.raw().await?;
    if kit.is_sqlite() {
        // SQLite has one writer and no row locks: a claim waits its turn and then gets everything.
        raw.execute("begin immediate").await?;
        let ledger = kit.process();
        let claiming = rt::spawn(async move { claim(&ledger, 64).await });
        raw.execute("rollback").await?;
        assert_eq!(claiming.await??.len(), ids.len());
        return Ok(());
    }
    raw.execute("start transaction").await?;
    let locked = raw
        .rows("select lane_key from pc_work_lanes limit 1 for update")
        .await?[0]
        .text(0)?;
    let begun = rt::now();
    let claimed = claim(&kit.a, 64).await?;
    let took = begun.elapsed();
    assert_eq!(claimed.len(), 50);
    // Waiting for the lock would have cost its limit of 1 s in each of five runs, and the claim.
    assert!(took < Duration::from_secs(3), "took {took:?}");
    let row = raw
        .rows(&format!("select status from pc_work_items where lane_key = '{locked}'"))
        .await?;
    assert_eq!(row[0].text(0)?, "queued");
    raw.execute("rollback").await?;
    claim_one(&kit.a).await?;
    Ok(())
}

async fn a_worker_with_one_free_slot_is_not_stopped_by_ten_locked_lanes(kit: &Kit) -> anyhow::Result<()> {
    many(kit, 11).await?;
    if kit.is_sqlite() {
        return Ok(()); // No row locks there.
    }
    let mut raw = kit.raw().await?;
    raw.execute("start transaction").await?;
    let oldest = "select lane_key from pc_work_items order by created_at, work_id limit 10";
    for row in raw.rows(oldest).await? {
        let lane = row.text(0)?;
        raw.execute(&format!(
            "select * from pc_work_lanes where lane_key = '{lane}' for update"
        ))
        .await?;
    }
    assert_eq!(claim(&kit.a, 1).await?.len(), 1);
    assert_eq!(claim(&kit.a, 1).await?.len(), 0);
    raw.execute("rollback").await?;
    Ok(())
}

async fn an_item_that_is_not_due_is_not_claimed(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let (id, _) = kit.accepted(&scope).await?;
    assert_eq!(kit.a.next_due().await?, Some(Span::ZERO));
    let mut raw = kit.raw().await?;
    let later = raw.ago(-100);
    raw.execute(&format!(
        "update pc_work_items set available_at = {later}, ready_at = {later} where work_id = '{id}'"
    ))
    .await?;
    assert!(claim(&kit.a, 64).await?.is_empty());
    let due = kit.a.next_due().await?.expect("an item waits").as_millis();
    // The clock of a busy machine may be set back by milliseconds between the two statements.
    assert!((1..=101_000).contains(&due), "due in {due} ms");
    kit.all_due().await?;
    assert_eq!(*claim_one(&kit.a).await?.held.key(), id);
    assert_eq!(kit.a.next_due().await?, None);
    Ok(())
}

async fn an_item_that_became_ready_before_what_was_looked_at_is_found_by_the_next_whole_look(
    kit: &Kit,
) -> anyhow::Result<()> {
    assert!(claim(&kit.a, 1).await?.is_empty(), "a whole look");
    let scope = kit.scope_with_source("s").await?;
    let (late, _) = kit.accepted(&scope).await?;
    let mut raw = kit.raw().await?;
    let long_ago = raw.ago(3600);
    raw.execute(&format!(
        "update pc_work_items set ready_at = {long_ago} where work_id = '{late}'"
    ))
    .await?;
    let begun = rt::now();
    let mut claimed = claim(&kit.a, 1).await?;
    while claimed.is_empty() && begun.elapsed() < WHOLE_EVERY * 2 {
        rt::sleep(WHOLE_EVERY / 50).await;
        claimed = claim(&kit.a, 1).await?;
    }
    assert_eq!(claimed.len(), 1, "not found after {:?}", begun.elapsed());
    assert_eq!(*claimed[0].held.key(), late);
    Ok(())
}

async fn an_unknown_payload_version_stays_at_its_lane_head_and_other_lanes_flow(kit: &Kit) -> anyhow::Result<()> {
    let strange = kit.scope_with_source("strange").await?;
    let (id, _) = kit.accepted(&strange).await?;
    assert!(!kit.a.has_unsupported().await?);
    let mut raw = kit.raw().await?;
    raw.execute(&format!(
        "update pc_work_items set payload_version = 2 where work_id = '{id}'"
    ))
    .await?;
    assert!(kit.a.has_unsupported().await?);

    let plain = kit.scope_with_source("plain").await?;
    kit.accepted(&plain).await?;
    let claimed = claim_one(&kit.a).await?;
    assert_eq!(claimed.scope, plain);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    assert_eq!(kit.status(id).await?, "queued");
    assert_eq!(kit.accepted(&strange).await?, (id, false), "it can still be joined");

    // Once it is of a version that this build reads it is claimed like any other.
    raw.execute("update pc_work_items set payload_version = 1").await?;
    assert!(!kit.a.has_unsupported().await?);
    assert_eq!(*claim_one(&kit.a).await?.held.key(), id);
    Ok(())
}

async fn an_unknown_kind_is_left_alone(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let (id, _) = kit.accepted(&scope).await?;
    let kind = powercontext_core::ids::WorkKind::parse("powercontext.of.the-future")?;
    assert!(kit.a.claim(&Claim { kinds: vec![(kind, 5)] }).await?.is_empty());
    let mut raw = kit.raw().await?;
    raw.execute("update pc_work_items set kind = 'powercontext.of.the-future'")
        .await?;
    assert!(claim(&kit.a, 64).await?.is_empty());
    assert_eq!(kit.status(id).await?, "queued");
    Ok(())
}

async fn a_lane_that_cannot_be_read_does_not_stop_the_others(kit: &Kit) -> anyhow::Result<()> {
    let (broken, first) = kit.running("broken").await?;
    assert_eq!(kit.finish(&kit.a, &first).await?, Ended::Succeeded);
    kit.capture(&broken).await?;
    kit.accepted(&broken).await?;
    let plain = kit.scope_with_source("plain").await?;
    kit.accepted(&plain).await?;
    let mut raw = kit.raw().await?;
    raw.execute("update pc_work_lanes set head_sequence = 1 where head_sequence = 2")
        .await?;
    let claimed = claim_one(&kit.a).await?;
    assert_eq!(claimed.scope, plain);
    kit.lapse(*claimed.held.key()).await?;
    assert_eq!(kit.a.recover().await?, 1);
    raw.execute("update pc_work_lanes set head_sequence = 2 where next_sequence = 3")
        .await?;
    assert_eq!(claim(&kit.a, 64).await?.len(), 2);
    Ok(())
}

async fn a_process_adopts_what_it_holds_and_does_not_run(kit: &Kit) -> anyhow::Result<()> {
    let (_, lost) = kit.running("lost").await?;
    let (_, running) = kit.running("running").await?;
    let (_, lapsed) = kit.running("lapsed").await?;
    kit.lapse(*lapsed.held.key()).await?;
    assert!(
        kit.b.adopt(vec![]).await?.is_empty(),
        "adopted what another process holds"
    );
    let adopted = kit.a.adopt(vec![*running.held.key()]).await?;
    let [adopted] = &adopted[..] else {
        anyhow::bail!("{adopted:?}")
    };
    assert_eq!(adopted.held, lost.held);
    assert_eq!((adopted.attempt, adopted.dirty), (AttemptNo::FIRST, lost.dirty));
    assert_eq!(kit.outcomes(*lost.held.key()).await?, ["open"]);
    assert_eq!(kit.finish(&kit.a, adopted).await?, Ended::Succeeded);
    Ok(())
}

async fn cancelling_items_end_cancelled_when_they_are_adopted(kit: &Kit) -> anyhow::Result<()> {
    let mut items = Vec::new();
    for name in ["one", "two", "three"] {
        let (scope, claimed) = kit.running(name).await?;
        let id = *claimed.held.key();
        kit.a.cancel(id, kit.row(id).await?.item.version).await?;
        items.push((scope, id));
    }
    let (_, lost) = kit.running("lost").await?;
    let adopted = kit.a.adopt(vec![]).await?;
    assert_eq!(adopted.len(), 1);
    assert_eq!(adopted[0].held, lost.held);
    for (scope, id) in items {
        assert_eq!(kit.status(id).await?, "cancelled");
        assert_eq!(kit.outcomes(id).await?, ["cancelled"]);
        assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 1]);
    }
    Ok(())
}

async fn a_heartbeat_moves_the_expiry_and_never_the_version_and_tells_of_cancel_and_loss(
    kit: &Kit,
) -> anyhow::Result<()> {
    let (_, running) = kit.running("running").await?;
    let (_, cancelled) = kit.running("cancelled").await?;
    let (_, lapsed) = kit.running("lapsed").await?;
    let [id, cancelling, over] = [&running, &cancelled, &lapsed].map(|claimed| *claimed.held.key());
    kit.a
        .cancel(cancelling, kit.row(cancelling).await?.item.version)
        .await?;
    kit.lapse(over).await?;
    let mut raw = kit.raw().await?;
    let soon = raw.ago(-30);
    raw.execute(&format!(
        "update pc_work_items set lease_expires_at = {soon} where work_id = '{id}'"
    ))
    .await?;

    let before = kit.row(id).await?;
    let held = [&running, &cancelled, &lapsed].map(|claimed| claimed.held.clone());
    let beats = kit.a.heartbeat(held.to_vec()).await?;
    let wanted = [
        (id, Beat::Renewed),
        (cancelling, Beat::CancelRequested),
        (over, Beat::Lost),
    ];
    assert_eq!(beats, wanted);
    let after = kit.row(id).await?;
    let expiry = |row: &powercontext::store::works::WorkRow| row.item.state.run().map(|run| run.holder.expiry);
    let (Some(Expiry::At(old)), Some(Expiry::At(new))) = (expiry(&before), expiry(&after)) else {
        anyhow::bail!("no expiry");
    };
    assert!(new.since(old).as_millis() > 500_000, "{old:?} {new:?}");
    assert_eq!(
        (after.item.version, after.updated_at),
        (before.item.version, before.updated_at)
    );
    assert_eq!(kit.status(over).await?, "running", "only recovery ends a lost lease");
    Ok(())
}

async fn a_heartbeat_passes_over_a_row_that_somebody_holds(kit: &Kit) -> anyhow::Result<()> {
    let (_, one) = kit.running("one").await?;
    let (_, two) = kit.running("two").await?;
    if kit.is_sqlite() {
        return Ok(()); // No row locks there.
    }
    let mut raw = kit.raw().await?;
    raw.execute("start transaction").await?;
    let sql = format!(
        "select * from pc_work_items where work_id = '{}' for update",
        one.held.key()
    );
    raw.execute(&sql).await?;
    let beats = kit.a.heartbeat(vec![one.held.clone(), two.held.clone()]).await?;
    assert_eq!(
        beats,
        [(*one.held.key(), Beat::Skipped), (*two.held.key(), Beat::Renewed)]
    );
    raw.execute("rollback").await?;
    assert_eq!(
        kit.a.heartbeat(vec![one.held.clone()]).await?,
        [(*one.held.key(), Beat::Renewed)]
    );
    Ok(())
}

async fn a_lease_without_a_time_lasts_as_long_as_its_process(kit: &Kit) -> anyhow::Result<()> {
    let term = || ledger(kit.db(), KindSpec::memory(THREE_ATTEMPTS), LeaseTerm::Process);
    let (dead, living) = (term(), term());
    let mut first = Vec::new();
    for name in ["one", "two"] {
        let scope = kit.scope_with_source(name).await?;
        kit.accepted(&scope).await?;
        first.push(claim_one(&dead).await?);
    }
    assert!(first.iter().all(|claimed| claimed.held.holder().expiry == Expiry::Term));
    assert!(dead.heartbeat(vec![first[0].held.clone()]).await?.is_empty());
    assert_eq!(dead.recover().await?, 0, "a process recovers nothing of its own");
    assert_eq!(kit.finish(&dead, &first[0]).await?, Ended::Succeeded);

    assert_eq!(living.recover().await?, 1, "what a dead process held is free at once");
    assert_eq!(kit.finish(&dead, &first[1]).await?, Ended::Lost);
    assert_eq!(kit.cursor(&first[1].scope).await?.sequence, Position::START);
    let second = claim_one(&living).await?;
    assert_eq!((second.held.fence().to_row(), second.attempt.get()), (2, 2));
    assert_eq!(kit.finish(&living, &second).await?, Ended::Succeeded);
    assert_eq!(
        kit.outcomes(*second.held.key()).await?,
        ["lease_expired_retry", "succeeded"]
    );
    Ok(())
}

async fn a_kind_without_work_does_not_keep_another_from_being_claimed(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let (id, _) = kit.accepted(&scope).await?;
    let (memory, idle) = (KindSpec::memory(THREE_ATTEMPTS), KindSpec::maintenance());
    let kinds = Kinds::new([memory.clone(), idle.clone()]);
    let process = Ledger::new(kit.db().clone(), kinds, rt::member_id(), LONG_LEASE);
    let claim = Claim {
        kinds: vec![(idle.kind, 1), (memory.kind, 4)],
    };
    let claimed = process.claim(&claim).await?;
    let ids: Vec<_> = claimed.iter().map(|claimed| *claimed.held.key()).collect();
    assert_eq!(ids, [id]);
    Ok(())
}
