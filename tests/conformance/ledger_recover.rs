//! Leases that are over: who takes the work up again, and what its history says (I9, I10, I21).

use anyhow::Context;
use powercontext::ledger::Ended;
use powercontext_core::refs::Position;
use powercontext_core::time::Span;

use crate::ledger_kit::{Kit, claim, claim_one, on_both_engines_alone};

on_both_engines_alone! {
    an_expired_lease_makes_the_item_wait_and_its_next_claim_has_the_next_fence,
    a_live_lease_is_never_recovered,
    a_look_at_the_leases_ends_those_that_are_over_and_tells_how_long_the_next_one_lasts,
    the_last_attempt_of_the_budget_fails_when_its_lease_is_over,
    a_cancelling_item_whose_lease_is_over_ends_cancelled_and_acknowledges,
    two_processes_that_recover_at_once_close_each_attempt_once,
    a_hundred_lapsed_items_of_all_kinds_of_ends_are_recovered_in_one_call,
    a_lane_that_somebody_holds_is_recovered_later,
    stored_times_are_utc_whatever_the_zone_of_another_session,
}

async fn an_expired_lease_makes_the_item_wait_and_its_next_claim_has_the_next_fence(kit: &Kit) -> anyhow::Result<()> {
    let (scope, old) = kit.running("s").await?;
    let id = *old.held.key();
    kit.lapse(id).await?;
    assert!(claim(&kit.b, 64).await?.is_empty(), "only recovery frees it");
    assert_eq!(kit.b.recover().await?, 1);
    assert_eq!(kit.b.recover().await?, 0);
    let row = kit.row(id).await?;
    assert_eq!(row.item.state.name(), "retry_wait");
    assert_eq!(row.error, Some(("lease".to_owned(), "lease_expired".to_owned())));
    assert_eq!(kit.outcomes(id).await?, ["lease_expired_retry"]);
    let new = claim_one(&kit.b).await?;
    assert_eq!(
        (new.held.fence().to_row(), new.attempt.get(), new.budget_used),
        (2, 2, 2)
    );
    assert_eq!(kit.finish(&kit.b, &new).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    Ok(())
}

async fn a_live_lease_is_never_recovered(kit: &Kit) -> anyhow::Result<()> {
    let (_, claimed) = kit.running("s").await?;
    assert_eq!(kit.b.recover().await?, 0);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    Ok(())
}

async fn a_look_at_the_leases_ends_those_that_are_over_and_tells_how_long_the_next_one_lasts(
    kit: &Kit,
) -> anyhow::Result<()> {
    assert_eq!(kit.b.recover_lapsed().await?, None, "nothing is leased");
    let (_, first) = kit.running("s").await?;
    let (_, second) = kit.running("t").await?;
    let (first, second) = (*first.held.key(), *second.held.key());
    let left = kit.b.recover_lapsed().await?.context("two are leased")?;
    assert!((540_000..=600_000).contains(&left.as_millis()), "{left:?}");
    // One that an operator ended is somebody's as long as any other.
    kit.a.cancel(second, kit.row(second).await?.item.version).await?;
    kit.lapse(first).await?;
    let left = kit.b.recover_lapsed().await?.context("one is leased")?;
    assert!((540_000..=600_000).contains(&left.as_millis()), "{left:?}");
    assert_eq!(kit.status(first).await?, "retry_wait");
    kit.lapse(second).await?;
    assert_eq!(kit.b.recover_lapsed().await?, None);
    assert_eq!(kit.status(second).await?, "cancelled");
    Ok(())
}

async fn the_last_attempt_of_the_budget_fails_when_its_lease_is_over(kit: &Kit) -> anyhow::Result<()> {
    let (_, mut claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    for n in 1..=3 {
        assert_eq!(claimed.attempt.get(), n);
        kit.lapse(id).await?;
        assert_eq!(kit.b.recover().await?, 1);
        if n < 3 {
            claimed = claim_one(&kit.a).await?;
        }
    }
    assert_eq!(kit.status(id).await?, "failed");
    assert_eq!(
        kit.outcomes(id).await?,
        ["lease_expired_retry", "lease_expired_retry", "lease_expired_failed"]
    );
    Ok(())
}

async fn a_cancelling_item_whose_lease_is_over_ends_cancelled_and_acknowledges(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    kit.a.cancel(id, kit.row(id).await?.item.version).await?;
    kit.lapse(id).await?;
    assert_eq!(kit.b.recover().await?, 1);
    assert_eq!(kit.status(id).await?, "cancelled");
    assert_eq!(kit.outcomes(id).await?, ["cancelled"]);
    assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 1]);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Lost);
    assert_eq!(kit.cursor(&scope).await?.sequence, Position::START);
    Ok(())
}

async fn two_processes_that_recover_at_once_close_each_attempt_once(kit: &Kit) -> anyhow::Result<()> {
    let mut ids = Vec::new();
    for n in 0..20 {
        let (_, claimed) = kit.running(&format!("{n}")).await?;
        ids.push(*claimed.held.key());
    }
    for id in &ids {
        kit.lapse(*id).await?;
    }
    let (mut one, mut two) = tokio::try_join!(kit.a.recover(), kit.b.recover())?;
    // Each passes over what the other has locked just then.
    one += kit.a.recover().await?;
    two += kit.b.recover().await?;
    assert_eq!(one + two, ids.len());
    for id in ids {
        assert_eq!(kit.outcomes(id).await?, ["lease_expired_retry"]);
    }
    Ok(())
}

async fn a_hundred_lapsed_items_of_all_kinds_of_ends_are_recovered_in_one_call(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..100 {
        let scope = kit.scope_with_source(&format!("{n}")).await?;
        kit.accepted(&scope).await?;
    }
    let mut claimed = claim(&kit.a, 64).await?;
    claimed.extend(claim(&kit.a, 64).await?);
    assert_eq!(claimed.len(), 100);
    for (n, claimed) in claimed.iter().enumerate() {
        let id = *claimed.held.key();
        if n % 10 == 0 {
            kit.a.cancel(id, kit.row(id).await?.item.version).await?;
        }
        kit.lapse(id).await?;
    }
    assert_eq!(kit.b.recover().await?, 100);
    let mut waiting = claim(&kit.b, 64).await?;
    waiting.extend(claim(&kit.b, 64).await?);
    assert_eq!(waiting.len(), 90);
    Ok(())
}

async fn a_lane_that_somebody_holds_is_recovered_later(kit: &Kit) -> anyhow::Result<()> {
    let (_, one) = kit.running("one").await?;
    let (_, two) = kit.running("two").await?;
    kit.lapse(*one.held.key()).await?;
    kit.lapse(*two.held.key()).await?;
    if kit.is_sqlite() {
        return Ok(()); // No row locks there.
    }
    let lane = kit.row(*one.held.key()).await?.lane_key;
    let mut raw = kit.raw().await?;
    raw.execute("start transaction").await?;
    raw.execute(&format!(
        "select * from pc_work_lanes where lane_key = '{lane}' for update"
    ))
    .await?;
    assert_eq!(kit.b.recover().await?, 1);
    assert_eq!(kit.status(*one.held.key()).await?, "running");
    assert_eq!(
        kit.b.recover_lapsed().await?,
        Some(Span::ZERO),
        "one is over and stays so"
    );
    raw.execute("rollback").await?;
    assert_eq!(kit.b.recover().await?, 1);
    Ok(())
}

async fn stored_times_are_utc_whatever_the_zone_of_another_session(kit: &Kit) -> anyhow::Result<()> {
    let mut raw = kit.raw().await?;
    if !kit.is_sqlite() {
        raw.execute("set time_zone = '+08:00'").await?;
    }
    let (_, claimed) = kit.running("s").await?;
    let seconds = |column: &str| {
        if kit.is_sqlite() {
            format!("cast(({column} / 1000000) - unixepoch() as integer)")
        } else {
            format!("timestampdiff(second, utc_timestamp(), {column})")
        }
    };
    let sql = format!(
        "select {}, {}, {} from pc_work_items",
        seconds("created_at"),
        seconds("updated_at"),
        seconds("lease_expires_at")
    );
    let row = &raw.rows(&sql).await?[0];
    let [created, updated, expires] = [row.int(0)?, row.int(1)?, row.int(2)?];
    assert!(
        (-60..=1).contains(&created) && (-60..=1).contains(&updated),
        "{created} {updated}"
    );
    assert!((540..=601).contains(&expires), "the lease of 600 s ends in {expires} s");
    assert_eq!(kit.b.recover().await?, 0);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    Ok(())
}
