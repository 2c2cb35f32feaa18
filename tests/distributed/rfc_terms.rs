//! Acceptance of supervised processing, points 10, 11 and 15: terms, modes, and what is refused at start.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use powercontext::families::test_only::{Settings, UNBOUNDED};
use powercontext::rt;
use powercontext::store::leases::{self, LeaseName};
use powercontext::store::{Db, FenceLost, TxError, TxName, intents};
use powercontext_core::ids::BindingName;
use powercontext_tests::database::Database;
use powercontext_tests::db::TestDb;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;
use powercontext_tests::wait::until;

use crate::rig::SOON;
use crate::stage::{BOTH, RUNNING, Stage, settings};

const MODE: &str = "RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_10_a_leader_of_the_past_admits_nothing_and_the_same_holder_comes_back_under_a_higher_fence()
-> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(300), 0)).await?;
    let armed = stage.deployment.database.beside("armed");
    let point = format!("admit.before_commit=hold@{}", armed.display());
    let old = stage.role("scheduler")?.stopping_at(&point).start().await?;
    let (holder, fence) = stage.deployment.led_above(0).await?;
    std::fs::write(&armed, "")?;
    let scopes = stage.capture_many(UNBOUNDED, "s", 6).await?;
    old.reached("admit.before_commit").await?;
    // Frozen with the admission proven and not committed.
    old.freeze()?;
    let new = stage.start("scheduler").await?;
    let (successor, higher) = stage.deployment.led_above(fence).await?;
    ensure!(successor != holder);
    stage.wait(UNBOUNDED, "status = 'queued'", 6).await?;
    std::fs::remove_file(&armed)?;
    old.thaw()?;
    old.logged("this process leads no more", SOON).await?;
    for scope in &scopes {
        let counters = stage.counters(UNBOUNDED, scope).await?;
        ensure!(counters == [1, 0, 1, 0], "{scope} was admitted twice: {counters:?}");
    }
    ensure!(stage.items(UNBOUNDED, "1 = 1").await? == 6);
    new.stop().await?;
    let (again, highest) = stage.deployment.led_above(higher).await?;
    ensure!(again == holder, "{again} leads and not {holder}");
    ensure!(highest > higher, "{highest} after {higher}");
    stage.capture(UNBOUNDED, "late").await?;
    stage.wait(UNBOUNDED, "status = 'queued'", 7).await?;
    stage.holds().await?;
    old.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_10_a_worker_of_the_past_commits_nothing() -> anyhow::Result<()> {
    let stage = Stage::new(settings(None, 1)).await?;
    let armed = stage.deployment.database.beside("armed");
    let point = format!("finish.before_commit=hold@{}", armed.display());
    let old = stage.role("worker")?.stopping_at(&point).start().await?;
    std::fs::write(&armed, "")?;
    for family in BOTH {
        stage.capture(family, "s").await?;
        stage.flush(family, "s").await?;
    }
    old.reached("finish.before_commit").await?;
    for family in BOTH {
        stage.wait(family, RUNNING, 1).await?;
    }
    old.freeze()?;
    let new = stage.start("worker").await?;
    for family in BOTH {
        stage.rests(family).await?;
    }
    std::fs::remove_file(&armed)?;
    old.thaw()?;
    // It has seen that what it ran is not its own any more once it runs something new.
    new.stop().await?;
    for family in BOTH {
        stage.capture(family, "next").await?;
        stage.flush(family, "next").await?;
        stage.rests(family).await?;
        ensure!(stage.cursor(family, "s").await? == (1, 1), "{family}: one commit");
        let outcomes = stage.outcomes(family, "s").await?;
        ensure!(
            outcomes == ["lease_expired_retry", "succeeded"],
            "{family}: {outcomes:?}"
        );
    }
    stage.holds().await?;
    old.stop().await
}

/// What the owner of the file does to its term.
async fn own(db: &Db) -> anyhow::Result<()> {
    let me = Arc::new(rt::member_id());
    let raised = db.tx_with(TxName::Lease, &me, |tx, me| {
        Box::pin(leases::raise_term(tx, LeaseName::SingleNodeRuntime, me))
    });
    db.set_term(raised.await?.fence());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_10_on_sqlite_a_new_term_waits_for_the_write_under_way_and_ends_all_later_ones()
-> anyhow::Result<()> {
    let test = TestDb::sqlite().await?;
    let [old, new] = [test.reopened(1).await?, test.reopened(1).await?];
    own(&old).await?;
    let scope = Arc::new(test.scope("s")?);
    let write = |db: Db, lasts: Duration| {
        let input = Arc::new((Arc::clone(&scope), lasts));
        rt::spawn(async move {
            db.tx_with(TxName::Capture, &input, |tx, (scope, lasts)| {
                Box::pin(async move {
                    intents::mark_dirty(tx, &BindingName::parse("test-sources").expect("valid"), scope).await?;
                    rt::sleep(*lasts).await;
                    Ok(rt::now())
                })
            })
            .await
        })
    };
    // Under way with the file's write lock: the new term begins behind it, and it counts.
    let under_way = write(old.clone(), Duration::from_millis(500));
    rt::sleep(Duration::from_millis(100)).await;
    own(&new).await?;
    let begun = rt::now();
    ensure!(
        under_way.await?? <= begun,
        "the new term began inside a write of the old one"
    );
    let late = write(old, Duration::ZERO).await?;
    ensure!(late == Err(TxError::Fenced(FenceLost::Term)), "{late:?}");
    write(new, Duration::ZERO).await??;
    let dirty = "select dirty_generation from pc_artifact_processing_intents";
    let mut raw = powercontext_tests::raw::Raw::connect(test.url()).await?;
    ensure!(raw.rows(dirty).await?[0].int(0)? == 2, "one by each term");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_11_a_change_of_mode_and_back_keeps_all_progress_and_ends_the_terms_of_the_old_mode()
-> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(300), 0)).await?;
    let switch = async |to: &str| {
        let switched = stage
            .role("scheduler")?
            .run(&["server", "switch-mode", "--to", to])
            .await?;
        ensure!(switched.status.success(), "{switched:?}");
        Ok(())
    };
    let fence = async |lease: &str| {
        let sql = format!("select fence from pc_scheduler_leases where lease_name = '{lease}'");
        stage.number(UNBOUNDED, &sql).await
    };
    let worker = stage.start("worker").await?;
    let scheduler = stage.start("scheduler").await?;
    stage.say(UNBOUNDED, "long", "hold")?;
    for scope in ["long", "before"] {
        stage.capture(UNBOUNDED, scope).await?;
    }
    stage.wait(UNBOUNDED, RUNNING, 1).await?;
    stage.wait(UNBOUNDED, "status = 'succeeded'", 1).await?;
    scheduler.stop().await?;
    let (scan, global) = (stage.scan(UNBOUNDED).await?, fence("global").await?);
    switch("dedicated").await?;
    ensure!(fence("global").await? > global, "the terms of the old mode are over");
    let mut refused = stage.role("scheduler")?.spawn().await?;
    let status = refused.ended(SOON).await?;
    ensure!(
        !status.success() && refused.log().contains("stored mode of supervision is dedicated"),
        "{status}: {}",
        refused.log()
    );
    ensure!(stage.scan(UNBOUNDED).await? == scan, "the scans are where they were");
    ensure!(stage.counters(UNBOUNDED, "before").await? == [1, 1, 1, 1]);
    let scheduler = stage.role("scheduler")?.with(MODE, "dedicated").start().await?;
    stage.capture(UNBOUNDED, "between").await?;
    stage.wait(UNBOUNDED, "status = 'succeeded'", 2).await?;
    ensure!(fence("artifact:test-unbounded").await? > 0);
    ensure!(stage.outcomes(UNBOUNDED, "long").await? == ["open"], "it goes on");
    scheduler.stop().await?;
    let family = fence("artifact:test-unbounded").await?;
    switch("global").await?;
    ensure!(fence("artifact:test-unbounded").await? > family);
    let scheduler = stage.start("scheduler").await?;
    stage.capture(UNBOUNDED, "after").await?;
    stage.wait(UNBOUNDED, "status = 'succeeded'", 3).await?;
    ensure!(stage.outcomes(UNBOUNDED, "long").await? == ["open"], "it still does");
    stage.say(UNBOUNDED, "long", "")?;
    stage.rests(UNBOUNDED).await?;
    ensure!(stage.outcomes(UNBOUNDED, "long").await? == ["succeeded"]);
    ensure!(stage.scan(UNBOUNDED).await?.0 > scan.0);
    stage.holds().await?;
    scheduler.stop().await?;
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_11_sqlite_takes_no_second_process_in_any_mode() -> anyhow::Result<()> {
    let (database, provider) = (Database::sqlite().await?, Provider::start().await?);
    let single = Setup::new(&database, &provider);
    let node = single.clone().with(MODE, "dedicated").start().await?;
    for role in ["scheduler", "worker", "background", "api"] {
        let member = single.clone().with("DEPLOYMENT_MODE", "distributed");
        let mut member = member.with("DEPLOYMENT_ROLE", role).spawn().await?;
        let status = member.ended(SOON).await?;
        ensure!(!status.success(), "{role} started on SQLite");
        ensure!(member.log().contains("OceanBase"), "{role}: {}", member.log());
    }
    let mut second = single.with(MODE, "dedicated").spawn().await?;
    ensure!(!second.ended(SOON).await?.success(), "two servers own one file");
    node.stop().await
}

/// A setting and its text.
type Set = (&'static str, &'static str);

/// A role, settings that it cannot have, and what a person is told of them.
const REFUSED: [(&str, &[Set], &str); 11] = [
    (
        "background",
        &[
            ("RUNTIME_SCHEDULE_SECONDS", "5"),
            ("RUNTIME_MEMORY_SCHEDULE_SECONDS", "6"),
        ],
        "RUNTIME_SCHEDULE_SECONDS",
    ),
    (
        "worker",
        &[("RUNTIME_MEMORY_MAX_WORKERS", "0")],
        "RUNTIME_MEMORY_MAX_WORKERS",
    ),
    (
        "worker",
        &[("RUNTIME_MEMORY_MAX_WORKERS", "true")],
        "RUNTIME_MEMORY_MAX_WORKERS",
    ),
    (
        "scheduler",
        &[("RUNTIME_MEMORY_SCHEDULE_SECONDS", "-1")],
        "RUNTIME_MEMORY_SCHEDULE_SECONDS",
    ),
    (
        "worker",
        &[("RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS", "0")],
        "RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS",
    ),
    (
        "scheduler",
        &[(MODE, "isolated")],
        "RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE",
    ),
    (
        "scheduler",
        &[("RUNTIME_PROFILE_SCHEDULE_ENABLED", "true")],
        "no processor",
    ),
    (
        "scheduler",
        &[("RUNTIME_TOPIC_MEMORY_SCHEDULE_SECONDS", "300")],
        "no processor",
    ),
    (
        "scheduler",
        &[("RUNTIME_EXPERIENCE_SCHEDULE_SECONDS", "300")],
        "no processor",
    ),
    (
        "worker",
        &[("INFERENCE_GENERATION_MODEL", "")],
        "INFERENCE_GENERATION_MODEL",
    ),
    (
        "scheduler",
        &[("RUNTIME_ARTIFACT_PROCESSING_ROLE", "background")],
        "RUNTIME_ARTIFACT_PROCESSING_ROLE",
    ),
];

async fn refused(setup: Setup, what: &str) -> anyhow::Result<()> {
    let mut process = setup.spawn().await?;
    let status = process.ended(SOON).await?;
    let log = process.log();
    ensure!(
        !status.success() && log.contains(what),
        "{what:?} was expected: {status}\n{log}"
    );
    ensure!(!log.contains("listening"), "it was told too late: {log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_15_wrong_settings_and_families_that_collide_are_told_at_start() -> anyhow::Result<()> {
    let mut stage = Stage::new(settings(None, 0)).await?;
    let mut cases = Vec::new();
    for (role, set, what) in REFUSED {
        let setup = set
            .iter()
            .fold(stage.role(role)?, |setup, (key, value)| setup.with(key, value));
        cases.push((setup, what));
    }
    let impossible = [
        (
            Settings {
                prefix: Some("MEMORY".to_owned()),
                ..settings(None, 0)
            },
            "two families share the prefix MEMORY",
        ),
        (
            settings(Some(0), 0),
            "the schedule of the family test-bounded has no length",
        ),
        (
            Settings {
                timeout_ms: 0,
                ..settings(None, 0)
            },
            "the timeout of the family test-bounded has no length",
        ),
    ];
    for (settings, what) in impossible {
        stage.families.bounded = Some(settings);
        cases.push((stage.role("background")?, what));
    }
    try_join_all(cases.into_iter().map(|(setup, what)| refused(setup, what))).await?;
    // Two names of one thing that say the same are no fault, and the log says which is the older.
    stage.families.bounded = None;
    let same = stage.role("scheduler")?;
    let same = same
        .with("RUNTIME_SCHEDULE_SECONDS", "5")
        .with("RUNTIME_MEMORY_SCHEDULE_SECONDS", "5.0")
        .start()
        .await?;
    until("the older name is told", SOON, async || {
        Ok(same.log().contains("RUNTIME_SCHEDULE_SECONDS").then_some(()))
    })
    .await?;
    same.stop().await
}
