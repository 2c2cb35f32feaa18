//! Who leads, by the record alone and against an API server of a few maps.

use super::*;
use crate::fake::FakeApi;

fn record(holder: &str, renewed: i64) -> LeaseSpec {
    let renewed = Timestamp::from_second(renewed).expect("in range");
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        renew_time: Some(MicroTime(renewed)),
        lease_transitions: Some(3),
        ..LeaseSpec::default()
    }
}

#[test]
fn a_record_holds_for_its_duration_since_it_was_seen_to_change_whatever_it_says_of_the_time() {
    let start = rt::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let mut seen = Seen::default();
    // A renewal years ago or ahead means nothing.
    seen.note(&record("a", 0), start);
    assert!(seen.is_held_by_other("b", after(14)));
    assert!(!seen.is_held_by_other("b", after(15)));
    assert!(!seen.is_held_by_other("a", start));
    seen.note(&record("a", 4_000_000_000), after(14));
    assert!(seen.is_held_by_other("b", after(28)));
    seen.note(&record("", 1), after(20));
    assert!(!seen.is_held_by_other("b", after(20)));
    assert!(!Seen::default().is_held_by_other("b", start));
}

#[test]
fn a_take_over_is_counted_and_a_renewal_is_not() {
    let now = Timestamp::from_second(50).expect("in range");
    let renewed = taken(Some(&record("a", 1)), "a", now);
    assert_eq!(
        (renewed.lease_transitions, renewed.renew_time),
        (Some(3), Some(MicroTime(now)))
    );
    let other = taken(Some(&record("a", 1)), "b", now);
    assert_eq!(
        (other.lease_transitions, other.acquire_time),
        (Some(4), Some(MicroTime(now)))
    );
    assert_eq!(taken(None, "a", now).lease_transitions, Some(0));
}

fn elector(fake: &FakeApi, me: &str) -> Elector {
    Elector::new(
        Api::namespaced(fake.client(), "default"),
        "op".to_owned(),
        me.to_owned(),
    )
}

#[tokio::test]
async fn the_first_leads_the_second_waits_and_takes_what_was_given_back() {
    let fake = FakeApi::default();
    let (mut one, mut two) = (elector(&fake, "one"), elector(&fake, "two"));
    let stop = CancellationToken::new();
    assert!(one.acquire(&stop).await);
    assert!(!two.attempt().await);
    assert!(one.attempt().await, "its own lease is renewed");
    stop.cancel();
    assert!(one.hold(&stop).await, "asked to stop, it gives the lease back");
    assert!(two.attempt().await);
    assert!(!one.attempt().await);
}

#[tokio::test]
async fn of_two_candidates_that_saw_one_record_one_is_refused() {
    let fake = FakeApi::default();
    let lease: Api<Lease> = Api::namespaced(fake.client(), "default");
    assert!(elector(&fake, "gone").attempt().await);
    let stale = lease.get("op").await.expect("it is there");
    let mut first = stale.clone();
    first.spec = Some(taken(stale.spec.as_ref(), "first", rt::time_of_day()));
    let mut second = stale.clone();
    second.spec = Some(taken(stale.spec.as_ref(), "second", rt::time_of_day()));
    assert!(lease.replace("op", &PostParams::default(), &first).await.is_ok());
    assert!(lease.replace("op", &PostParams::default(), &second).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_begin() {
    let fake = FakeApi::default();
    let mut one = elector(&fake, "one");
    let stop = CancellationToken::new();
    assert!(one.acquire(&stop).await);
    fake.go_away();
    let lost_at = rt::now();
    assert!(!one.hold(&stop).await);
    let took = rt::now() - lost_at;
    assert!(took >= DEADLINE && took < DURATION, "{took:?}");
}
