//! The whole matrix: every state against every event, the refused cells written out by hand.

use super::*;
use crate::ids::WorkId;
use crate::time::Span;
use uuid::Uuid;

fn now() -> DbTime {
    DbTime::from_micros(1_000_000_000)
}

fn me() -> MemberId {
    MemberId::parse("me").expect("valid")
}

fn fence(n: i64) -> Fence {
    Fence::from_row(n).expect("positive")
}

fn holder(member: &str, at: Expiry) -> Holder {
    Holder {
        member: MemberId::parse(member).expect("valid"),
        fence: fence(3),
        expiry: at,
    }
}

fn live() -> Holder {
    holder("me", Expiry::At(now().plus(Span::seconds(1))))
}

fn run(holder: Holder) -> Run {
    Run {
        holder,
        requested: Requested::from_row(2),
        dirty: Dirty::from_row(5),
    }
}

fn item(state: WorkState) -> Item {
    Item {
        id: WorkId::new(Uuid::from_u128(7)),
        state,
        counters: Counters {
            attempts: 3,
            budget_used: 2,
            recoveries: 1,
            conflicts: 1,
        },
        fence: Some(fence(3)),
        attempts_max: Some(5),
        version: 9,
    }
}

const STATES: [&str; 12] = [
    "queued_due",
    "queued_later",
    "running",
    "running_lapsed",
    "running_other",
    "retry_due",
    "retry_later",
    "cancelling",
    "cancelling_lapsed",
    "succeeded",
    "failed",
    "cancelled",
];

fn state(name: &str) -> WorkState {
    let later = now().plus(Span::millis(1));
    match name {
        "queued_due" => WorkState::Queued { due: now() },
        "queued_later" => WorkState::Queued { due: later },
        "running" => WorkState::Running(run(live())),
        "running_lapsed" => WorkState::Running(run(holder("me", Expiry::At(now())))),
        "running_other" => WorkState::Running(run(holder("other", Expiry::At(later)))),
        "retry_due" => WorkState::RetryWait { due: now(), last: None },
        "retry_later" => WorkState::RetryWait {
            due: later,
            last: Some(FailCode::ProviderTimeout),
        },
        "cancelling" => WorkState::Cancelling(run(live())),
        "cancelling_lapsed" => WorkState::Cancelling(run(holder("me", Expiry::At(now())))),
        "succeeded" => WorkState::Succeeded { at: now() },
        "failed" => WorkState::Failed {
            last: FailCode::Unhandled,
        },
        "cancelled" => WorkState::Cancelled { at: now() },
        other => panic!("no such state: {other}"),
    }
}

const EVENTS: [&str; 11] = [
    "claim",
    "adopt",
    "window",
    "finish",
    "fail",
    "fail_final",
    "conflict",
    "release",
    "expire",
    "retry",
    "cancel",
];

fn apply(event: &str, item: &Item) -> Result<Step, Refused> {
    let (me, held) = (me(), live());
    let fail = |code| Event::Fail {
        holder: &held,
        code,
        policy: RetryPolicy::BOUNDED,
        jitter: Jitter(u32::MAX),
    };
    let event = match event {
        "claim" => Event::Claim {
            by: &me,
            expiry: Expiry::At(now().plus(Span::seconds(120))),
            requested: Requested::from_row(4),
            dirty: Dirty::from_row(8),
        },
        "adopt" => Event::Adopt { by: &me },
        "window" => Event::WindowCommit(&held),
        "finish" => Event::Finish(&held),
        "fail" => fail(FailCode::ProviderTimeout),
        "fail_final" => fail(FailCode::InvalidPayload),
        "conflict" => Event::Conflict {
            holder: &held,
            code: FailCode::CursorChanged,
        },
        "release" => Event::Release(&held),
        "expire" => Event::Expire,
        "retry" => Event::Retry,
        "cancel" => Event::Cancel,
        other => panic!("no such event: {other}"),
    };
    step(item, &event, now(), &me)
}

/// One cell: the state reached, or why nothing happened.
fn cell(state_name: &str, event: &str) -> String {
    match apply(event, &item(state(state_name))) {
        Ok(step) => step.item.state.name().to_owned(),
        Err(refused) => format!("{refused:?}"),
    }
}

/// The state reached, or why nothing happened. `State`: the state takes no such event. `Stale`: the caller's lease is gone.
const MATRIX: &str = "
state              claim    adopt      window     finish     fail        fail_final  conflict    release     expire      retry   cancel
queued_due         running  State      Stale      Stale      Stale       Stale       Stale       Stale       State       State   cancelled
queued_later       NotDue   State      Stale      Stale      Stale       Stale       Stale       Stale       State       State   cancelled
running            State    running    running    succeeded  retry_wait  failed      retry_wait  retry_wait  Leased      State   cancelling
running_lapsed     State    Stale      Stale      Stale      Stale       Stale       Stale       Stale       retry_wait  State   cancelled
running_other      State    Stale      Stale      Stale      Stale       Stale       Stale       Stale       Leased      State   cancelling
retry_due          running  State      Stale      Stale      Stale       Stale       Stale       Stale       State       State   cancelled
retry_later        NotDue   State      Stale      Stale      Stale       Stale       Stale       Stale       State       State   cancelled
cancelling         State    cancelled  cancelled  cancelled  cancelled   cancelled   cancelled   cancelled   Leased      State   State
cancelling_lapsed  State    Stale      Stale      Stale      Stale       Stale       Stale       Stale       cancelled   State   cancelled
succeeded          State    State      Stale      Stale      Stale       Stale       Stale       Stale       State       State   State
failed             State    State      Stale      Stale      Stale       Stale       Stale       Stale       State       queued  cancelled
cancelled          State    State      Stale      Stale      Stale       Stale       Stale       Stale       State       State   State
";

#[test]
fn the_whole_matrix_is_as_documented() {
    let mut rows = MATRIX
        .trim()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(rows.next().expect("a header")[1..], EVENTS);
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), STATES);
    for row in rows {
        for (event, expected) in EVENTS.iter().zip(&row[1..]) {
            assert_eq!(cell(row[0], event), *expected, "{} x {event}", row[0]);
        }
    }
}

#[test]
fn every_end_of_a_run_closes_its_attempt_once_and_only_an_end_leaves_the_lane() {
    for name in STATES {
        for event in EVENTS {
            let before = item(state(name));
            let Ok(step) = apply(event, &before) else { continue };
            let closes = step
                .effects
                .iter()
                .filter(|e| matches!(e, Effect::CloseAttempt { .. }))
                .count();
            let leaves = step.effects.contains(&Effect::LeaveLane);
            let run_ended = before.state.run().is_some() && step.item.state.run().is_none();
            assert_eq!(closes, usize::from(run_ended), "{name} x {event}");
            assert_eq!(leaves, !step.item.state.is_live(), "{name} x {event}");
        }
    }
}

#[test]
fn the_version_moves_exactly_with_the_state_and_the_fence_never_falls() {
    for name in STATES {
        for event in EVENTS {
            let before = item(state(name));
            let Ok(step) = apply(event, &before) else { continue };
            let moved = step.item.state != before.state;
            assert_eq!(step.item.version, before.version + u64::from(moved), "{name} x {event}");
            assert!(step.item.fence >= before.fence, "{name} x {event}");
        }
    }
}

#[test]
fn a_claim_counts_the_attempt_and_raises_the_fence() {
    let step = apply("claim", &item(state("retry_due"))).expect("due");
    assert_eq!((step.item.counters.attempts, step.item.counters.budget_used), (4, 3));
    assert_eq!(step.item.fence, Some(fence(4)));
    assert_eq!(
        step.effects,
        [Effect::OpenAttempt(AttemptNo::from_row(4).expect("positive"))]
    );
    let run = step.item.state.run().expect("running");
    assert_eq!(
        (run.requested, run.dirty, run.holder.fence),
        (Requested::from_row(4), Dirty::from_row(8), fence(4))
    );
}

#[test]
fn release_and_conflict_give_the_budget_back_and_keep_number_and_fence() {
    for event in ["release", "conflict"] {
        let step = apply(event, &item(state("running"))).expect("held");
        assert_eq!(
            (step.item.counters.attempts, step.item.counters.budget_used),
            (3, 1),
            "{event}"
        );
        assert_eq!(step.item.fence, Some(fence(3)), "{event}");
    }
    let released = apply("release", &item(state("running"))).expect("held");
    assert_eq!(released.item.state, WorkState::RetryWait { due: now(), last: None });
}

#[test]
fn conflicts_in_a_row_wait_longer_and_another_end_forgets_them() {
    let step = apply("conflict", &item(state("running"))).expect("held");
    assert_eq!(step.item.counters.conflicts, 2);
    assert_eq!(step.item.state.due(), Some(now().plus(Span::millis(200))));
    assert_eq!(
        apply("fail", &item(state("running")))
            .expect("held")
            .item
            .counters
            .conflicts,
        0
    );
}

#[test]
fn the_last_attempt_of_a_budget_fails_for_good_and_an_unbounded_item_never_does() {
    let mut spent = item(state("running"));
    spent.counters.budget_used = 5;
    assert_eq!(apply("fail", &spent).expect("held").item.state.name(), "failed");
    let mut lapsed = item(state("running_lapsed"));
    lapsed.counters.budget_used = 5;
    let step = apply("expire", &lapsed).expect("lapsed");
    assert_eq!(
        step.item.state,
        WorkState::Failed {
            last: FailCode::LeaseExpired
        }
    );
    spent.attempts_max = None;
    assert_eq!(apply("fail", &spent).expect("held").item.state.name(), "retry_wait");
}

#[test]
fn an_operator_retry_opens_a_fresh_budget_and_keeps_attempts_and_fence_counting() {
    let step = apply("retry", &item(state("failed"))).expect("failed");
    let counters = step.item.counters;
    assert_eq!(
        (counters.attempts, counters.budget_used, counters.recoveries),
        (3, 0, 2)
    );
    assert_eq!(step.item.fence, Some(fence(3)));
}

#[test]
fn cancelling_a_lapsed_run_raises_the_fence_so_its_holder_can_never_commit() {
    for name in ["running_lapsed", "cancelling_lapsed"] {
        let step = apply("cancel", &item(state(name))).expect("lapsed");
        assert_eq!(step.item.fence, Some(fence(4)), "{name}");
    }
}

#[test]
fn a_lease_without_a_time_ends_with_its_process() {
    let mine = item(WorkState::Running(run(holder("me", Expiry::Term))));
    let theirs = item(WorkState::Running(run(holder("dead", Expiry::Term))));
    assert_eq!(step(&mine, &Event::Expire, now(), &me()), Err(Refused::Leased));
    assert_eq!(
        step(&theirs, &Event::Expire, now(), &me())
            .expect("dead")
            .item
            .state
            .name(),
        "retry_wait"
    );
}

#[test]
fn another_fence_or_member_is_stale() {
    let running = item(state("running"));
    let mut old = live();
    old.fence = fence(2);
    assert_eq!(step(&running, &Event::Finish(&old), now(), &me()), Err(Refused::Stale));
    let other = holder("other", Expiry::At(now().plus(Span::seconds(1))));
    assert_eq!(
        step(&running, &Event::Finish(&other), now(), &me()),
        Err(Refused::Stale)
    );
}
