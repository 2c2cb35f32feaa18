use super::*;

fn member(id: &str, second: i64) -> Member {
    Member {
        id: MemberId::parse(id).expect("valid"),
        role: Role::Worker,
        build: "1".to_owned(),
        schema: 3..=6,
        payload: 1..=1,
        revision: "default".to_owned(),
        contract: "c".to_owned(),
        execution: Some("e".to_owned()),
        started_at: DbTime::from_micros(second * 1_000_000),
    }
}

fn contract(id: &str, second: i64, digest: &str) -> Member {
    Member {
        contract: digest.to_owned(),
        ..member(id, second)
    }
}

fn execution(id: &str, second: i64, digest: Option<&str>) -> Member {
    Member {
        execution: digest.map(str::to_owned),
        ..member(id, second)
    }
}

/// What each of the members says of itself when it sees all of them.
fn judged(all: &[Member]) -> Vec<Result<(), Odd>> {
    all.iter().map(|me| judge(me, all)).collect()
}

#[test]
fn the_odd_one_alone_is_misconfigured() {
    let all = [contract("a", 1, "x"), contract("b", 2, "y"), contract("c", 3, "y")];
    assert_eq!(judged(&all), [Err(Odd::Contract), Ok(()), Ok(())]);
    let all = [
        execution("a", 1, Some("x")),
        execution("b", 2, Some("y")),
        execution("c", 3, Some("y")),
    ];
    assert_eq!(judged(&all), [Err(Odd::Execution), Ok(()), Ok(())]);
}

#[test]
fn of_equally_many_the_earliest_is_right_and_of_one_moment_the_lower_id() {
    let all = [contract("b", 2, "x"), contract("a", 1, "y")];
    assert_eq!(judged(&all), [Err(Odd::Contract), Ok(())]);
    let all = [contract("b", 1, "x"), contract("a", 1, "y")];
    assert_eq!(judged(&all), [Err(Odd::Contract), Ok(())]);
}

#[test]
fn members_of_another_revision_are_no_measure() {
    let other = Member {
        revision: "next".to_owned(),
        ..contract("a", 1, "x")
    };
    let others = [
        other.clone(),
        Member {
            id: MemberId::parse("b").expect("valid"),
            ..other
        },
    ];
    assert_eq!(judge(&contract("c", 3, "y"), &others), Ok(()));
}

#[test]
fn those_that_neither_lead_nor_work_say_nothing_of_execution() {
    let api = execution("a", 1, None);
    let all = [
        api.clone(),
        Member {
            id: MemberId::parse("b").expect("valid"),
            ..api
        },
        execution("c", 3, Some("x")),
    ];
    assert_eq!(judged(&all), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn ranges_need_only_meet_and_a_lonely_one_is_odd() {
    let with = |id: &str, second, schema, payload| Member {
        schema,
        payload,
        ..member(id, second)
    };
    let meeting = [with("a", 1, 3..=6, 1..=1), with("b", 2, 4..=7, 1..=2)];
    assert_eq!(judged(&meeting), [Ok(()), Ok(())]);
    for (schema, payload) in [(7..=8, 1..=1), (3..=6, 2..=2)] {
        let all = [member("a", 1), member("b", 2), with("c", 3, schema, payload)];
        assert_eq!(judged(&all), [Ok(()), Ok(()), Err(Odd::Versions)]);
    }
}

#[test]
fn a_member_that_nobody_else_sees_yet_judges_itself_among_the_others() {
    assert_eq!(judge(&member("a", 1), &[]), Ok(()));
    assert_eq!(
        judge(&contract("b", 2, "y"), &[contract("a", 1, "x")]),
        Err(Odd::Contract)
    );
}

#[test]
fn roles_lead_work_and_serve() {
    let of = |role: Role| (role.leads(), role.works(), role.serves());
    for (role, expected) in [
        (Role::All, (true, true, true)),
        (Role::Api, (false, false, true)),
        (Role::Scheduler, (true, false, false)),
        (Role::Worker, (false, true, false)),
        (Role::Background, (true, true, false)),
    ] {
        assert_eq!(of(role), expected, "{role}");
        assert_eq!(Role::from_name(role.as_str()), Some(role));
    }
    assert_eq!(Role::from_name("leader"), None);
}
