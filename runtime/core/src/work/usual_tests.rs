//! Wherever the guards hold, the general decision is the one that was made ahead; each guard is needed.

use super::*;
use crate::digest::LaneKey;
use crate::fail::FailCode;
use crate::fence::Fence;
use crate::ids::{FamilyName, ScopeId, WorkId};
use crate::supervise::intent::{Dirty, Requested};
use crate::time::Span;
use crate::work::lane::{Lane, LiveItem};
use crate::work::state::{Counters, Run};
use uuid::Uuid;

fn now() -> DbTime {
    DbTime::from_micros(1_000_000_000)
}

fn member(name: &str) -> MemberId {
    MemberId::parse(name).expect("valid")
}

fn run(name: &str, fence: i64, expiry: Expiry) -> Run {
    Run {
        holder: Holder {
            member: member(name),
            fence: Fence::from_row(fence).expect("positive"),
            expiry,
        },
        requested: Requested::from_row(2),
        dirty: Dirty::from_row(5),
    }
}

fn item(state: WorkState, version: u64) -> Item {
    Item {
        id: WorkId::new(Uuid::from_u128(7)),
        state,
        counters: Counters {
            attempts: 3,
            budget_used: 2,
            recoveries: 1,
            conflicts: 4,
        },
        fence: Fence::from_row(3),
        attempts_max: Some(5),
        version,
    }
}

fn good() -> Expiry {
    Expiry::At(now().plus(Span::seconds(1)))
}

fn seq(n: u64) -> LaneSeq {
    LaneSeq::from_row(n).expect("positive")
}

/// A lane with the item at place 4, perhaps one before or behind it.
fn lane(item: &Item, others: &[u64], next: u64) -> LaneView {
    let other = |n: &u64| LiveItem {
        id: WorkId::new(Uuid::from_u128(u128::from(*n) + 100)),
        seq: seq(*n),
        state: WorkState::Queued { due: now() },
    };
    let mut live: Vec<LiveItem> = others.iter().map(other).collect();
    live.push(LiveItem {
        id: item.id,
        seq: seq(4),
        state: item.state.clone(),
    });
    live.sort_by_key(|item| item.seq);
    live.retain(|item| item.state.is_live());
    let row = Lane {
        key: LaneKey::of(&FamilyName::memory(), &ScopeId::parse("s").expect("valid")),
        head: live.first().map(|item| item.seq),
        next: seq(next),
    };
    LaneView::new(row, live).expect("consistent")
}

/// Every state that the row of a claimed item may be in when its run ends; whether the guards hold.
fn rows() -> Vec<(Item, bool)> {
    let running = |name, fence, expiry, version| item(WorkState::Running(run(name, fence, expiry)), version);
    vec![
        (running("me", 3, good(), 9), true),
        (running("me", 3, Expiry::Term, 9), true),
        (running("me", 3, Expiry::At(now().plus(Span::seconds(99))), 9), true),
        (running("me", 3, Expiry::At(now()), 9), false),
        (running("me", 3, good(), 10), false),
        (running("me", 4, good(), 9), false),
        (running("other", 3, good(), 9), false),
        (item(WorkState::Cancelling(run("me", 3, good())), 9), false),
        (item(WorkState::Queued { due: now() }, 9), false),
        (item(WorkState::RetryWait { due: now(), last: None }, 9), false),
        (
            item(
                WorkState::Failed {
                    last: FailCode::Unhandled,
                },
                9,
            ),
            false,
        ),
        (item(WorkState::Succeeded { at: now() }, 9), false),
        (item(WorkState::Cancelled { at: now() }, 9), false),
    ]
}

#[test]
fn where_the_guards_hold_the_general_decision_is_the_one_made_ahead() {
    let me = member("me");
    let claimed = item(WorkState::Running(run("me", 3, good())), 9);
    let usual = UsualFinish::of(&claimed, seq(4), &me).expect("running");
    assert_eq!(usual.attempt().get(), 3);
    for (row, holds) in rows() {
        let alone = lane(&row, &[], 5);
        assert_eq!(usual.fits(&row, &alone, now(), &me), holds, "{row:?}");
        for (others, next) in [(&[5][..], 6), (&[2], 5), (&[], 6), (&[], 7)] {
            let lane = lane(&row, others, next);
            assert!(!usual.fits(&row, &lane, now(), &me), "{row:?} {others:?} {next}");
        }
        if !holds {
            continue;
        }
        let general = step(&row, &Event::Finish(usual.holder()), now(), &me).expect("held");
        assert_eq!(general, usual.step(now()));
        let left = alone.leave(row.id).expect("in its lane");
        assert!(left.emptied.is_some() && left.promoted.is_none() && left.newest.is_none());
        assert_eq!((left.lane.head, left.lane.next), (None, alone.lane().next));
    }
}

#[test]
fn only_a_running_item_of_a_living_process_has_a_usual_finish() {
    let (me, other) = (member("me"), member("other"));
    let running = |expiry| item(WorkState::Running(run("me", 3, expiry)), 9);
    assert!(UsualFinish::of(&running(good()), seq(4), &me).is_some());
    assert!(UsualFinish::of(&running(good()), seq(4), &other).is_some());
    assert!(UsualFinish::of(&running(Expiry::Term), seq(4), &me).is_some());
    assert!(UsualFinish::of(&running(Expiry::Term), seq(4), &other).is_none());
    let cancelling = item(WorkState::Cancelling(run("me", 3, good())), 9);
    for idle in [cancelling, item(WorkState::Queued { due: now() }, 9)] {
        assert!(UsualFinish::of(&idle, seq(4), &me).is_none(), "{idle:?}");
    }
}

#[test]
fn every_claim_of_a_waiting_item_moves_each_counter_by_one() {
    let me = member("me");
    for state in [
        WorkState::Queued { due: now() },
        WorkState::RetryWait {
            due: now(),
            last: Some(FailCode::ProviderTimeout),
        },
    ] {
        for fence in [None, Fence::from_row(3)] {
            let before = Item {
                fence,
                ..item(state.clone(), 9)
            };
            let event = Event::Claim {
                by: &me,
                expiry: good(),
                requested: Requested::from_row(2),
                dirty: Dirty::from_row(5),
            };
            let claimed = step(&before, &event, now(), &me).expect("due");
            assert!(is_usual_claim(&before, &claimed.item), "{before:?}");
            assert!(!is_usual_claim(&claimed.item, &claimed.item));
        }
    }
}
