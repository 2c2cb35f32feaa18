//! What a migrator does with an empty, current, newer, foreign or half-migrated database, and with another migrator.

use powercontext::rt;
use powercontext::store::migrate::plan::{Refusal, StoredRevision};
use powercontext::store::migrate::revisions::{BOOTSTRAP, REVISIONS, Revision, TARGET};
use powercontext::store::migrate::{Code, Mode, Progress, migrate};
use powercontext::store::schema::verify;
use powercontext::store::{DatabaseUrl, Dialect};
use powercontext_core::time::Span;

use crate::database::{APPLY, Database};

const NOW: [(Dialect, &str); 2] = [(Dialect::OceanBase, "UTC_TIMESTAMP(6)"), (Dialect::Sqlite, "1")];

fn now(dialect: Dialect) -> &'static str {
    NOW.iter().find(|(d, _)| *d == dialect).map_or("", |(_, text)| text)
}

/// Writes a row of `pc_schema_revisions` as a migrator of some build would.
async fn record(db: &Database, row: &StoredRevision) -> anyhow::Result<()> {
    let now = now(db.dialect);
    let completed = if row.completed { now } else { "NULL" };
    let revision = REVISIONS.iter().find(|revision| revision.number == row.number);
    let total = revision.map_or(row.statements_done, |revision| revision.statements(db.dialect).len());
    db.run(&format!(
        "INSERT INTO pc_schema_revisions VALUES ({}, '{}', '{}', {}, {now}, {completed}, {total}, {})",
        row.number, row.name, row.checksum, row.oldest_reader, row.statements_done
    ))
    .await
}

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

fn future(oldest_reader: u32) -> StoredRevision {
    StoredRevision {
        number: TARGET + 1,
        name: "of_the_future".to_owned(),
        checksum: "f".repeat(64),
        oldest_reader,
        completed: true,
        statements_done: 1,
    }
}

/// Revision 1 complete; of revision 2, `ran` statements ran and `noted` are noted.
async fn begun(ran: usize, noted: usize) -> anyhow::Result<Database> {
    let db = Database::oceanbase().await?;
    let dialect = db.dialect;
    let first = BOOTSTRAP
        .statements(dialect)
        .iter()
        .chain(REVISIONS[0].statements(dialect));
    for statement in first.chain(&REVISIONS[1].statements(dialect)[..ran]) {
        db.run(statement.sql).await?;
    }
    record(&db, &row(dialect, &REVISIONS[0])).await?;
    let second = StoredRevision {
        completed: false,
        statements_done: noted,
        ..row(dialect, &REVISIONS[1])
    };
    record(&db, &second).await?;
    Ok(db)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_is_planned_migrated_verified_and_then_left_alone() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let plan = db.plan().await;
        assert_eq!(
            (plan.code, plan.current, plan.target),
            (Code::Done, 0, TARGET),
            "{plan:?}"
        );
        assert_eq!(
            plan.steps.iter().map(|step| step.revision).collect::<Vec<_>>(),
            (1..=TARGET).collect::<Vec<_>>()
        );
        assert_eq!(db.dump().await?, Vec::<String>::new(), "a plan changes nothing");

        let mut seen = Vec::new();
        let report = migrate(&db.url, APPLY, &mut |progress| seen.push(progress)).await;
        assert_eq!((report.code, report.current), (Code::Done, TARGET), "{report:?}");
        let completed = seen.iter().filter(|p| matches!(p, Progress::Completed { .. })).count();
        assert_eq!(completed, REVISIONS.len());
        assert_eq!(verify(&db.url).await?.stored, TARGET);

        let held = "SELECT COUNT(*) FROM pc_scheduler_leases WHERE lease_name = 'schema-migration' AND fence > 0 AND owner_id IS NULL";
        assert_eq!(db.number(held).await?, 1, "the lease was taken and given back");
        let before = db.dump().await?;
        let again = db.migrate().await;
        assert_eq!((again.code, again.current, again.steps.len()), (Code::Done, TARGET, 0));
        assert_eq!(db.dump().await?, before);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_steps_together_equal_the_fresh_schema() -> anyhow::Result<()> {
    for (stepped, fresh) in Database::both().await?.into_iter().zip(Database::both().await?) {
        let name = match fresh.dialect {
            Dialect::OceanBase => "oceanbase",
            Dialect::Sqlite => "sqlite",
        };
        let path = format!("{}/../migrations/{name}/schema.sql", env!("CARGO_MANIFEST_DIR"));
        fresh.run(&std::fs::read_to_string(path)?).await?;
        let stepped = stepped.migrated().await?;
        let shown = stepped.dump().await?;
        assert!(shown.len() >= 16, "{shown:?}");
        assert_eq!(shown, fresh.dump().await?, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_a_revision_are_refused_and_left_untouched() -> anyhow::Result<()> {
    for db in Database::both().await? {
        db.run("CREATE TABLE pc_sources (id INTEGER NOT NULL)").await?;
        let before = db.dump().await?;
        let report = db.migrate().await;
        assert_eq!(report.code, Code::Refused);
        assert!(
            report.reason.as_deref().is_some_and(|why| why.contains("pc_sources")),
            "{report:?}"
        );
        assert_eq!(db.dump().await?, before);
        assert!(verify(&db.url).await.is_err());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_stopped_between_two_statements_is_finished() -> anyhow::Result<()> {
    // Not begun, between two statements, one statement run but not noted, all run and not completed.
    for (ran, noted) in [(0, 0), (1, 1), (2, 1), (4, 4)] {
        let db = begun(ran, noted).await?.migrated().await?;
        assert_eq!(verify(&db.url).await?.stored, TARGET);
        let done = "SELECT COUNT(*) FROM pc_schema_revisions WHERE completed_at IS NOT NULL";
        assert_eq!(db.number(done).await?, i64::from(TARGET));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_applied_step_is_refused_and_left_untouched() -> anyhow::Result<()> {
    let lost = begun(1, 2).await?;
    let ahead = begun(2, 0).await?;
    let half = begun(1, 0).await?;
    half.run("ALTER TABLE pc_source_journal_heads DROP CONSTRAINT ck_pc_source_journal_heads_position")
        .await?;
    for db in [lost, ahead, half] {
        let before = db.dump().await?;
        let report = db.migrate().await;
        assert_eq!(report.code, Code::Refused);
        let reason = report.reason.unwrap_or_default();
        assert!(reason.contains("revision 2 is half applied: 0002_sources/"), "{reason}");
        assert_eq!(db.dump().await?, before);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_build_does_nothing_on_a_newer_revision_that_it_may_read() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let db = db.migrated().await?;
        record(&db, &future(TARGET)).await?;
        db.run("CREATE TABLE pc_new (id INTEGER NOT NULL)").await?;
        db.run("ALTER TABLE pc_sources ADD COLUMN added INTEGER NULL").await?;
        let before = db.dump().await?;
        let report = db.migrate().await;
        assert_eq!(
            (report.code, report.current, report.steps.len()),
            (Code::Done, TARGET + 1, 0),
            "{report:?}"
        );
        assert_eq!(db.dump().await?, before);
        let verified = verify(&db.url).await?;
        assert_eq!((verified.stored, verified.own), (TARGET + 1, TARGET));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_revision_that_it_may_not_read_and_a_changed_one_are_refused() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let db = db.migrated().await?;
        db.run("UPDATE pc_schema_revisions SET checksum = 'other' WHERE revision = 2")
            .await?;
        let report = db.migrate().await;
        assert_eq!(report.code, Code::Refused);
        assert_eq!(report.reason, Some(Refusal::Changed { revision: 2 }.to_string()));
        assert_eq!(report.current, TARGET, "what is refused is told all the same");

        record(&db, &future(TARGET + 1)).await?;
        let report = db.migrate().await;
        assert_eq!(report.code, Code::Refused);
        assert!(
            report
                .reason
                .as_deref()
                .is_some_and(|why| why.contains("run the newer build")),
            "{report:?}"
        );
        assert_eq!(report.current, TARGET + 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn migrators_at_the_same_time_apply_each_revision_once() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let url = db.url.clone();
                rt::spawn(async move { migrate(&url, APPLY, &mut |_| {}).await })
            })
            .collect();
        for task in tasks {
            let report = task.await?;
            assert_eq!((report.code, report.current), (Code::Done, TARGET), "{report:?}");
        }
        assert_eq!(
            db.number("SELECT COUNT(*) FROM pc_schema_revisions").await?,
            i64::from(TARGET)
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migrator_at_work_is_named_and_a_dead_one_is_replaced_with_a_higher_fence() -> anyhow::Result<()> {
    let db = Database::oceanbase().await?;
    for statement in BOOTSTRAP.statements(db.dialect) {
        db.run(statement.sql).await?;
    }
    db.run(
        "INSERT INTO pc_scheduler_leases VALUES
         ('schema-migration', 'someone-else', 7, UTC_TIMESTAMP(6) + INTERVAL 600 SECOND, UTC_TIMESTAMP(6))",
    )
    .await?;
    let report = migrate(&db.url, Mode::Apply { wait: Span::ZERO }, &mut |_| {}).await;
    assert_eq!(report.code, Code::NotReachable);
    assert!(
        report.reason.as_deref().is_some_and(|why| why.contains("someone-else")),
        "{report:?}"
    );
    assert_eq!(db.number("SELECT COUNT(*) FROM pc_schema_revisions").await?, 0);

    db.run("UPDATE pc_scheduler_leases SET lease_expires_at = UTC_TIMESTAMP(6)")
        .await?;
    let db = db.migrated().await?;
    assert_eq!(db.number("SELECT fence FROM pc_scheduler_leases").await?, 8);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_bad_settings_from_a_server_that_is_away_and_a_damaged_file() -> anyhow::Result<()> {
    let code = async |url: &str| -> anyhow::Result<Code> {
        Ok(migrate(&DatabaseUrl::parse(url)?, APPLY, &mut |_| {}).await.code)
    };
    let server = powercontext_tests::oceanbase::url().await?;
    assert_eq!(
        code(&format!("{}_missing", server.url())).await?,
        Code::BadConfiguration
    );
    // Port 1 of this machine: nobody listens.
    assert_eq!(code("mysql://root@127.0.0.1:1/x").await?, Code::NotReachable);

    let damaged = Database::sqlite()?;
    let text = "this is no database, however long it may be ".repeat(100);
    std::fs::write(damaged.path(), &text)?;
    assert_eq!(damaged.migrate().await.code, Code::Refused);
    assert_eq!(std::fs::read_to_string(damaged.path())?, text);
    Ok(())
}
