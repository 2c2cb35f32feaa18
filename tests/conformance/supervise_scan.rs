//! The Supervisor as it runs: schedules, scans, room, successors, and what it finds again.

use powercontext::families::maintenance;
use powercontext::ledger::{Claim, Done, Ended, KindSpec, Kinds, Ledger};
use powercontext::rt;
use powercontext::store::modes::TermLength;
use powercontext::store::{TxName, intents};
use powercontext::supervisor::members::Standing;
use powercontext::supervisor::{Leading, PendingWork, Registration};
use powercontext_core::refs::Position;
use powercontext_core::schedule::Schedule;
use powercontext_core::supervise::mode::{Mode, SupervisorKey};
use powercontext_core::supervise::scan::ScanGeneration;
use powercontext_core::time::Span;
use powercontext_tests::wait::until;

use crate::ledger_kit::{Kit, LONG_LEASE, claim, on_both_engines_alone};
use crate::supervise_kit::{LONG_TERM, Process, RARELY, WITHIN, memory, settings};

on_both_engines_alone! {
    a_scan_admits_what_is_dirty_and_ends_without_waiting_for_runs,
    the_first_input_after_a_rest_is_checked_at_once,
    a_scope_captured_after_the_scan_waits_for_the_next_check,
    admission_stops_at_its_limit_and_a_successor_goes_on_where_it_stopped,
    a_schedule_switched_off_in_mid_scan_ends_it_and_keeps_what_was_admitted,
    what_is_owed_is_recovered_and_ordinary_work_is_not_admitted_without_a_schedule,
    dirty_marks_that_were_lost_are_found_again,
    a_standby_takes_over_with_a_higher_fence,
    a_leader_that_stops_gives_its_lease_back,
    a_foreign_mode_does_not_lead,
    a_failed_scope_does_not_keep_others_from_being_admitted,
    a_flood_of_requests_and_retries_leaves_one_start_in_four_to_ordinary_scopes,
    maintenance_runs_by_its_schedule_and_again_at_once_while_something_is_left,
}

const GLOBAL: SupervisorKey = SupervisorKey::Global;

fn start(ledger: &Ledger, schedule: Schedule) -> Process {
    Process::start(ledger, schedule, settings(Mode::Global, LONG_TERM))
}

async fn a_scan_admits_what_is_dirty_and_ends_without_waiting_for_runs(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..25 {
        kit.scope_with_source(&format!("s{n}")).await?;
    }
    let process = start(&kit.a, RARELY);
    assert_eq!(kit.live_scopes(25).await?.len(), 25);
    let state = kit.scan_is("an ended scan", |state, _| state.upper.is_none()).await?;
    assert_eq!(state.generation, ScanGeneration::from_row(1));
    assert!(state.checkpoint.is_some());
    process.stop().await
}

async fn the_first_input_after_a_rest_is_checked_at_once(kit: &Kit) -> anyhow::Result<()> {
    let process = start(&kit.a, RARELY);
    process.leads(&GLOBAL).await?;
    assert_eq!(
        kit.scan().await?.0.checkpoint,
        None,
        "nothing is pending, and nothing was written"
    );
    kit.scope_with_source("s").await?;
    kit.live_scopes(1).await?;
    process.stop().await
}

async fn a_scope_captured_after_the_scan_waits_for_the_next_check(kit: &Kit) -> anyhow::Result<()> {
    kit.scope_with_source("early").await?;
    let process = start(&kit.a, Schedule::Interval(Span::seconds(3)));
    kit.live_scopes(1).await?;
    let first = kit.scan_is("an ended scan", |state, _| state.upper.is_none()).await?;
    kit.scope_with_source("late").await?;
    kit.live_scopes(2).await?;
    let second = kit
        .scan_is("a second scan", |state, _| state.generation > first.generation)
        .await?;
    let between = second
        .checkpoint
        .zip(first.checkpoint)
        .map(|(second, first)| second.since(first));
    assert!(between >= Some(Span::seconds(3)), "{between:?}");
    process.stop().await
}

async fn admission_stops_at_its_limit_and_a_successor_goes_on_where_it_stopped(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..115 {
        kit.scope_with_source(&format!("s{n}")).await?;
    }
    let first = start(&kit.a, RARELY);
    let admitted = kit.live_scopes(100).await?;
    kit.scan_is("a place", |state, place| state.upper.is_some() && place.get() > 0)
        .await?;
    drop(first);
    kit.end_terms().await?;
    let second = start(&kit.b, RARELY);
    second.leads(&GLOBAL).await?;
    assert_eq!(kit.live_scopes(100).await?, admitted, "there is no room");
    for claimed in claim(&kit.b, 20).await? {
        assert_eq!(kit.finish(&kit.b, &claimed).await?, Ended::Succeeded);
    }
    assert_eq!(kit.live_scopes(95).await?.len(), 95, "115 less the 20 that are over");
    let state = kit.scan_is("an ended scan", |state, _| state.upper.is_none()).await?;
    assert_eq!(state.generation, ScanGeneration::from_row(1), "one scan, two leaders");
    second.stop().await
}

async fn a_schedule_switched_off_in_mid_scan_ends_it_and_keeps_what_was_admitted(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..105 {
        kit.scope_with_source(&format!("s{n}")).await?;
    }
    let on = start(&kit.a, RARELY);
    let admitted = kit.live_scopes(100).await?;
    let before = kit
        .scan_is("a scan in progress", |state, _| state.upper.is_some())
        .await?;
    on.stop().await?;
    let off = start(&kit.a, Schedule::Disabled);
    kit.scan_is("an ended scan", |state, _| state.upper.is_none()).await?;
    assert_eq!(kit.live_scopes(100).await?, admitted);
    off.stop().await?;
    // Switched on again it goes on from the stored checkpoint: nothing is due for hours.
    let on = start(&kit.b, RARELY);
    on.leads(&GLOBAL).await?;
    let after = kit.scan().await?.0;
    assert_eq!(
        (after.checkpoint, after.generation),
        (before.checkpoint, before.generation)
    );
    on.stop().await
}

async fn what_is_owed_is_recovered_and_ordinary_work_is_not_admitted_without_a_schedule(
    kit: &Kit,
) -> anyhow::Result<()> {
    let ordinary = kit.scope_with_source("ordinary").await?;
    let owed = kit.scope_with_source("owed").await?;
    kit.accepted(&owed).await?;
    let mut raw = kit.raw().await?;
    for table in ["pc_work_items", "pc_work_keys", "pc_work_lanes"] {
        raw.execute(&format!("delete from {table}")).await?;
    }
    let process = start(&kit.a, Schedule::Disabled);
    let live = kit.live_scopes(1).await?;
    assert!(live.contains(owed.as_str()));
    assert_eq!(kit.counters(&ordinary).await?, [1, 0, 0, 0]);
    process.stop().await
}

async fn dirty_marks_that_were_lost_are_found_again(kit: &Kit) -> anyhow::Result<()> {
    let (read, claimed) = kit.running("read").await?;
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    let mut unread = Vec::new();
    for n in 0..23 {
        unread.push(kit.scope_with_source(&format!("unread{n}")).await?);
    }
    let mut raw = kit.raw().await?;
    raw.execute("delete from pc_artifact_processing_intents").await?;
    let process = start(&kit.a, RARELY);
    let live = kit.live_scopes(23).await?;
    assert!(unread.iter().all(|scope| live.contains(scope.as_str())));
    assert_eq!(
        kit.counters(&read).await?,
        [0, 0, 0, 0],
        "its cursor stands at its head"
    );
    process.stop().await
}

async fn a_standby_takes_over_with_a_higher_fence(kit: &Kit) -> anyhow::Result<()> {
    let short = settings(Mode::Global, TermLength::Timed(Span::seconds(3)));
    let first = Process::start(&kit.a, RARELY, short.clone());
    let fence = first.leads(&GLOBAL).await?;
    let second = Process::start(&kit.b, RARELY, short);
    second.is(Leading::Standby).await?;
    // Killed: its lease runs out.
    drop(first);
    assert!(second.leads(&GLOBAL).await? > fence);
    kit.scope_with_source("s").await?;
    kit.live_scopes(1).await?;
    second.stop().await
}

async fn a_leader_that_stops_gives_its_lease_back(kit: &Kit) -> anyhow::Result<()> {
    let first = start(&kit.a, RARELY);
    let fence = first.leads(&GLOBAL).await?;
    let second = start(&kit.b, RARELY);
    second.is(Leading::Standby).await?;
    first.stop().await?;
    // The lease was good for ten minutes.
    assert!(second.leads(&GLOBAL).await? > fence);
    second.stop().await
}

async fn a_foreign_mode_does_not_lead(kit: &Kit) -> anyhow::Result<()> {
    let old = start(&kit.a, RARELY);
    old.leads(&GLOBAL).await?;
    old.stop().await?;
    powercontext::supervisor::switch::switch_mode(kit.db(), Mode::Dedicated).await?;
    let old = start(&kit.a, RARELY);
    old.is(Leading::ForeignMode).await?;
    let registrations = vec![memory(RARELY)];
    let new = Process::with(
        &kit.b,
        registrations,
        settings(Mode::Dedicated, LONG_TERM),
        Standing::alone(),
    );
    let key = Mode::Dedicated.supervisor_of(&memory(RARELY).work.family);
    new.leads(&key).await?;
    kit.scope_with_source("s").await?;
    kit.live_scopes(1).await?;
    assert_eq!(old.leading(&GLOBAL), Some(Leading::ForeignMode));
    old.stop().await?;
    new.stop().await
}

async fn a_failed_scope_does_not_keep_others_from_being_admitted(kit: &Kit) -> anyhow::Result<()> {
    let (failed, _) = kit.failed("b").await?;
    kit.capture(&failed).await?;
    let process = start(&kit.a, Schedule::Interval(Span::seconds(1)));
    process.leads(&GLOBAL).await?;
    let healthy = kit.scope_with_source("a").await?;
    let live = kit.live_scopes(2).await?;
    assert!(live.contains(healthy.as_str()) && live.contains(failed.as_str()));
    let claimed = claim(&kit.b, 10).await?;
    assert_eq!(claimed.len(), 1, "the failed one holds its lane");
    kit.finish(&kit.b, &claimed[0]).await?;
    // A3 after A: a later check admits it again, although B is still failed.
    kit.capture(&healthy).await?;
    until("another item of the healthy scope", WITHIN, async || {
        Ok((kit.live().await?.len() == 2).then_some(()))
    })
    .await?;
    process.stop().await
}

async fn a_flood_of_requests_and_retries_leaves_one_start_in_four_to_ordinary_scopes(kit: &Kit) -> anyhow::Result<()> {
    for n in 0..40 {
        let scope = kit.scope_with_source(&format!("flood{n}")).await?;
        kit.accepted(&scope).await?;
    }
    for n in 0..16 {
        kit.scope_with_source(&format!("ordinary{n}")).await?;
    }
    let process = start(&kit.a, RARELY);
    kit.live_scopes(56).await?;
    let mut starts = Vec::new();
    for _ in 0..32 {
        let claimed = claim(&kit.b, 1).await?;
        starts.extend(
            claimed
                .iter()
                .map(|claimed| claimed.scope.as_str().contains("ordinary")),
        );
    }
    for (at, four) in starts.chunks(4).enumerate() {
        assert!(four.contains(&true), "starts {at}: {starts:?}");
    }
    process.stop().await
}

async fn maintenance_runs_by_its_schedule_and_again_at_once_while_something_is_left(kit: &Kit) -> anyhow::Result<()> {
    let scope = maintenance::scope();
    let spec = KindSpec::maintenance();
    let registration = Registration {
        work: spec.clone(),
        prefix: "MAINTENANCE".to_owned(),
        pending: PendingWork::System(scope.clone()),
        ..memory(RARELY)
    };
    let ledger = |_: &str| {
        let kinds = Kinds::new([memory(RARELY).work, spec.clone()]);
        Ledger::new(kit.db().clone(), kinds, rt::member_id(), LONG_LEASE)
    };
    let mut raw = kit.raw().await?;
    let ago = raw.ago(40_000);
    let sql = format!(
        "insert into pc_artifact_processing_binding_states (binding_name, last_schedule_checkpoint_at, updated_at)
         values ('maintenance', {ago}, {ago})"
    );
    raw.execute(&sql).await?;
    let (leader, worker) = (ledger("leader"), ledger("worker"));
    let process = Process::with(
        &leader,
        vec![registration],
        settings(Mode::Global, LONG_TERM),
        Standing::alone(),
    );
    for (head_read, runs_again) in [(1, true), (0, false)] {
        kit.live_scopes(1).await?;
        let claim = Claim {
            kinds: vec![(spec.kind.clone(), 1)],
        };
        let claimed = worker.claim(&claim).await?;
        assert_eq!(claimed.len(), 1);
        let done = Done {
            write: None,
            head_read: Position::new(head_read),
            cursor: Position::new(0),
            code: "cleaned",
            result: serde_json::json!({}),
        };
        assert_eq!(worker.finish(&claimed[0], done).await?, Ended::Succeeded);
        leader.signals().changed.notify_waiters();
        if !runs_again {
            let key = std::sync::Arc::new((spec.binding.clone(), scope.clone()));
            let intent = kit.db().read_with(TxName::Load, &key, |tx, (binding, scope)| {
                Box::pin(intents::get(tx, binding, scope))
            });
            assert!(!intent.await?.is_dirty());
            assert!(kit.live().await?.is_empty());
        }
    }
    process.stop().await
}
