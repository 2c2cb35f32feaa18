//! How runs end: all of it in one transaction or nothing, and never by somebody whose lease is over (I1, I3, I6, I10).

use std::sync::Arc;

use powercontext::ledger::{Claimed, Done, Ended, Flushed, KindSpec, Ledger};
use powercontext::store::works::{Beat, WorkRow};
use powercontext::store::{FenceLost, TxError};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::limits::PAYLOAD_BYTES_MAX;
use powercontext_core::refs::{Cursor, Position};
use powercontext_core::time::Span;
use powercontext_core::work::Outcome;
use powercontext_core::work::retry::RetryPolicy;

use crate::ledger_kit::{
    Kit, LONG_LEASE, Refusing, claim, claim_one, done, ledger, on_both_engines_alone, step, waits,
};

on_both_engines_alone! {
    a_finish_commits_cursor_attempt_item_and_acknowledgement_together,
    a_finish_whose_domain_write_refuses_changes_nothing_and_is_recorded_as_a_conflict,
    an_item_without_anything_pending_finishes_without_a_write,
    a_stale_holder_changes_nothing_after_a_take_over,
    a_holder_whose_lease_is_over_changes_nothing_even_before_a_take_over,
    a_run_ends_once,
    a_failure_waits_within_the_delay_of_its_policy,
    an_unbounded_kind_never_fails_for_good_by_a_retryable_failure,
    a_spent_budget_fails_the_item_which_keeps_key_and_lane,
    a_failure_that_cannot_be_retried_fails_at_once,
    release_and_conflict_give_the_budget_back,
    conflicts_in_a_row_double_the_delay,
    only_the_transaction_that_empties_the_lane_acknowledges,
    clean_moves_only_when_the_cursor_reached_the_head_that_was_read,
    a_capture_after_the_claim_or_after_the_read_is_never_called_clean,
    windows_move_the_cursor_under_the_lease_and_the_finish_ends_the_run,
    a_window_of_a_cancelled_run_is_refused_and_ends_it,
    a_result_of_more_than_16_kib_is_refused_and_the_run_goes_on,
}

/// Everything that a run can change.
async fn facts(kit: &Kit, claimed: &Claimed) -> anyhow::Result<(WorkRow, Vec<String>, Cursor, [u64; 4])> {
    let id = *claimed.held.key();
    let cursor = kit.cursor(&claimed.scope).await?;
    Ok((
        kit.row(id).await?,
        kit.outcomes(id).await?,
        cursor,
        kit.counters(&claimed.scope).await?,
    ))
}

fn at(n: u64) -> Position {
    Position::new(n)
}

async fn a_finish_commits_cursor_attempt_item_and_acknowledgement_together(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let version = kit.row(*claimed.held.key()).await?.item.version;
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    let (row, outcomes, cursor, counters) = facts(kit, &claimed).await?;
    assert_eq!((row.item.state.name(), row.item.version), ("succeeded", version + 1));
    assert_eq!(row.result_code.as_deref(), Some("processed"));
    assert_eq!(row.result.as_deref(), Some(&br#"{"current_cursor":1}"#[..]));
    assert!(row.completed_at.is_some() && row.error.is_none());
    assert_eq!(outcomes, ["succeeded"]);
    assert_eq!((cursor.sequence, cursor.generation), (at(1), Some(1)));
    assert_eq!(counters, [1, 1, 1, 1]);
    assert_eq!(
        kit.flush(&scope).await?,
        Flushed::Idle {
            cursor: at(1),
            head: at(1)
        }
    );
    Ok(())
}

async fn a_finish_whose_domain_write_refuses_changes_nothing_and_is_recorded_as_a_conflict(
    kit: &Kit,
) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let before = facts(kit, &claimed).await?;
    let refusing = || Done {
        write: Some(Arc::new(Refusing(scope.clone(), Cursor::START))),
        ..done(&scope, Cursor::START, at(1), at(1))
    };
    let refused = Err(TxError::Refused(FailCode::HeadChanged));
    assert_eq!(kit.a.finish(&claimed, refusing()).await, refused);
    assert_eq!(facts(kit, &claimed).await?, before);

    let ended = kit.a.conflict(&claimed, FailCode::HeadChanged).await?;
    assert!(waits(ended, Outcome::Conflict), "{ended:?}");
    let (row, outcomes, cursor, counters) = facts(kit, &claimed).await?;
    assert_eq!(row.item.state.name(), "retry_wait");
    assert_eq!((row.item.counters.budget_used, row.item.counters.conflicts), (0, 1));
    assert_eq!(row.error, Some(("conflict".to_owned(), "head_changed".to_owned())));
    assert_eq!(
        (outcomes, cursor, counters),
        (vec!["conflict".to_owned()], Cursor::START, [1, 0, 1, 0])
    );
    Ok(())
}

async fn an_item_without_anything_pending_finishes_without_a_write(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    kit.a
        .commit_window(&claimed, step(&scope, Cursor::START, at(1)))
        .await?;
    let cursor = kit.cursor(&scope).await?;
    assert!(kit.done(&scope).await?.write.is_none());
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    assert_eq!(kit.cursor(&scope).await?, cursor);
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    Ok(())
}

/// Tries every write of a run, each of which must find its lease lost.
async fn every_write_is_lost(kit: &Kit, ledger: &Ledger, claimed: &Claimed) -> anyhow::Result<()> {
    let scope = &claimed.scope;
    let finished = ledger.finish(claimed, done(scope, Cursor::START, at(1), at(1))).await?;
    assert_eq!(finished, Ended::Lost);
    assert_eq!(
        ledger.finish(claimed, done(scope, Cursor::START, at(0), at(1))).await?,
        Ended::Lost
    );
    assert_eq!(ledger.fail(claimed, FailCode::Unhandled).await?, Ended::Lost);
    assert_eq!(ledger.conflict(claimed, FailCode::HeadChanged).await?, Ended::Lost);
    assert_eq!(ledger.release(claimed).await?, Ended::Lost);
    let window = ledger.commit_window(claimed, step(scope, Cursor::START, at(1))).await;
    assert_eq!(window, Err(TxError::Fenced(FenceLost::Item)));
    let beats = ledger.heartbeat(vec![claimed.held.clone()]).await?;
    assert_eq!(beats, [(*claimed.held.key(), Beat::Lost)]);
    assert!(ledger.adopt(vec![]).await?.is_empty());
    kit.check().await
}

async fn a_stale_holder_changes_nothing_after_a_take_over(kit: &Kit) -> anyhow::Result<()> {
    let (_, old) = kit.running("s").await?;
    kit.lapse(*old.held.key()).await?;
    assert_eq!(kit.b.recover().await?, 1);
    let waiting = facts(kit, &old).await?;
    every_write_is_lost(kit, &kit.a, &old).await?;
    assert_eq!(facts(kit, &old).await?, waiting);

    let new = claim_one(&kit.b).await?;
    assert_eq!(new.held.fence().to_row(), 2);
    let running = facts(kit, &old).await?;
    every_write_is_lost(kit, &kit.a, &old).await?;
    assert_eq!(facts(kit, &old).await?, running);

    assert_eq!(kit.finish(&kit.b, &new).await?, Ended::Succeeded);
    let ended = facts(kit, &old).await?;
    every_write_is_lost(kit, &kit.a, &old).await?;
    every_write_is_lost(kit, &kit.b, &new).await?;
    assert_eq!(facts(kit, &old).await?, ended);
    assert_eq!(ended.1, ["lease_expired_retry", "succeeded"]);

    // The same process may take its own item over: the fence tells its two runs apart.
    let (_, first) = kit.running("t").await?;
    kit.lapse(*first.held.key()).await?;
    kit.a.recover().await?;
    let second = claim_one(&kit.a).await?;
    assert_eq!(kit.finish(&kit.a, &first).await?, Ended::Lost);
    assert_eq!(kit.finish(&kit.a, &second).await?, Ended::Succeeded);
    Ok(())
}

async fn a_holder_whose_lease_is_over_changes_nothing_even_before_a_take_over(kit: &Kit) -> anyhow::Result<()> {
    let (_, claimed) = kit.running("s").await?;
    kit.lapse(*claimed.held.key()).await?;
    let before = facts(kit, &claimed).await?;
    every_write_is_lost(kit, &kit.a, &claimed).await?;
    assert_eq!(facts(kit, &claimed).await?, before);
    Ok(())
}

async fn a_run_ends_once(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..20 {
        let (scope, claimed) = kit.running(&format!("{n}")).await?;
        let done = kit.done(&scope).await?;
        let (finished, failed) = tokio::join!(
            kit.a.finish(&claimed, done),
            kit.a.fail(&claimed, FailCode::InvalidPayload)
        );
        let (finished, failed) = (finished?, failed?);
        let wanted = [(Ended::Succeeded, Ended::Lost), (Ended::Lost, Ended::Failed)];
        assert!(wanted.contains(&(finished, failed)), "{finished:?} {failed:?}");
        assert_eq!(kit.outcomes(*claimed.held.key()).await?.len(), 1);
    }
    Ok(())
}

async fn a_failure_waits_within_the_delay_of_its_policy(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..10 {
        let (_, claimed) = kit.running(&format!("{n}")).await?;
        let id = *claimed.held.key();
        let Ended::Waits { due, outcome } = kit.a.fail(&claimed, FailCode::ProviderTimeout).await? else {
            anyhow::bail!("it does not wait");
        };
        let row = kit.row(id).await?;
        assert_eq!((outcome, row.item.state.due()), (Outcome::RetryWait, Some(due)));
        assert!(due.since(row.updated_at) <= Span::seconds(2), "full jitter under 2 s");
        assert_eq!(row.error, Some(("provider".to_owned(), "timeout".to_owned())));
        let attempt = kit.a.attempts(id).await?.remove(0);
        assert_eq!(attempt.error, row.error);
        kit.a.cancel(id, row.item.version).await?;
    }
    Ok(())
}

async fn an_unbounded_kind_never_fails_for_good_by_a_retryable_failure(kit: &Kit) -> anyhow::Result<()> {
    let unbounded = ledger(kit.db(), KindSpec::memory(RetryPolicy::UNBOUNDED), LONG_LEASE);
    let scope = kit.scope_with_source("s").await?;
    unbounded.flush(crate::ledger_kit::request(&scope)).await?;
    for n in 0..12_u32 {
        let claimed = claim_one(&unbounded).await?;
        let Ended::Waits { due, .. } = unbounded.fail(&claimed, FailCode::WorkerTimeout).await? else {
            anyhow::bail!("it does not wait");
        };
        let row = kit.row(*claimed.held.key()).await?;
        let delay = due.since(row.updated_at).as_millis();
        let centre = (30_000_u64 << n).min(1_800_000);
        assert!(
            (centre * 4 / 5..=centre * 6 / 5).contains(&delay),
            "attempt {}: {delay} ms",
            n + 1
        );
        kit.all_due().await?;
    }
    assert_eq!(
        kit.finish(&unbounded, &claim_one(&unbounded).await?).await?,
        Ended::Succeeded
    );
    Ok(())
}

async fn a_spent_budget_fails_the_item_which_keeps_key_and_lane(kit: &Kit) -> anyhow::Result<()> {
    let (scope, mut claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    for _ in 0..2 {
        assert!(waits(
            kit.a.fail(&claimed, FailCode::ProviderTimeout).await?,
            Outcome::RetryWait
        ));
        kit.all_due().await?;
        claimed = claim_one(&kit.a).await?;
    }
    assert_eq!(kit.a.fail(&claimed, FailCode::ProviderTimeout).await?, Ended::Failed);
    kit.capture(&scope).await?;
    assert_eq!(kit.flush(&scope).await?, Flushed::Blocked { head: id });
    kit.all_due().await?;
    assert!(claim(&kit.b, 64).await?.is_empty());
    let row = kit.row(id).await?;
    assert_eq!((row.item.state.name(), row.completed_at), ("failed", None));
    Ok(())
}

async fn a_failure_that_cannot_be_retried_fails_at_once(kit: &Kit) -> anyhow::Result<()> {
    for code in FailCode::ALL.into_iter().filter(|code| !code.is_retryable()) {
        let (_, claimed) = kit.running(code.code()).await?;
        assert_eq!(kit.a.fail(&claimed, code).await?, Ended::Failed);
        let row = kit.row(*claimed.held.key()).await?;
        assert_eq!(row.error, Some((code.category().to_owned(), code.code().to_owned())));
    }
    Ok(())
}

async fn release_and_conflict_give_the_budget_back(kit: &Kit) -> anyhow::Result<()> {
    let (_, mut claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    for n in 1..=8 {
        let ended = if n % 2 == 0 {
            kit.a.release(&claimed).await?
        } else {
            kit.a.conflict(&claimed, FailCode::CursorChanged).await?
        };
        let wanted = if n % 2 == 0 {
            Outcome::Released
        } else {
            Outcome::Conflict
        };
        assert!(waits(ended, wanted), "{ended:?}");
        let counters = kit.row(id).await?.item.counters;
        assert_eq!((counters.attempts, counters.budget_used), (n, 0));
        if n % 2 == 0 {
            assert_eq!(
                kit.a.next_due().await?,
                Some(Span::ZERO),
                "released work is available now"
            );
        }
        kit.all_due().await?;
        claimed = claim_one(&kit.a).await?;
        assert_eq!((claimed.attempt.get(), claimed.budget_used), (n + 1, 1));
    }
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    Ok(())
}

async fn conflicts_in_a_row_double_the_delay(kit: &Kit) -> anyhow::Result<()> {
    let (_, mut claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    for wanted in [100, 200, 400, 800] {
        let Ended::Waits { due, .. } = kit.a.conflict(&claimed, FailCode::CursorChanged).await? else {
            anyhow::bail!("it does not wait");
        };
        assert_eq!(due.since(kit.row(id).await?.updated_at).as_millis(), wanted);
        kit.all_due().await?;
        claimed = claim_one(&kit.a).await?;
    }
    assert!(waits(
        kit.a.fail(&claimed, FailCode::ProviderTimeout).await?,
        Outcome::RetryWait
    ));
    assert_eq!(
        kit.row(id).await?.item.counters.conflicts,
        0,
        "they no longer follow each other"
    );
    Ok(())
}

async fn only_the_transaction_that_empties_the_lane_acknowledges(kit: &Kit) -> anyhow::Result<()> {
    let (scope, first) = kit.running("s").await?;
    kit.capture(&scope).await?;
    let (behind, _) = kit.accepted(&scope).await?;
    kit.accepted(&scope).await?;
    assert_eq!(kit.counters(&scope).await?, [2, 0, 3, 0]);
    assert_eq!(kit.finish(&kit.a, &first).await?, Ended::Succeeded);
    // It consumed both sources, and still another item lives.
    assert_eq!(kit.counters(&scope).await?, [2, 1, 3, 0]);
    let second = claim_one(&kit.a).await?;
    assert_eq!(*second.held.key(), behind);
    assert_eq!(kit.finish(&kit.a, &second).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [2, 2, 3, 3]);
    Ok(())
}

async fn captured(kit: &Kit, name: &str, sources: usize) -> anyhow::Result<ScopeId> {
    let scope = kit.scope(name)?;
    for _ in 0..sources {
        kit.capture(&scope).await?;
    }
    Ok(scope)
}

async fn clean_moves_only_when_the_cursor_reached_the_head_that_was_read(kit: &Kit) -> anyhow::Result<()> {
    let scope = captured(kit, "s", 3).await?;
    kit.accepted(&scope).await?;
    let first = claim_one(&kit.a).await?;
    let short = done(&scope, Cursor::START, at(2), at(3));
    assert_eq!(kit.a.finish(&first, short).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [3, 0, 1, 1], "one source is unread");

    let (_, created) = kit.accepted(&scope).await?;
    assert!(created);
    let second = claim_one(&kit.a).await?;
    assert_eq!(kit.finish(&kit.a, &second).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [3, 3, 2, 2]);
    Ok(())
}

async fn a_capture_after_the_claim_or_after_the_read_is_never_called_clean(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    kit.capture(&scope).await?; // after the claim read `dirty`
    let done = kit.done(&scope).await?;
    assert_eq!(done.head_read, at(2));
    kit.capture(&scope).await?; // after the run read the journal head
    assert_eq!(kit.a.finish(&claimed, done).await?, Ended::Succeeded);
    assert_eq!(kit.cursor(&scope).await?.sequence, at(2));
    assert_eq!(kit.counters(&scope).await?, [3, 1, 1, 1]);

    let (_, created) = kit.accepted(&scope).await?;
    assert!(created);
    assert_eq!(kit.finish(&kit.a, &claim_one(&kit.a).await?).await?, Ended::Succeeded);
    assert_eq!(kit.cursor(&scope).await?.sequence, at(3));
    assert_eq!(kit.counters(&scope).await?, [3, 3, 2, 2]);
    Ok(())
}

async fn windows_move_the_cursor_under_the_lease_and_the_finish_ends_the_run(kit: &Kit) -> anyhow::Result<()> {
    let scope = captured(kit, "s", 3).await?;
    let (id, _) = kit.accepted(&scope).await?;
    let claimed = claim_one(&kit.a).await?;
    let before = kit.row(id).await?;
    for n in 1..=2 {
        let from = kit.cursor(&scope).await?;
        assert_eq!(kit.a.commit_window(&claimed, step(&scope, from, at(n))).await?, at(n));
    }
    assert_eq!(kit.row(id).await?, before, "a window leaves the item as it is");
    let moved = kit.a.commit_window(&claimed, step(&scope, Cursor::START, at(3))).await;
    assert_eq!(moved, Err(TxError::Refused(FailCode::CursorChanged)));
    assert_eq!(kit.counters(&scope).await?, [3, 0, 1, 0]);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [3, 3, 1, 1]);
    Ok(())
}

async fn a_window_of_a_cancelled_run_is_refused_and_ends_it(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    kit.b.cancel(id, kit.row(id).await?.item.version).await?;
    let window = kit.a.commit_window(&claimed, step(&scope, Cursor::START, at(1))).await;
    assert_eq!(window, Err(TxError::Refused(FailCode::CancelRequested)));
    let (row, outcomes, cursor, counters) = facts(kit, &claimed).await?;
    assert_eq!(
        (row.item.state.name(), outcomes),
        ("cancelled", vec!["cancelled".to_owned()])
    );
    assert_eq!((cursor, counters), (Cursor::START, [1, 0, 1, 1]));
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Lost);
    Ok(())
}

async fn a_result_of_more_than_16_kib_is_refused_and_the_run_goes_on(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let before = facts(kit, &claimed).await?;
    let overhead = r#"{"a":""}"#.len();
    let sized = |bytes: usize| Done {
        result: serde_json::json!({"a": "x".repeat(bytes - overhead)}),
        ..done(&scope, Cursor::START, at(1), at(1))
    };
    assert!(kit.a.finish(&claimed, sized(PAYLOAD_BYTES_MAX + 1)).await.is_err());
    assert_eq!(facts(kit, &claimed).await?, before);
    assert_eq!(
        kit.a.finish(&claimed, sized(PAYLOAD_BYTES_MAX)).await?,
        Ended::Succeeded
    );
    let result = kit.row(*claimed.held.key()).await?.result;
    assert_eq!(result.map(|bytes| bytes.len()), Some(PAYLOAD_BYTES_MAX));
    Ok(())
}
