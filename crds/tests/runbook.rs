//! The runbook has an entry for each reason, and for nothing else.

use std::collections::BTreeSet;

use powercontext_crds::conditions::Reason;

#[test]
fn every_reason_has_one_entry_in_the_runbook_that_says_something() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbook.md");
    let runbook = std::fs::read_to_string(path).expect("the runbook");
    let mut entries: BTreeSet<&str> = BTreeSet::new();
    for entry in runbook.split("\n### ").skip(1) {
        let (name, text) = entry.split_once('\n').expect("a heading");
        assert!(entries.insert(name), "{name} has two entries");
        let text = text.split("\n#").next().unwrap_or_default();
        assert!(text.trim().len() > 40, "{name} says nothing");
    }
    let reasons: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let missing: Vec<_> = reasons.difference(&entries).collect();
    let unknown: Vec<_> = entries.difference(&reasons).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing {missing:?}, unknown {unknown:?}"
    );
}
