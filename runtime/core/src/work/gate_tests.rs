use super::Verdict::{Release, Spend, SpendAndClose};
use super::*;

fn scope(name: &str) -> ScopeId {
    ScopeId::parse(name).expect("valid")
}

/// Runs that begin and end at once: a small letter fails that scope, `.` is an answer, `!` a successful probe.
/// What became of each failure, and whether the gate is closed at the end.
fn play(script: &str) -> (Vec<Verdict>, bool) {
    let mut gate = Gate::default();
    let mut verdicts = Vec::new();
    for step in script.chars() {
        match step {
            '!' => gate.open(),
            '.' => gate.answered(gate.begin().expect("open")),
            // A run that begins while the gate is closed was claimed before that.
            name => {
                let run = gate.begin().unwrap_or(Ticket(gate.counted));
                verdicts.push(gate.failed(run, &scope(&name.to_string())));
            }
        }
    }
    (verdicts, gate.is_closed())
}

#[test]
fn three_different_scopes_in_a_row_close_it_and_nothing_less() {
    for (script, verdicts, is_closed) in [
        ("", &[][..], false),
        ("a", &[Spend], false),
        ("ab", &[Spend, Spend], false),
        ("abc", &[Spend, Spend, SpendAndClose], true),
        ("aaaaaa", &[Spend; 6], false),
        ("ababab", &[Spend; 6], false),
        ("aabbc", &[Spend, Spend, Spend, Spend, SpendAndClose], true),
        ("ab.c", &[Spend; 3], false),
        ("ab.cd", &[Spend; 4], false),
        ("ab.cde", &[Spend, Spend, Spend, Spend, SpendAndClose], true),
        ("a.a.a.a.a.a", &[Spend; 6], false),
    ] {
        assert_eq!(play(script), (verdicts.to_vec(), is_closed), "{script}");
    }
}

#[test]
fn a_failure_costs_nothing_while_it_is_closed() {
    let (verdicts, is_closed) = play("abcdeabc");
    assert_eq!(
        verdicts,
        [Spend, Spend, SpendAndClose, Release, Release, Release, Release, Release]
    );
    assert!(is_closed);
}

#[test]
fn a_probe_opens_it_and_the_count_begins_anew() {
    assert_eq!(play("abc!"), (vec![Spend, Spend, SpendAndClose], false));
    assert_eq!(
        play("abc!abc"),
        (vec![Spend, Spend, SpendAndClose, Spend, Spend, SpendAndClose], true)
    );
    assert_eq!(play("ab!c"), (vec![Spend; 3], false));
}

#[test]
fn nothing_begins_while_it_is_closed() {
    let mut gate = Gate::default();
    for name in ["a", "b", "c"] {
        let run = gate.begin().expect("open");
        gate.failed(run, &scope(name));
    }
    assert_eq!(gate.begin(), None);
    gate.open();
    assert!(gate.begin().is_some());
}

#[test]
fn of_many_runs_in_flight_three_spend_an_attempt() {
    let mut gate = Gate::default();
    let runs: Vec<_> = (0..64).map(|_| gate.begin().expect("open")).collect();
    let mut spent = 0;
    for (n, run) in runs.into_iter().enumerate() {
        // The probe succeeds while half of them still wait for their answer: the outage is the same one.
        if n == 32 {
            gate.open();
        }
        spent += usize::from(gate.failed(run, &scope(&n.to_string())) != Release);
    }
    assert_eq!(spent, SCOPES_MAX);
    assert!(!gate.is_closed());
}

#[test]
fn an_answer_clears_only_the_failures_that_its_run_began_after() {
    let mut gate = Gate::default();
    let early = gate.begin().expect("open");
    let run = gate.begin().expect("open");
    gate.failed(run, &scope("a"));
    let later = gate.begin().expect("open");
    gate.failed(run, &scope("b"));
    // It had left the provider's hands before the outage began.
    gate.answered(early);
    assert_eq!(gate.failures.len(), 2);
    gate.answered(later);
    assert_eq!(gate.failures.len(), 1);
    assert_eq!(gate.failed(run, &scope("c")), Spend);
    assert_eq!(gate.failed(run, &scope("d")), SpendAndClose);
    gate.answered(early);
    assert!(gate.is_closed());
}

#[test]
fn a_scope_that_fails_again_counts_from_its_newest_failure() {
    let mut gate = Gate::default();
    let first = gate.begin().expect("open");
    gate.failed(first, &scope("a"));
    let second = gate.begin().expect("open");
    gate.failed(second, &scope("a"));
    gate.answered(second);
    assert_eq!(gate.failures.len(), 1);
}

#[test]
fn every_failure_of_a_run_is_an_outage_or_not() {
    let outages: Vec<_> = FailCode::ALL.into_iter().filter(|code| is_outage(*code)).collect();
    assert_eq!(
        outages,
        [
            FailCode::ProviderTimeout,
            FailCode::ProviderUnavailable,
            FailCode::ProviderRejected
        ]
    );
}

/// Every order of eight steps over four scopes: the rules hold whatever happens.
#[test]
fn the_rules_hold_in_every_order() {
    let steps = ['a', 'b', 'c', 'd', '.', '!'];
    let mut scripts = vec![(Gate::default(), 0_usize)];
    for _ in 0..8 {
        let mut next = Vec::new();
        for (gate, row) in &scripts {
            for step in steps {
                let mut gate = gate.clone();
                let was_closed = gate.is_closed();
                let mut row = *row;
                match (step, gate.begin()) {
                    ('!', _) => (gate.open(), row = 0).0,
                    ('.', Some(run)) => (gate.answered(run), row = 0).0,
                    ('.', None) => continue,
                    (name, run) => {
                        let run = run.unwrap_or(Ticket(gate.counted));
                        let verdict = gate.failed(run, &scope(&name.to_string()));
                        assert_eq!(verdict == Release, was_closed);
                        assert_eq!(gate.is_closed(), was_closed || verdict == SpendAndClose);
                        row += 1;
                        assert!(verdict != SpendAndClose || row >= SCOPES_MAX);
                    }
                }
                assert!(gate.failures.len() < SCOPES_MAX);
                next.push((gate, row));
            }
        }
        // States repeat: only different ones go on.
        next.sort_by_key(|(gate, row)| (format!("{:?}", gate.failures), gate.is_closed(), gate.counted, *row));
        next.dedup();
        scripts = next;
    }
}
