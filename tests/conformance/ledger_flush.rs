//! Explicit requests: what they join, what they create, and what they leave alone (I1, I7, I8).

use powercontext::ledger::{Ended, FlushError, FlushRequest, Flushed};
use powercontext::rt;
use powercontext::store::TxError;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::limits::PAYLOAD_BYTES_MAX;
use powercontext_core::refs::Position;
use powercontext_core::work::Outcome;

use crate::ledger_kit::{Kit, claim, claim_one, on_both_engines_alone, request, waits};

on_both_engines_alone! {
    a_flush_of_a_scope_with_nothing_pending_is_idle_and_leaves_no_rows,
    a_flush_creates_one_item_and_later_ones_join_it_while_it_waits,
    a_flush_during_a_run_that_has_seen_everything_joins_it_and_raises_nothing,
    a_capture_after_the_claim_makes_exactly_one_more_item_however_often_it_is_flushed,
    a_flush_during_a_cancelling_run_waits_behind_it,
    a_failed_head_blocks_its_lane_while_99_other_lanes_drain,
    many_requests_in_one_call_are_answered_as_one_by_one,
    a_lane_that_cannot_be_read_fails_no_other_request_of_the_call,
    six_hundred_requests_in_one_call_are_all_there,
    thirty_two_flushes_at_once_make_one_item_and_all_get_its_id,
    thirty_two_flushes_at_once_behind_a_run_make_one_item,
    scopes_that_differ_in_a_byte_have_lanes_of_their_own,
    a_payload_is_an_object_of_at_most_16_kib,
}

async fn a_flush_of_a_scope_with_nothing_pending_is_idle_and_leaves_no_rows(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope("never")?;
    let start = Position::START;
    assert_eq!(
        kit.flush(&scope).await?,
        Flushed::Idle {
            cursor: start,
            head: start
        }
    );
    let mut raw = kit.raw().await?;
    assert!(raw.rows("select lane_key from pc_work_lanes").await?.is_empty());
    assert!(
        raw.rows("select scope_id from pc_artifact_processing_intents")
            .await?
            .is_empty()
    );

    let (scope, claimed) = kit.running("done").await?;
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    let at = Position::new(1);
    assert_eq!(kit.flush(&scope).await?, Flushed::Idle { cursor: at, head: at });
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    Ok(())
}

async fn a_flush_creates_one_item_and_later_ones_join_it_while_it_waits(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let (id, created) = kit.accepted(&scope).await?;
    assert!(created);
    assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 0]);
    let queued = kit.row(id).await?;
    assert_eq!((queued.item.state.name(), queued.item.version), ("queued", 1));

    kit.capture(&scope).await?;
    assert_eq!(kit.accepted(&scope).await?, (id, false));
    assert_eq!(kit.counters(&scope).await?, [2, 0, 2, 0]);
    assert_eq!(kit.row(id).await?, queued, "joining leaves the item as it is");

    let claimed = claim_one(&kit.a).await?;
    assert!(waits(
        kit.a.fail(&claimed, FailCode::ProviderTimeout).await?,
        Outcome::RetryWait
    ));
    let waiting = kit.row(id).await?;
    assert_eq!(kit.accepted(&scope).await?, (id, false));
    assert_eq!(kit.counters(&scope).await?, [2, 0, 3, 0]);
    assert_eq!(kit.row(id).await?, waiting, "a flush never shortens a back-off");
    Ok(())
}

async fn a_flush_during_a_run_that_has_seen_everything_joins_it_and_raises_nothing(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    for _ in 0..3 {
        assert_eq!(kit.accepted(&scope).await?, (*claimed.held.key(), false));
    }
    assert_eq!(kit.counters(&scope).await?, [1, 0, 1, 0]);
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [1, 1, 1, 1]);
    Ok(())
}

async fn a_capture_after_the_claim_makes_exactly_one_more_item_however_often_it_is_flushed(
    kit: &Kit,
) -> anyhow::Result<()> {
    let (scope, first) = kit.running("s").await?;
    let done = kit.done(&scope).await?;
    let mut behind = None;
    for n in 0..20 {
        kit.capture(&scope).await?;
        let (id, created) = kit.accepted(&scope).await?;
        assert_eq!(created, n == 0);
        assert_eq!(*behind.get_or_insert(id), id);
        assert_ne!(id, *first.held.key());
    }
    assert!(
        claim(&kit.b, 64).await?.is_empty(),
        "the one behind ran beside its head"
    );
    assert_eq!(kit.a.finish(&first, done).await?, Ended::Succeeded);
    // Another item lives: nothing is acknowledged. The cursor reached the head that the run read: clean is what its claim saw.
    assert_eq!(kit.counters(&scope).await?, [21, 1, 21, 0]);

    let second = claim_one(&kit.b).await?;
    assert_eq!(Some(*second.held.key()), behind);
    assert_eq!(kit.finish(&kit.b, &second).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [21, 21, 21, 21]);
    assert_eq!(kit.cursor(&scope).await?.sequence, Position::new(21));
    Ok(())
}

async fn a_flush_during_a_cancelling_run_waits_behind_it(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    let id = *claimed.held.key();
    let version = kit.row(id).await?.item.version;
    assert_eq!(kit.a.cancel(id, version).await?.item.state.name(), "cancelling");
    let (behind, created) = kit.accepted(&scope).await?;
    assert!(created && behind != id);
    assert_eq!(kit.accepted(&scope).await?, (behind, false));

    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Cancelled);
    assert_eq!(
        kit.cursor(&scope).await?.sequence,
        Position::START,
        "a cancelled run wrote its cursor"
    );
    let second = claim_one(&kit.a).await?;
    assert_eq!(*second.held.key(), behind);
    assert_eq!(kit.finish(&kit.a, &second).await?, Ended::Succeeded);
    assert_eq!(kit.counters(&scope).await?, [1, 1, 3, 3]);
    Ok(())
}

async fn a_failed_head_blocks_its_lane_while_99_other_lanes_drain(kit: &Kit) -> anyhow::Result<()> {
    let (scope, head) = kit.failed("poison").await?;
    let before = kit.counters(&scope).await?;
    for _ in 0..3 {
        assert_eq!(kit.flush(&scope).await?, Flushed::Blocked { head });
    }
    assert_eq!(kit.counters(&scope).await?, before, "a refused request changes nothing");

    for n in 0..99 {
        let other = kit.scope_with_source(&format!("lane {n}")).await?;
        kit.accepted(&other).await?;
    }
    let mut drained = 0;
    loop {
        let claimed = claim(&kit.b, 64).await?;
        if claimed.is_empty() {
            break;
        }
        for claimed in claimed {
            assert_ne!(claimed.scope, scope);
            assert_eq!(kit.finish(&kit.b, &claimed).await?, Ended::Succeeded);
            drained += 1;
        }
    }
    assert_eq!(drained, 99);
    assert_eq!(kit.status(head).await?, "failed");
    Ok(())
}

/// Flushes one scope from 32 tasks and answers the one id that all of them got, with how often it was created.
async fn flushed_at_once(kit: &Kit, name: &str) -> anyhow::Result<(powercontext_core::ids::WorkId, usize)> {
    let scope = kit.scope(name)?;
    let mut tasks = Vec::new();
    for _ in 0..32 {
        let (ledger, request) = (kit.process(), request(&scope));
        tasks.push(rt::spawn(async move { ledger.flush(request).await }));
    }
    let mut results = Vec::new();
    for task in tasks {
        match task.await?? {
            Flushed::Accepted { id, created } => results.push((id, created)),
            other => anyhow::bail!("{other:?}"),
        }
    }
    let first = results[0].0;
    assert!(results.iter().all(|(id, _)| *id == first), "{results:?}");
    Ok((first, results.iter().filter(|(_, created)| *created).count()))
}

async fn thirty_two_flushes_at_once_make_one_item_and_all_get_its_id(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let (id, created) = flushed_at_once(kit, "s").await?;
    assert_eq!(created, 1);
    assert_eq!(kit.counters(&scope).await?, [1, 0, 32, 0]);
    assert_eq!(*claim_one(&kit.a).await?.held.key(), id);
    Ok(())
}

async fn thirty_two_flushes_at_once_behind_a_run_make_one_item(kit: &Kit) -> anyhow::Result<()> {
    let (scope, claimed) = kit.running("s").await?;
    kit.capture(&scope).await?;
    let (id, created) = flushed_at_once(kit, "s").await?;
    assert_eq!(created, 1);
    assert_ne!(id, *claimed.held.key());
    Ok(())
}

async fn scopes_that_differ_in_a_byte_have_lanes_of_their_own(kit: &Kit) -> anyhow::Result<()> {
    let mut ids = std::collections::BTreeSet::new();
    for name in ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"] {
        let scope = kit.scope_with_source(name).await?;
        let (id, created) = kit.accepted(&scope).await?;
        assert!(created, "{name:?} joined another scope's item");
        ids.insert(id);
    }
    let claimed = claim(&kit.a, 64).await?;
    assert_eq!(claimed.len(), 5);
    for claimed in claimed {
        assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
        assert!(ids.remove(claimed.held.key()));
        assert_eq!(
            kit.cursor(&claimed.scope).await?.sequence,
            Position::new(1),
            "{:?}",
            claimed.scope
        );
    }
    Ok(())
}

async fn a_payload_is_an_object_of_at_most_16_kib(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    let overhead = r#"{"a":""}"#.len();
    let with = |payload| FlushRequest {
        payload,
        ..request(&scope)
    };
    let sized = |bytes: usize| with(serde_json::json!({"a": "x".repeat(bytes - overhead)}));
    for refused in [with(serde_json::json!([])), sized(PAYLOAD_BYTES_MAX + 1)] {
        assert_eq!(kit.a.flush(refused).await, Err(FlushError::Payload));
    }
    let Flushed::Accepted { id, .. } = kit.a.flush(sized(PAYLOAD_BYTES_MAX)).await? else {
        anyhow::bail!("not accepted");
    };
    assert_eq!(kit.row(id).await?.payload.len(), PAYLOAD_BYTES_MAX);
    Ok(())
}

fn asked(scopes: &[&ScopeId]) -> Vec<(ScopeId, serde_json::Value)> {
    let request = |scope: &&ScopeId| ((*scope).clone(), serde_json::json!({}));
    scopes.iter().map(request).collect()
}

async fn many_requests_in_one_call_are_answered_as_one_by_one(kit: &Kit) -> anyhow::Result<()> {
    let kind = &request(&kit.scope("idle")?).kind;
    let idle = kit.scope("idle")?;
    let (failed, head) = kit.failed("failed").await?;
    let waiting = kit.scope_with_source("waiting").await?;
    let (item, _) = kit.accepted(&waiting).await?;
    let fresh = kit.scope_with_source("fresh").await?;
    let scopes = [&fresh, &idle, &failed, &waiting, &fresh];
    let mut requests = asked(&scopes);
    requests.push((fresh.clone(), serde_json::json!([1])));
    let answers = kit.a.flush_many(kind, requests).await?;
    let Ok(Flushed::Accepted { id, created: true }) = answers[0] else {
        anyhow::bail!("{:?}", answers[0]);
    };
    let at = Position::START;
    let wanted = [
        Ok(Flushed::Accepted { id, created: true }),
        Ok(Flushed::Idle { cursor: at, head: at }),
        Ok(Flushed::Blocked { head }),
        Ok(Flushed::Accepted {
            id: item,
            created: false,
        }),
        Ok(Flushed::Accepted { id, created: false }),
        Err(FlushError::Payload),
    ];
    assert_eq!(answers, wanted);
    assert_eq!(kit.counters(&fresh).await?, [1, 0, 2, 0]);
    assert_eq!(kit.counters(&waiting).await?, [1, 0, 2, 0]);
    assert_eq!(kit.counters(&failed).await?, [1, 0, 1, 0]);
    assert!(kit.a.flush_many(kind, Vec::new()).await?.is_empty());
    let unknown = powercontext_core::ids::WorkKind::parse("powercontext.of.the-future")?;
    assert_eq!(
        kit.a.flush_many(&unknown, asked(&[&fresh])).await,
        Err(FlushError::UnknownKind)
    );
    Ok(())
}

async fn a_lane_that_cannot_be_read_fails_no_other_request_of_the_call(kit: &Kit) -> anyhow::Result<()> {
    let kind = &request(&kit.scope("s")?).kind;
    let broken = kit.scope_with_source("broken").await?;
    kit.accepted(&broken).await?;
    let mut raw = kit.raw().await?;
    raw.execute("update pc_work_lanes set next_sequence = 1").await?;
    let plain = kit.scope_with_source("plain").await?;
    let answers = kit.a.flush_many(kind, asked(&[&broken, &plain])).await?;
    assert!(
        matches!(answers[0], Err(FlushError::Tx(TxError::Corrupt(_)))),
        "{answers:?}"
    );
    assert!(
        matches!(answers[1], Ok(Flushed::Accepted { created: true, .. })),
        "{answers:?}"
    );
    raw.execute("update pc_work_lanes set next_sequence = 2").await?;
    Ok(())
}

async fn six_hundred_requests_in_one_call_are_all_there(kit: &Kit) -> anyhow::Result<()> {
    const REQUESTS: usize = 600;
    let kind = &request(&kit.scope("s")?).kind;
    let mut scopes = Vec::with_capacity(REQUESTS);
    for n in 0..REQUESTS {
        scopes.push(kit.scope_with_source(&format!("{n}")).await?);
    }
    let scopes: Vec<&ScopeId> = scopes.iter().collect();
    let mut ids = std::collections::BTreeSet::new();
    for answer in kit.a.flush_many(kind, asked(&scopes)).await? {
        let Flushed::Accepted { id, created: true } = answer? else {
            anyhow::bail!("joined");
        };
        ids.insert(id);
    }
    assert_eq!(ids.len(), REQUESTS);
    let mut live = kit.live().await?;
    live.sort();
    assert_eq!(live, ids.into_iter().collect::<Vec<_>>());
    Ok(())
}
