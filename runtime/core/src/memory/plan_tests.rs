use super::*;
use crate::ids::{SourceId, SourceType};
use crate::memory::citation::memory_ref;

fn source(id: &str) -> SourceRef {
    SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(id).expect("valid"),
    }
}

fn kind(name: &str) -> EntryKind {
    EntryKind::parse(name).expect("valid")
}

fn text(words: &str) -> EntryText {
    EntryText::parse(words).expect("valid")
}

fn content(words: &str, sources: &[&str]) -> EntryContent {
    let refs = sources.iter().map(|id| source(id)).collect();
    EntryContent::new(kind("fact"), text(words), refs, Vec::new()).expect("few references")
}

fn add(words: &str, sources: &[&str]) -> Candidate {
    Candidate {
        revises: None,
        content: content(words, sources),
        reason: None,
    }
}

fn revise(id: &EntryId, words: &str, sources: &[&str]) -> Candidate {
    Candidate {
        revises: Some(id.clone()),
        ..add(words, sources)
    }
}

/// Numbers from `start` on.
fn numbers(start: u128) -> impl FnMut() -> u128 {
    let mut next = start;
    move || {
        next += 1;
        next
    }
}

/// The head that committing `plan` on `head` leaves.
fn committed(head: Option<&MemoryHead>, plan: &MemoryPlan) -> MemoryHead {
    plan.check().expect("a fresh plan holds together");
    let mut active: BTreeMap<EntryId, EntryVersion> = head
        .into_iter()
        .flat_map(|h| h.active.iter().map(|e| (e.entry_id.clone(), e.clone())))
        .collect();
    for version in &plan.new_versions {
        active.insert(version.entry_id.clone(), version.clone());
    }
    MemoryHead {
        revision: plan.revision,
        manifest: plan.content.manifest().to_vec(),
        active: active.into_values().filter(|e| e.state == EntryState::Active).collect(),
    }
}

fn planned(head: Option<&MemoryHead>, candidates: Vec<Candidate>, seed: u128) -> MemoryPlan {
    plan_candidates(head, candidates, vec![source("w1"), source("w2")], &mut numbers(seed))
        .expect("valid candidates")
        .expect("something new")
}

/// A Memory of two facts: `one` and `two`.
fn two_facts() -> MemoryHead {
    let plan = planned(None, vec![add("one", &["w1"]), add("two", &["w2"])], 0);
    committed(None, &plan)
}

fn cite(head: &MemoryHead, words: &str) -> MemoryCitation {
    let entry = head.active.iter().find(|e| e.text.as_str() == words).expect("present");
    MemoryCitation::of(head.revision, entry)
}

#[test]
fn the_first_revision_adds_entries_and_lists_the_window_as_its_lineage() {
    let plan = planned(None, vec![add("one", &["w1"]), add("two", &["w2"])], 0);
    assert_eq!((plan.expected_head, plan.revision), (None, Revision::FIRST));
    assert_eq!(plan.lineage_sources, [source("w1"), source("w2")]);
    let ops: Vec<_> = plan.content.changes().iter().map(|c| c.op).collect();
    assert_eq!(ops, [ChangeOp::Add, ChangeOp::Add]);
    assert_eq!(plan.new_versions[0].source_refs, [source("w1")]);
    assert_eq!(plan.new_versions[0].entry_id.as_str(), format!("mem_ent_{:032x}", 1));
    assert_eq!(plan.new_versions[0].version_id.as_str(), format!("mem_ver_{:032x}", 2));
    plan.check().expect("a fresh plan holds together");
}

#[test]
fn nothing_new_makes_no_revision() {
    let head = two_facts();
    let one = &head.active[0];
    let same = one.text.as_str().to_owned();
    for candidates in [
        Vec::new(),
        vec![add("one", &["w9"]), add("two", &[])],
        vec![revise(&one.entry_id, &same, &["w9"])],
    ] {
        let plan = plan_candidates(Some(&head), candidates, vec![source("w9")], &mut numbers(9));
        assert_eq!(plan, Ok(None));
    }
    assert_eq!(plan_candidates(None, Vec::new(), Vec::new(), &mut numbers(9)), Ok(None));
}

#[test]
fn a_revision_keeps_the_other_entries_and_only_its_own_citations() {
    let head = two_facts();
    let one = head.active.iter().find(|e| e.text.as_str() == "one").expect("present");
    let plan = planned(Some(&head), vec![revise(&one.entry_id, "one, really", &["w3"])], 100);
    assert_eq!((plan.expected_head, plan.revision.get()), (Some(Revision::FIRST), 2));
    assert_eq!(plan.content.manifest().len(), 2);
    let version = &plan.new_versions[0];
    assert_eq!((version.version, version.previous.as_ref()), (2, Some(&one.version_id)));
    assert_eq!(version.source_refs, [source("w3")]);
    let change = &plan.content.changes()[0];
    assert_eq!(
        (change.op, change.from_entry_version_id.as_ref()),
        (ChangeOp::Revise, Some(&one.version_id))
    );
}

#[test]
fn two_candidates_that_add_the_same_become_one_that_cites_both_sources() {
    let plan = planned(
        None,
        vec![add("one", &["b"]), add("two", &["b"]), add("one", &["a"])],
        0,
    );
    assert_eq!(plan.new_versions.len(), 2);
    assert_eq!(plan.new_versions[0].source_refs, [source("a"), source("b")]);
}

#[test]
fn the_same_text_of_another_kind_is_another_statement() {
    let head = two_facts();
    let mut other = add("one", &["w3"]);
    other.content = EntryContent::new(kind("decision"), text("one"), Vec::new(), Vec::new()).expect("valid");
    assert_eq!(planned(Some(&head), vec![other], 50).content.manifest().len(), 3);
}

#[test]
fn revising_what_is_not_active_or_twice_is_refused() {
    let head = two_facts();
    let known = head.active[0].entry_id.clone();
    let unknown = EntryId::parse("mem_ent_x").expect("valid");
    for (candidates, fault) in [
        (vec![revise(&unknown, "x", &["w3"])], PlanFault::NotActive),
        (
            vec![revise(&known, "x", &["w3"]), revise(&known, "y", &["w3"])],
            PlanFault::RevisedTwice,
        ),
    ] {
        let plan = plan_candidates(Some(&head), candidates, Vec::new(), &mut numbers(9));
        assert_eq!(plan, Err(fault));
    }
    let retire = Edit::Retire {
        citation: cite(&head, "one"),
    };
    let plan = plan_edit(Some(&head), retire, None, &mut numbers(20))
        .expect("accepted")
        .plan;
    let retired = committed(Some(&head), &plan.expect("a change"));
    let one = head.active.iter().find(|e| e.text.as_str() == "one").expect("present");
    let plan = plan_candidates(
        Some(&retired),
        vec![revise(&one.entry_id, "x", &["w3"])],
        Vec::new(),
        &mut numbers(9),
    );
    assert_eq!(plan, Err(PlanFault::NotActive));
}

#[test]
fn manifests_are_sorted_by_the_bytes_of_entry_ids_whatever_the_order_of_making() {
    let mut down = 1000_u128;
    let mut falling = || {
        down -= 1;
        down
    };
    let candidates = (0..20).map(|n| add(&format!("fact {n}"), &["w1"])).collect();
    let plan = plan_candidates(None, candidates, Vec::new(), &mut falling)
        .expect("valid")
        .expect("new");
    let ids: Vec<_> = plan
        .content
        .manifest()
        .iter()
        .map(|e| e.entry_id.as_str().as_bytes())
        .collect();
    assert!(ids.is_sorted());
    plan.check().expect("a fresh plan holds together");
}

#[test]
fn remembering_adds_an_uncited_entry_and_repeating_it_changes_nothing() {
    let remember = |expected| Edit::Remember {
        kind: kind("house rule"),
        text: text("no shoes"),
        expected,
    };
    let first = plan_edit(None, remember(None), None, &mut numbers(0)).expect("accepted");
    let plan = first.plan.expect("a change");
    assert_eq!(
        (first.revision, first.entry.version, first.entry.source_refs.len()),
        (Revision::FIRST, 1, 0)
    );
    assert!(plan.lineage_sources.is_empty());
    let head = committed(None, &plan);
    let again = plan_edit(Some(&head), remember(Some(Revision::FIRST)), None, &mut numbers(9)).expect("accepted");
    assert_eq!(
        (again.plan, again.entry, again.revision),
        (None, first.entry, Revision::FIRST)
    );
}

#[test]
fn an_expected_revision_must_be_the_head() {
    let head = two_facts();
    let remember = |expected: u32| Edit::Remember {
        kind: kind("fact"),
        text: text("three"),
        expected: Some(Revision::new(expected).expect("not zero")),
    };
    for (head, expected, accepted) in [(Some(&head), 1, true), (Some(&head), 2, false), (None, 1, false)] {
        let edited = plan_edit(head, remember(expected), None, &mut numbers(9));
        assert_eq!(edited.is_ok(), accepted);
        assert!(accepted || edited == Err(EditRefused::RevisionConflict));
    }
}

#[test]
fn a_person_revises_and_retires_what_stands_at_the_head() {
    let head = two_facts();
    let revise = Edit::Revise {
        citation: cite(&head, "one"),
        kind: kind("constraint"),
        text: text("one only"),
    };
    let reason = Reason::parse("was wrong").expect("short");
    let edited = plan_edit(Some(&head), revise, Some(reason.clone()), &mut numbers(50)).expect("accepted");
    assert_eq!((edited.revision.get(), edited.entry.version), (2, 2));
    assert!(edited.entry.source_refs.is_empty());
    let plan = edited.plan.expect("a change");
    assert_eq!(plan.content.changes()[0].reason, Some(reason));
    let head = committed(Some(&head), &plan);

    let retire = Edit::Retire {
        citation: cite(&head, "one only"),
    };
    let edited = plan_edit(Some(&head), retire, None, &mut numbers(60)).expect("accepted");
    assert_eq!(
        (edited.revision.get(), edited.entry.version, edited.entry.state),
        (3, 2, EntryState::Inactive)
    );
    let plan = edited.plan.expect("a change");
    assert_eq!(plan.content.changes()[0].op, ChangeOp::Deactivate);
    assert_eq!(plan.content.manifest().len(), 2);
    let head = committed(Some(&head), &plan);
    assert_eq!(head.active.len(), 1);

    let mut gone = cite(&head, "two");
    gone.entry_id = edited.entry.entry_id.clone();
    gone.entry_version_id = edited.entry.version_id.clone();
    let again = plan_edit(Some(&head), Edit::Retire { citation: gone }, None, &mut numbers(70));
    assert_eq!(again, Err(EditRefused::Inactive));
}

#[test]
fn revising_to_the_same_statement_changes_nothing() {
    let head = two_facts();
    let same = Edit::Revise {
        citation: cite(&head, "one"),
        kind: kind("fact"),
        text: text("one"),
    };
    let edited = plan_edit(Some(&head), same, None, &mut numbers(9)).expect("accepted");
    assert_eq!(
        (edited.plan, edited.revision, edited.entry.version),
        (None, Revision::FIRST, 1)
    );
}

#[test]
fn citations_are_refused_by_the_first_rule_they_break() {
    let head = two_facts();
    let good = cite(&head, "one");
    let mut other_artifact = good.clone();
    other_artifact.memory_ref.family = crate::ids::FamilyName::parse("experience").expect("valid");
    let mut other_head = good.clone();
    other_head.memory_ref = memory_ref(Revision::new(2).expect("not zero"));
    let mut other_entry = good.clone();
    other_entry.entry_id = EntryId::parse("mem_ent_x").expect("valid");
    let mut other_version = good.clone();
    other_version.entry_version_id = EntryVersionId::parse("mem_ver_x").expect("valid");
    for (head, citation, refused) in [
        (None, good, EditRefused::NoMemory),
        (Some(&head), other_artifact, EditRefused::NoMemory),
        (Some(&head), other_head, EditRefused::RevisionConflict),
        (Some(&head), other_entry, EditRefused::NoEntry),
        (Some(&head), other_version, EditRefused::NoEntry),
    ] {
        let retire = Edit::Retire {
            citation: citation.clone(),
        };
        let revise = Edit::Revise {
            citation,
            kind: kind("fact"),
            text: text("x"),
        };
        for edit in [retire, revise] {
            assert_eq!(plan_edit(head, edit, None, &mut numbers(9)), Err(refused));
        }
    }
}

#[test]
fn a_plan_crosses_a_pipe_and_one_that_was_tampered_with_does_not_pass() {
    let head = two_facts();
    let plan = planned(Some(&head), vec![add("three", &["w3"])], 200);
    let write = MemoryWrite {
        scope: ScopeId::parse("équipe").expect("valid"),
        cursor: Some(CursorStep {
            from: Cursor::START,
            through: Position::new(2),
        }),
        plan: Some(plan.clone()),
    };
    let text = serde_json::to_string(&write).expect("plain data");
    assert_eq!(serde_json::from_str::<MemoryWrite>(&text).expect("same form"), write);

    let tampered: [fn(&mut MemoryPlan); 6] = [
        |p| p.revision = Revision::FIRST,
        |p| p.expected_head = None,
        |p| p.new_versions.clear(),
        |p| p.new_versions[0].text = EntryText::parse("four").expect("valid"),
        |p| p.new_versions[0].state = EntryState::Inactive,
        |p| p.new_versions[0].version_id = EntryVersionId::parse("mem_ver_x").expect("valid"),
    ];
    for change in tampered {
        let mut other = plan.clone();
        change(&mut other);
        assert_eq!(other.check(), Err(PlanFault::Inconsistent));
    }
}
