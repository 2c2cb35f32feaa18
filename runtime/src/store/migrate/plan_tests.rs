use super::*;
use crate::store::schema::ddl::Table;

const DIALECTS: [Dialect; 2] = [Dialect::OceanBase, Dialect::Sqlite];

fn row(dialect: Dialect, revision: &Revision) -> StoredRevision {
    StoredRevision {
        number: revision.number,
        name: revision.name.to_owned(),
        checksum: revision.checksum(dialect),
        oldest_reader: revision.oldest_reader,
        completed: true,
        statements_done: revision.statements(dialect).len(),
    }
}

/// A database after so many revisions.
fn after(dialect: Dialect, revisions: usize) -> Found {
    let mut found = Found::default();
    apply(&mut found.catalog, dialect, &BOOTSTRAP).expect("readable");
    for revision in &REVISIONS[..revisions] {
        apply(&mut found.catalog, dialect, revision).expect("readable");
        found.revisions.push(row(dialect, revision));
    }
    found
}

/// A database whose revision 2 began: `ran` statements ran, `noted` of them are noted.
fn begun(dialect: Dialect, ran: usize, noted: usize) -> Found {
    let mut found = after(dialect, 1);
    for statement in &REVISIONS[1].statements(dialect)[..ran] {
        found.catalog.apply(statement.sql).expect("readable");
    }
    found.revisions.push(StoredRevision {
        completed: false,
        statements_done: noted,
        ..row(dialect, &REVISIONS[1])
    });
    found
}

fn numbers(plan: &Plan) -> Vec<u32> {
    plan.steps.iter().map(|step| step.revision.number).collect()
}

#[test]
fn every_embedded_statement_can_be_verified() {
    for dialect in DIALECTS {
        let catalog = expected_catalog(dialect).expect("readable");
        assert!(catalog.tables.len() >= 16);
    }
}

#[test]
fn an_empty_database_gets_every_revision_and_a_current_one_none() {
    for dialect in DIALECTS {
        for found in [Found::default(), after(dialect, 0)] {
            let plan = plan(dialect, &found).expect("allowed");
            assert_eq!((plan.current, numbers(&plan)), (0, (1..=TARGET).collect::<Vec<_>>()));
        }
        let partly = plan(dialect, &after(dialect, 1)).expect("allowed");
        assert_eq!(
            (partly.current, numbers(&partly)),
            (1, (2..=TARGET).collect::<Vec<_>>())
        );
        let done = plan(dialect, &after(dialect, REVISIONS.len())).expect("allowed");
        assert_eq!((done.current, done.newer, done.steps), (TARGET, false, vec![]));
    }
}

#[test]
fn tables_without_a_revision_are_refused() {
    let mut found = Found::default();
    found.catalog.tables.insert("pc_sources".to_owned(), Table::default());
    let refusal = plan(Dialect::OceanBase, &found).expect_err("refused");
    assert_eq!(
        refusal,
        Refusal::Unversioned {
            table: "pc_sources".to_owned()
        }
    );
}

#[test]
fn a_newer_revision_that_this_build_may_read_needs_nothing() {
    for completed in [true, false] {
        let mut found = after(Dialect::OceanBase, REVISIONS.len());
        found.revisions.push(StoredRevision {
            number: TARGET + 1,
            name: "of_the_future".to_owned(),
            checksum: "unknown".to_owned(),
            oldest_reader: TARGET,
            completed,
            statements_done: 1,
        });
        let plan = plan(Dialect::OceanBase, &found).expect("allowed");
        assert_eq!((plan.newer, plan.steps), (true, vec![]));
        assert_eq!(plan.current, if completed { TARGET + 1 } else { TARGET });
    }
}

#[test]
fn a_newer_revision_that_this_build_may_not_read_is_refused() {
    let mut found = after(Dialect::OceanBase, REVISIONS.len());
    found.revisions.push(StoredRevision {
        number: TARGET + 1,
        name: "of_the_future".to_owned(),
        checksum: "unknown".to_owned(),
        oldest_reader: TARGET + 1,
        completed: false,
        statements_done: 0,
    });
    assert_eq!(
        plan(Dialect::OceanBase, &found),
        Err(Refusal::Unreadable {
            stored: TARGET + 1,
            oldest_reader: TARGET + 1,
            own: TARGET
        })
    );
}

#[test]
fn a_changed_checksum_is_refused() {
    let mut found = after(Dialect::Sqlite, REVISIONS.len());
    found.revisions[1].checksum = "0".repeat(64);
    assert_eq!(plan(Dialect::Sqlite, &found), Err(Refusal::Changed { revision: 2 }));
}

#[test]
fn a_begun_step_goes_on_where_it_stopped() {
    for (ran, noted, done) in [(0, 0, 0), (1, 1, 1), (2, 1, 2), (4, 4, 4), (4, 3, 4)] {
        let plan = plan(Dialect::OceanBase, &begun(Dialect::OceanBase, ran, noted)).expect("allowed");
        assert_eq!(
            plan.steps[0],
            Step {
                revision: &REVISIONS[1],
                begun: true,
                done
            }
        );
        assert_eq!(numbers(&plan), (2..=TARGET).collect::<Vec<_>>());
    }
}

#[test]
fn a_half_applied_step_is_refused() {
    let half = |found: &Found| {
        let refusal = plan(Dialect::OceanBase, found).expect_err("refused");
        assert!(matches!(refusal, Refusal::HalfApplied { revision: 2, .. }), "{refusal}");
    };
    // Two statements further than noted, and one noted that is not there.
    half(&begun(Dialect::OceanBase, 2, 0));
    half(&begun(Dialect::OceanBase, 1, 2));
    // There, and not as it should be: whether it was noted or not.
    for noted in [0, 1] {
        let mut found = begun(Dialect::OceanBase, 1, noted);
        let table = found.catalog.tables.get_mut("pc_source_journal_heads").expect("made");
        table.columns.remove("position");
        half(&found);
    }
}

#[test]
fn an_object_in_the_way_of_a_step_is_refused() {
    let mut found = after(Dialect::OceanBase, 1);
    found.catalog.tables.insert("pc_sources".to_owned(), Table::default());
    assert!(matches!(
        plan(Dialect::OceanBase, &found),
        Err(Refusal::InTheWay { revision: 2, .. })
    ));
}

#[test]
fn a_record_with_a_hole_or_an_incomplete_middle_is_refused() {
    let mut hole = after(Dialect::OceanBase, REVISIONS.len());
    hole.revisions.remove(1);
    assert_eq!(plan(Dialect::OceanBase, &hole), Err(Refusal::Record { revision: 3 }));
    let mut middle = after(Dialect::OceanBase, REVISIONS.len());
    middle.revisions[1].completed = false;
    assert_eq!(plan(Dialect::OceanBase, &middle), Err(Refusal::Record { revision: 3 }));
}
