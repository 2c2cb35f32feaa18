//! What operators do: cancel and retry, each on the version that was read, and what everybody sees of it (I4).

use powercontext::ledger::{Claimed, Ended, Flushed, OperatorError, PageRequest};
use powercontext::rt;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkId};
use powercontext_core::operation::OperationKind;
use powercontext_core::refs::Position;
use powercontext_core::work::{Outcome, WorkState};

use crate::ledger_kit::{Kit, claim, claim_one, conflict, on_both_engines_alone, waits};

on_both_engines_alone! {
    a_waiting_or_failed_item_is_cancelled_at_once,
    a_running_item_is_cancelled_through_cancelling_and_every_end_ends_it_cancelled,
    cancelling_a_lapsed_run_ends_it_at_once_and_raises_the_fence,
    cancelling_the_item_behind_moves_the_key_back_to_the_head,
    cancelling_the_failed_head_frees_the_item_behind,
    an_ended_or_cancelling_item_cannot_be_cancelled,
    a_stale_version_is_told_the_state_and_version_of_now,
    only_a_failed_item_can_be_retried_and_gets_a_fresh_budget,
    an_internal_kind_is_invisible_and_cannot_be_touched,
    two_cancels_at_once_are_one_cancel,
    cancel_against_commit_always_answers_what_happens,
    a_page_shows_the_newest_first_and_goes_on_where_it_stopped,
}

async fn version(kit: &Kit, id: WorkId) -> anyhow::Result<u64> {
    Ok(kit.row(id).await?.item.version)
}

async fn is_cancelled(kit: &Kit, scope: &ScopeId, id: WorkId) -> anyhow::Result<()> {
    let row = kit.row(id).await?;
    assert_eq!(row.item.state.name(), "cancelled");
    assert!(row.completed_at.is_some() && row.result.is_none());
    let [dirty, clean, requested, handled] = kit.counters(scope).await?;
    assert_eq!((dirty, clean), (1, 0), "a cancel consumes nothing");
    assert_eq!(requested, handled, "acknowledged like any end");
    assert_eq!(kit.cursor(scope).await?.sequence, Position::START);
    // The input is still pending: the next request makes a new item.
    let (next, created) = kit.accepted(scope).await?;
    assert!(created && next != id);
    Ok(())
}

async fn a_waiting_or_failed_item_is_cancelled_at_once(kit: &Kit) -> anyhow::Result<()> {
    let queued = kit.scope_with_source("queued").await?;
    let (id, _) = kit.accepted(&queued).await?;
    let row = kit.b.cancel(id, 1).await?;
    assert_eq!((row.item.state.name(), row.item.version), ("cancelled", 2));
    is_cancelled(kit, &queued, id).await?;
    assert!(kit.outcomes(id).await?.is_empty());
    kit.a.cancel(claim_one(&kit.a).await?.held.key().to_owned(), 2).await?;

    let (waiting, claimed) = kit.running("waiting").await?;
    assert!(waits(kit.a.release(&claimed).await?, Outcome::Released));
    let id = *claimed.held.key();
    assert_eq!(
        kit.b.cancel(id, version(kit, id).await?).await?.item.state.name(),
        "cancelled"
    );
    is_cancelled(kit, &waiting, id).await?;
    assert_eq!(kit.outcomes(id).await?, ["released"]);
    claim_one(&kit.a).await?;

    let (failed, id) = kit.failed("failed").await?;
    let cancelled = kit.b.cancel(id, version(kit, id).await?).await?;
    assert_eq!((cancelled.item.state.name(), cancelled.error), ("cancelled", None));
    is_cancelled(kit, &failed, id).await?;
    assert_eq!(kit.outcomes(id).await?, ["failed"]);
    Ok(())
}

async fn ended(kit: &Kit, how: usize, claimed: &Claimed) -> anyhow::Result<Ended> {
    Ok(match how {
        0 => kit.finish(&kit.a, claimed).await?,
        1 => kit.a.fail(claimed, FailCode::ProviderTimeout).await?,
        2 => kit.a.fail(claimed, FailCode::InvalidPayload).await?,
        3 => kit.a.conflict(claimed, FailCode::CursorChanged).await?,
        _ => kit.a.release(claimed).await?,
    })
}

async fn a_running_item_is_cancelled_through_cancelling_and_every_end_ends_it_cancelled(
    kit: &Kit,
) -> anyhow::Result<()> {
    let mut cancels = kit.b.signals().cancels.subscribe();
    for how in 0..5 {
        let (scope, claimed) = kit.running(&format!("{how}")).await?;
        let id = *claimed.held.key();
        let row = kit.b.cancel(id, version(kit, id).await?).await?;
        assert_eq!((row.item.state.name(), row.item.version), ("cancelling", 3));
        assert_eq!(cancels.recv().await?, id, "the worker of this process hears of it");
        assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 0]);
        assert_eq!(ended(kit, how, &claimed).await?, Ended::Cancelled);
        assert_eq!(kit.outcomes(id).await?, ["cancelled"]);
        is_cancelled(kit, &scope, id).await?;
        claim_one(&kit.a).await?;
    }
    Ok(())
}

async fn cancelling_a_lapsed_run_ends_it_at_once_and_raises_the_fence(kit: &Kit) -> anyhow::Result<()> {
    for name in ["running", "cancelling"] {
        let (scope, claimed) = kit.running(name).await?;
        let id = *claimed.held.key();
        if name == "cancelling" {
            kit.b.cancel(id, version(kit, id).await?).await?;
        }
        kit.lapse(id).await?;
        let row = kit.b.cancel(id, version(kit, id).await?).await?;
        assert_eq!(row.item.state.name(), "cancelled");
        assert_eq!(row.item.fence.map(powercontext_core::fence::Fence::to_row), Some(2));
        assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Lost);
        assert_eq!(kit.outcomes(id).await?, ["cancelled"]);
        is_cancelled(kit, &scope, id).await?;
        claim_one(&kit.b).await?;
    }
    Ok(())
}

async fn cancelling_the_item_behind_moves_the_key_back_to_the_head(kit: &Kit) -> anyhow::Result<()> {
    let (scope, head) = kit.running("s").await?;
    kit.capture(&scope).await?;
    let (behind, _) = kit.accepted(&scope).await?;
    assert_eq!(kit.a.cancel(behind, 1).await?.item.state.name(), "cancelled");
    kit.check().await?;
    assert_eq!(
        kit.counters(&scope).await?,
        [2, 0, 2, 0],
        "the head lives: nothing is acknowledged"
    );
    assert!(waits(kit.a.release(&head).await?, Outcome::Released));
    assert_eq!(kit.accepted(&scope).await?, (*head.held.key(), false));
    assert_eq!(kit.finish(&kit.a, &claim_one(&kit.a).await?).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [2, 2, 3, 3]);
    Ok(())
}

async fn cancelling_the_failed_head_frees_the_item_behind(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let head = *claimed.held.key();
    kit.capture(&scope).await?;
    let (behind, _) = kit.accepted(&scope).await?;
    assert_eq!(kit.a.fail(&claimed, FailCode::InvalidPayload).await?, Ended::Failed);
    assert_eq!(kit.flush(&scope).await?, Flushed::Blocked { head });
    assert!(claim(&kit.a, 64).await?.is_empty());
    kit.a.cancel(head, version(kit, head).await?).await?;
    assert_eq!(kit.accepted(&scope).await?, (behind, false));
    let next = claim_one(&kit.a).await?;
    assert_eq!(*next.held.key(), behind);
    assert_eq!(kit.finish(&kit.a, &next).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [2, 2, 3, 3]);
    Ok(())
}

async fn an_ended_or_cancelling_item_cannot_be_cancelled(kit: &Kit) -> anyhow::Result<()> {
    let (_, claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    kit.a.cancel(id, 2).await?;
    assert_eq!(conflict(kit.a.cancel(id, 3).await)?, ("cancelling", 3));
    kit.a.release(&claimed).await?;
    assert_eq!(conflict(kit.a.cancel(id, 4).await)?, ("cancelled", 4));
    let (_, claimed) = kit.running("t").await?;
    kit.finish(&kit.a, &claimed).await?;
    assert_eq!(conflict(kit.a.cancel(*claimed.held.key(), 3).await)?, ("succeeded", 3));
    Ok(())
}

async fn a_stale_version_is_told_the_state_and_version_of_now(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    for stale in [0, 1, 3, u64::MAX] {
        assert_eq!(conflict(kit.a.cancel(id, stale).await)?, ("running", 2));
        assert_eq!(conflict(kit.a.retry(id, stale).await)?, ("running", 2));
    }
    assert_eq!(kit.a.heartbeat(vec![claimed.held.clone()]).await?.len(), 1);
    assert_eq!(
        version(kit, id).await?,
        2,
        "a heartbeat must not make an operator's version stale"
    );
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    assert_eq!(conflict(kit.a.cancel(id, 2).await)?, ("succeeded", 3));
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    let unknown = rt::work_id();
    assert_eq!(kit.a.cancel(unknown, 1).await.err(), Some(OperatorError::NotFound));
    assert_eq!(kit.a.retry(unknown, 1).await.err(), Some(OperatorError::NotFound));
    Ok(())
}

async fn only_a_failed_item_can_be_retried_and_gets_a_fresh_budget(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    assert_eq!(conflict(kit.a.retry(id, 2).await)?, ("running", 2));
    kit.a.release(&claimed).await?;
    assert_eq!(conflict(kit.a.retry(id, 3).await)?, ("retry_wait", 3));
    let claimed = claim_one(&kit.a).await?;
    kit.a.fail(&claimed, FailCode::InvalidPayload).await?;
    let before = kit.counters(&scope).await?;

    let row = kit.b.retry(id, version(kit, id).await?).await?;
    assert_eq!((row.item.state.name(), row.error), ("queued", None));
    let counters = row.item.counters;
    assert_eq!(
        (counters.attempts, counters.budget_used, counters.recoveries),
        (2, 0, 1)
    );
    assert_eq!(kit.counters(&scope).await?, before);
    assert_eq!(
        conflict(kit.a.retry(id, row.item.version).await)?,
        ("queued", row.item.version)
    );
    assert_eq!(kit.accepted(&scope).await?, (id, false), "it can be joined again");

    let claimed = claim_one(&kit.a).await?;
    assert_eq!(
        (
            claimed.attempt.get(),
            claimed.budget_used,
            claimed.held.fence().to_row()
        ),
        (3, 1, 3)
    );
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    assert_eq!(kit.outcomes(id).await?, ["released", "failed", "succeeded"]);
    assert_eq!(conflict(kit.a.retry(id, version(kit, id).await?).await)?.0, "succeeded");
    Ok(())
}

async fn an_internal_kind_is_invisible_and_cannot_be_touched(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let (id, _) = kit.accepted(&scope).await?;
    assert!(kit.a.operation(id).await?.is_some());
    let mut raw = kit.raw().await?;
    raw.execute("update pc_work_items set kind = 'powercontext.maintenance.operations'")
        .await?;
    assert!(kit.a.operation(id).await?.is_none());
    assert!(kit.a.work(id).await?.is_some());
    let page = kit
        .a
        .operations(PageRequest {
            limit: 100,
            ..PageRequest::default()
        })
        .await?;
    assert!(page.rows.is_empty());
    assert_eq!(kit.a.cancel(id, 1).await.err(), Some(OperatorError::NotFound));
    assert_eq!(kit.a.retry(id, 1).await.err(), Some(OperatorError::NotFound));
    assert_eq!(kit.status(id).await?, "queued");
    Ok(())
}

async fn two_cancels_at_once_are_one_cancel(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..20 {
        let scope = kit.scope_with_source(&format!("{n}")).await?;
        let (id, _) = kit.accepted(&scope).await?;
        let (one, two) = tokio::join!(kit.a.cancel(id, 1), kit.b.cancel(id, 1));
        let (won, lost) = if one.is_ok() { (one, two) } else { (two, one) };
        assert_eq!(won?.item.state.name(), "cancelled");
        assert_eq!(conflict(lost)?, ("cancelled", 2));
    }
    Ok(())
}

/// A run ends while an operator cancels it; whoever is first, both answers fit the end.
async fn race(kit: &Kit, claimed: &Claimed) -> anyhow::Result<bool> {
    let id = *claimed.held.key();
    let done = kit.done(&claimed.scope).await?;
    let expected = version(kit, id).await?;
    let draw = rt::random();
    // A cancel reads before it locks and a usual finish does not: round trips before either let each be first.
    let later = |trips: u32| async move {
        for _ in 0..trips {
            kit.row(id).await?;
        }
        for _ in 0..draw / 256 % 64 {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    let finish = async {
        later(draw % 5).await?;
        anyhow::Ok(kit.a.finish(claimed, done).await?)
    };
    let cancel = async {
        later(draw / 5 % 2).await?;
        anyhow::Ok(kit.b.cancel(id, expected).await)
    };
    let (finished, cancelled) = if draw.is_multiple_of(2) {
        tokio::join!(finish, cancel)
    } else {
        let (cancelled, finished) = tokio::join!(cancel, finish);
        (finished, cancelled)
    };
    let cancelled = cancelled?;
    let state = kit.row(id).await?.item.state;
    let cursor = kit.cursor(&claimed.scope).await?.sequence;
    if let WorkState::Succeeded { .. } = state {
        assert_eq!(finished?, Ended::Succeeded);
        assert_eq!(conflict(cancelled)?, ("succeeded", 3));
        assert_eq!(cursor, Position::new(1));
        return Ok(true);
    }
    assert_eq!(state.name(), "cancelled");
    assert_eq!(finished?, Ended::Cancelled);
    assert_eq!(cancelled?.item.state.name(), "cancelling");
    assert_eq!(cursor, Position::START);
    Ok(false)
}

async fn cancel_against_commit_always_answers_what_happens(kit: &Kit) -> anyhow::Result<()> {
    const RACES: usize = 200;
    let mut committed = 0;
    for n in 0..RACES {
        let scope = kit.scope_with_source(&format!("{n}")).await?;
        kit.accepted(&scope).await?;
        committed += usize::from(race(kit, &claim_one(&kit.a).await?).await?);
    }
    assert!(
        committed > 0 && committed < RACES,
        "{committed} of {RACES} committed: nothing raced"
    );
    Ok(())
}

async fn a_page_shows_the_newest_first_and_goes_on_where_it_stopped(kit: &Kit) -> anyhow::Result<()> {
    let mut ids = Vec::new();
    for n in 0..7 {
        let scope = kit.scope_with_source(&format!("{n}")).await?;
        ids.push(kit.accepted(&scope).await?.0);
    }
    kit.a.cancel(ids[3], 1).await?;
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = kit
            .a
            .operations(PageRequest {
                before,
                limit: 3,
                ..PageRequest::default()
            })
            .await?;
        seen.extend(page.rows.iter().map(|row| (row.created_at, row.item.id)));
        let Some(next) = page.next else { break };
        before = Some(next);
    }
    let mut wanted = seen.clone();
    wanted.sort_by(|a, b| b.cmp(a));
    assert_eq!(seen, wanted);
    let all: std::collections::BTreeSet<_> = seen.iter().map(|(_, id)| *id).collect();
    assert_eq!((seen.len(), all), (7, ids.iter().copied().collect()));

    let filtered = |scope: Option<ScopeId>, kind, status| {
        let request = PageRequest {
            scope,
            kind,
            status,
            limit: 100,
            before: None,
        };
        async { kit.a.operations(request).await.map(|page| page.rows.len()) }
    };
    assert_eq!(
        filtered(None, Some(OperationKind::MemoryFlush), Some("queued")).await?,
        6
    );
    assert_eq!(filtered(None, None, Some("cancelled")).await?, 1);
    assert_eq!(
        filtered(None, Some(OperationKind::ExperienceIncubation), None).await?,
        0
    );
    assert_eq!(filtered(Some(kit.scope("3")?), None, None).await?, 1);
    assert_eq!(filtered(Some(kit.scope("3")?), None, Some("queued")).await?, 0);
    let (_, depths) = kit.a.depths().await?;
    let depths: Vec<_> = depths
        .iter()
        .map(|depth| (depth.status.as_str(), depth.items))
        .collect();
    assert_eq!(depths, [("queued", 6)]);
    Ok(())
}
