use powercontext_core::ids::{BindingName, FamilyName, WorkKind};

use super::*;

fn registration(name: &str) -> Registration {
    Registration {
        work: KindSpec {
            kind: WorkKind::parse(format!("test.{name}")).expect("valid"),
            family: FamilyName::parse(name).expect("valid"),
            binding: BindingName::parse(format!("{name}-window")).expect("valid"),
            payload_version: 1,
            retry: RetryPolicy::BOUNDED,
            slots_max: None,
        },
        prefix: name.to_uppercase(),
        schedule: Schedule::Interval(Span::seconds(60)),
        pending: PendingWork::Sources,
        wanted: None,
        workers_max: None,
        timeout: Span::seconds(600),
        is_triggerable: true,
    }
}

fn registry(registrations: impl IntoIterator<Item = Registration>) -> Registry {
    Registry::new(registrations).unwrap_or_else(|faults| panic!("{faults:?}"))
}

#[test]
fn every_collision_and_every_impossible_setting_is_told_at_once() {
    let twin = registration("a");
    let impossible = Registration {
        schedule: Schedule::Interval(Span::ZERO),
        timeout: Span::ZERO,
        ..registration("b")
    };
    let faults = Registry::new([registration("a"), twin, impossible])
        .map(|_| ())
        .expect_err("refused");
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "two families share the binding a-window",
            "two families share the name a",
            "two families share the kind of work test.a",
            "two families share the prefix A",
            "the schedule of the family b has no length",
            "the timeout of the family b has no length",
        ]
    );
}

#[test]
fn one_look_takes_in_a_limited_number_of_families() {
    let named = |n: usize| registration(&format!("f{n}"));
    assert!(Registry::new((0..BINDINGS_MAX).map(named)).is_ok());
    let faults = Registry::new((0..=BINDINGS_MAX).map(named))
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(faults, [RegistryFault::TooMany]);
}

#[test]
fn digests_tell_what_is_offered_from_how_it_is_run_and_know_no_order() {
    let (a, b) = (registration("a"), registration("b"));
    let usual = registry([a.clone(), b.clone()]);
    let turned = registry([b.clone(), a.clone()]);
    assert_eq!(usual.contract_digest(), turned.contract_digest());
    assert_eq!(usual.execution_digest(), turned.execution_digest());
    let faster = Registration {
        schedule: Schedule::Interval(Span::seconds(30)),
        ..a.clone()
    };
    let faster = registry([faster, b.clone()]);
    assert_eq!(usual.contract_digest(), faster.contract_digest());
    assert_ne!(usual.execution_digest(), faster.execution_digest());
    let hidden = Registration {
        is_triggerable: false,
        ..a.clone()
    };
    let hidden = registry([hidden, b]);
    assert_ne!(usual.contract_digest(), hidden.contract_digest());
    assert_ne!(usual.contract_digest(), registry([a]).contract_digest());
}
