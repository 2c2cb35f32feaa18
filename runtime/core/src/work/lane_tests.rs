//! Joining and leaving, case by case.

use super::*;
use crate::fail::FailCode;
use crate::fence::Fence;
use crate::ids::{FamilyName, MemberId, ScopeId};
use crate::lease::{Expiry, Holder};
use crate::supervise::intent::Requested;
use crate::time::DbTime;
use crate::work::state::Run;
use uuid::Uuid;

fn id(n: u128) -> WorkId {
    WorkId::new(Uuid::from_u128(n))
}

fn at() -> DbTime {
    DbTime::from_micros(1)
}

fn run(dirty: u64) -> Run {
    let member = MemberId::parse("m").expect("valid");
    let holder = Holder {
        member,
        fence: Fence::FIRST,
        expiry: Expiry::Term,
    };
    Run {
        holder,
        requested: Requested::from_row(1),
        dirty: Dirty::from_row(dirty),
    }
}

fn view(states: Vec<WorkState>) -> LaneView {
    let live: Vec<LiveItem> = states
        .into_iter()
        .zip(4..)
        .map(|(state, n)| LiveItem {
            id: id(u128::from(n)),
            seq: LaneSeq(n),
            state,
        })
        .collect();
    let scope = ScopeId::parse("s").expect("valid");
    let lane = Lane {
        key: LaneKey::of(&FamilyName::memory(), &scope),
        head: live.first().map(|item| item.seq),
        next: LaneSeq(6),
    };
    LaneView::new(lane, live).expect("consistent")
}

fn queued() -> WorkState {
    WorkState::Queued { due: at() }
}

fn waiting() -> WorkState {
    WorkState::RetryWait {
        due: at(),
        last: Some(FailCode::ProviderTimeout),
    }
}

fn failed() -> WorkState {
    WorkState::Failed {
        last: FailCode::Unhandled,
    }
}

fn running(dirty: u64) -> WorkState {
    WorkState::Running(run(dirty))
}

fn cancelling(dirty: u64) -> WorkState {
    WorkState::Cancelling(run(dirty))
}

#[test]
fn a_request_joins_or_creates_by_the_whole_table() {
    let create = |is_head| Admission::Create {
        seq: LaneSeq(6),
        is_head,
    };
    let join = |n, raise| Admission::Join { id: id(n), raise };
    let blocked = Admission::Blocked { head: id(4) };
    // Live items, own input, what becomes of a request while dirty is 7.
    let table = [
        (vec![], false, create(true)),
        (vec![queued()], false, join(4, true)),
        (vec![queued()], true, join(4, true)),
        (vec![waiting()], false, join(4, true)),
        (vec![running(7)], false, join(4, false)),
        (vec![running(7)], true, create(false)),
        (vec![running(6)], false, create(false)),
        (vec![cancelling(7)], false, create(false)),
        (vec![failed()], false, blocked),
        (vec![running(7), queued()], false, join(5, true)),
        (vec![running(6), queued()], true, join(5, true)),
        (vec![cancelling(7), queued()], false, join(5, true)),
        (vec![waiting(), queued()], false, join(5, true)),
        (vec![failed(), queued()], false, blocked),
    ];
    for (states, own_input, expected) in table {
        let shown = format!("{states:?}");
        assert_eq!(
            view(states).admit(Dirty::from_row(7), own_input),
            expected,
            "{shown} own input {own_input}"
        );
    }
}

#[test]
fn a_lane_never_takes_a_third_live_item() {
    for head in [queued(), waiting(), running(1), cancelling(1), failed()] {
        let admission = view(vec![head, queued()]).admit(Dirty::from_row(9), true);
        assert!(!matches!(admission, Admission::Create { .. }), "{admission:?}");
    }
}

#[test]
fn creating_hands_out_the_next_place_and_keeps_the_head() {
    let empty = view(vec![]).with_created();
    assert_eq!((empty.head, empty.next), (Some(LaneSeq(6)), LaneSeq(7)));
    let busy = view(vec![running(1)]).with_created();
    assert_eq!((busy.head, busy.next), (Some(LaneSeq(4)), LaneSeq(7)));
}

#[test]
fn the_last_item_to_leave_empties_the_lane_and_only_it() {
    let alone = view(vec![running(1)]).leave(id(4)).expect("inside");
    assert_eq!((alone.lane.head, alone.newest, alone.promoted), (None, None, None));
    assert!(alone.emptied.is_some());

    let head = view(vec![running(1), queued()]).leave(id(4)).expect("inside");
    assert_eq!(
        (head.lane.head, head.newest, head.promoted),
        (Some(LaneSeq(5)), Some(id(5)), Some(id(5)))
    );
    assert!(head.emptied.is_none());

    let behind = view(vec![running(1), queued()]).leave(id(5)).expect("inside");
    assert_eq!(
        (behind.lane.head, behind.newest, behind.promoted),
        (Some(LaneSeq(4)), Some(id(4)), None)
    );
    assert!(behind.emptied.is_none());

    assert!(view(vec![running(1)]).leave(id(9)).is_err());
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    let good = view(vec![running(1), queued()]);
    let mut wrong_head = good.lane.clone();
    wrong_head.head = None;
    assert!(LaneView::new(wrong_head, good.live.clone()).is_err());
    let mut three = good.live.clone();
    three.push(LiveItem {
        id: id(6),
        seq: LaneSeq(6),
        state: queued(),
    });
    assert!(LaneView::new(good.lane.clone(), three).is_err());
    let swapped: Vec<LiveItem> = good.live.iter().rev().cloned().collect();
    assert!(LaneView::new(good.lane.clone(), swapped).is_err());
}
