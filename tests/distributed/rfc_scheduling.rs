//! Acceptance of supervised processing, points 1 to 6: which scopes run, when, and beside which others.

use anyhow::ensure;
use powercontext::families::test_only::{BOUNDED, Settings, UNBOUNDED};
use powercontext_tests::wait::until;

use crate::rig::SOON;
use crate::stage::{BOTH, RUNNING, Stage, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_01_a_key_never_runs_twice_at_once_and_scopes_and_families_run_beside_each_other()
-> anyhow::Result<()> {
    let stage = Stage::with(settings(Some(300), 2), settings(Some(300), 3)).await?;
    let stage = stage.set("WORKER_CONCURRENCY", "8");
    let mut scopes = Vec::new();
    for family in BOTH {
        stage.say(family, "all", "hold")?;
        scopes = stage.capture_many(family, "s", 6).await?;
    }
    let processes = [stage.start("background").await?, stage.start("background").await?];
    for (family, cap) in [(BOUNDED, 2), (UNBOUNDED, 3)] {
        stage.wait(family, RUNNING, cap).await?;
        // More for keys that run and for keys that wait: asked for, and found.
        for scope in &scopes {
            stage.capture(family, scope).await?;
            stage.flush(family, scope).await?;
        }
        let behind = "status = 'queued' and ready_at is null";
        stage.wait(family, behind, cap).await?;
        ensure!(stage.items(family, RUNNING).await? == cap, "{family} runs what it ran");
    }
    stage.holds().await?;
    for (family, cap) in [(BOUNDED, 2), (UNBOUNDED, 3)] {
        stage.say(family, "all", "")?;
        stage.rests(family).await?;
        let most = stage.most_at_once(family).await?;
        ensure!(most == cap, "{family}: {most} at once");
    }
    stage.holds().await?;
    for process in processes {
        process.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_02_long_runs_fill_their_family_alone_and_no_page_or_back_off_starves_a_later_one()
-> anyhow::Result<()> {
    let patient = Settings {
        retry_base_ms: 60_000,
        retry_max_ms: 60_000,
        ..settings(Some(300), 4)
    };
    let stage = Stage::with(settings(Some(300), 2), patient).await?;
    let stage = stage.set("COORDINATION_SCAN_PAGE_SIZE", "5");
    stage.say(BOUNDED, "all", "hold")?;
    stage.capture_many(BOUNDED, "long", 12).await?;
    for scope in stage.capture_many(UNBOUNDED, "early", 8).await? {
        stage.say(UNBOUNDED, &scope, "fail")?;
    }
    let process = stage.start("background").await?;
    stage.wait(BOUNDED, RUNNING, 2).await?;
    stage.wait(UNBOUNDED, "status = 'retry_wait'", 8).await?;
    let held = "select count(work_id) from pc_artifact_processing_slots where family = 'test-unbounded'";
    ensure!(
        stage.number(UNBOUNDED, held).await? == 0,
        "a key in back-off holds a slot"
    );
    stage.capture_many(UNBOUNDED, "late", 12).await?;
    stage
        .wait(UNBOUNDED, "status = 'succeeded' and scope_id like 'late%'", 12)
        .await?;
    ensure!(stage.items(UNBOUNDED, "status = 'retry_wait'").await? == 8);
    ensure!(stage.items(BOUNDED, RUNNING).await? == 2);
    // What the long ones kept waiting is behind several pages, and is reached.
    stage.say(BOUNDED, "all", "")?;
    stage.rests(BOUNDED).await?;
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_03_b2_never_overtakes_a_failing_b1_and_a3_is_taken_up_in_a_later_check() -> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(300), 0)).await?;
    for family in BOTH {
        stage.say(family, "b", "fail")?;
        stage.capture(family, "b").await?;
        stage.capture(family, "a").await?;
    }
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.wait(family, "status = 'succeeded' and scope_id = 'a'", 1).await?;
        stage.capture(family, "b").await?;
        stage.capture(family, "a").await?;
        stage.wait(family, "status = 'succeeded' and scope_id = 'a'", 2).await?;
        until("b has failed again and again", SOON, async || {
            Ok((stage.outcomes(family, "b").await?.len() > 2).then_some(()))
        })
        .await?;
        ensure!(stage.cursor(family, "b").await? == (0, 0), "nothing of b is consumed");
        ensure!(
            stage.items(family, "scope_id = 'b'").await? == 1,
            "b2 has no item of its own"
        );
    }
    stage.wait(BOUNDED, "status = 'failed'", 1).await?;
    let outcomes = stage.outcomes(BOUNDED, "b").await?;
    ensure!(outcomes == ["retry_wait", "retry_wait", "failed"], "{outcomes:?}");
    stage.say(BOUNDED, "b", "")?;
    stage.say(UNBOUNDED, "b", "")?;
    // One goes on by itself, the other once somebody acts.
    stage.rests(UNBOUNDED).await?;
    ensure!(stage.items(BOUNDED, "status = 'failed'").await? == 1);
    stage.revive(BOUNDED, "b").await?;
    stage.rests(BOUNDED).await?;
    for family in BOTH {
        ensure!(stage.cursor(family, "b").await? == (2, 1), "b1 and b2, in one commit");
        ensure!(stage.cursor(family, "a").await? == (2, 2), "a twice");
    }
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_04_what_a_run_leaves_over_is_ordinary_work_of_the_next_check() -> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(1000), 0)).await?;
    for family in BOTH {
        stage.say(family, "s", "one")?;
        for _ in 0..3 {
            stage.capture(family, "s").await?;
        }
    }
    let process = stage.start("background").await?;
    for family in BOTH {
        stage.rests(family).await?;
        ensure!(
            stage.items(family, "status = 'succeeded'").await? == 3,
            "one source a run"
        );
        ensure!(stage.cursor(family, "s").await? == (3, 3));
        ensure!(stage.counters(family, "s").await? == [3, 3, 3, 3]);
        let gap = "select min(timestampdiff(microsecond, a.created_at, b.created_at)) from pc_work_items a
                   join pc_work_items b on b.lane_key = a.lane_key and b.lane_sequence = a.lane_sequence + 1
                   where a.kind = KIND";
        let gap = stage.number(family, gap).await?;
        ensure!(gap > 500_000, "{gap} µs after the one before, with a check a second");
    }
    stage.holds().await?;
    process.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_05_schedules_are_apart_full_capacity_moves_no_checkpoint_and_a_scan_waits_for_no_run()
-> anyhow::Result<()> {
    let stage = Stage::with(settings(Some(200), 1), settings(Some(300), 0)).await?;
    let stage = stage.set("WORKER_CONCURRENCY", "8");
    for family in BOTH {
        stage.say(family, "all", "hold")?;
    }
    stage.capture_many(BOUNDED, "many", 105).await?;
    stage.capture_many(UNBOUNDED, "few", 3).await?;
    let process = stage.start("background").await?;
    stage.wait(BOUNDED, "status in ('queued', 'running')", 101).await?;
    stage.wait(UNBOUNDED, RUNNING, 3).await?;
    let checkpoint = "select cast(unix_timestamp(last_schedule_checkpoint_at) * 1000000 as signed)
                      from pc_artifact_processing_binding_states where binding_name = BINDING";
    let before = stage.number(BOUNDED, checkpoint).await?;
    // Their scopes run, and their scans end all the same, one after the other.
    let (first, _) = stage.scan(UNBOUNDED).await?;
    until("the other family is checked again", SOON, async || {
        Ok((stage.scan(UNBOUNDED).await?.0 > first + 2).then_some(()))
    })
    .await?;
    ensure!(stage.items(UNBOUNDED, RUNNING).await? == 3);
    ensure!(stage.scan(BOUNDED).await? == (1, true), "its scan is not complete");
    ensure!(
        stage.number(BOUNDED, checkpoint).await? == before,
        "its checkpoint has moved without a check"
    );
    ensure!(stage.items(BOUNDED, "status in ('queued', 'running')").await? == 101);
    stage.say(BOUNDED, "all", "")?;
    until("the scan goes on when there is room", SOON, async || {
        Ok((stage.items(BOUNDED, "1 = 1").await? == 105).then_some(()))
    })
    .await?;
    let again = "select count(*) from pc_artifact_processing_intents
                 where binding_name = BINDING and last_auto_scan_generation <> 1";
    ensure!(stage.number(BOUNDED, again).await? == 0, "all of them by the one scan");
    process.stop().await?;
    stage.holds().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rfc_acceptance_06_a_crash_after_admission_or_inside_a_scan_loses_nothing_and_repeats_nothing()
-> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(300), 0)).await?;
    let stage = stage
        .set("WORKER_CONCURRENCY", "8")
        .set("COORDINATION_SCAN_PAGE_SIZE", "20");
    stage.capture_many(UNBOUNDED, "s", 103).await?;
    // It has admitted, and nobody has heard of it.
    let first = stage
        .role("scheduler")?
        .stopping_at("admit.after_commit")
        .start()
        .await?;
    first.reached("admit.after_commit").await?;
    first.kill().await?;
    ensure!(stage.items(UNBOUNDED, "status = 'queued'").await? > 0);
    // In mid scan, which has come as far as there is room.
    let second = stage.start("scheduler").await?;
    stage.wait(UNBOUNDED, "status = 'queued'", 100).await?;
    ensure!(stage.scan(UNBOUNDED).await? == (1, true), "the one scan goes on");
    second.kill().await?;
    // Registered meanwhile: the scan that goes on has an end, and they are for the next.
    stage.capture_many(UNBOUNDED, "new", 5).await?;
    // Somebody has read what they would read, so that their runs cost nothing here.
    let read = "insert into pc_source_cursors (scope_id, binding_name, sequence, generation)
                select scope_id, binding_name, 1, 1 from pc_artifact_processing_intents where scope_id like 'test-unbounded.s%'";
    stage.deployment.database.raw().await?.execute(read).await?;
    let third = stage.start("background").await?;
    stage.rests(UNBOUNDED).await?;
    let by = |scopes: &str, which: &str| {
        format!(
            "select count(*) from pc_artifact_processing_intents
             where binding_name = BINDING and scope_id like '{scopes}%' and last_auto_scan_generation {which}"
        )
    };
    ensure!(stage.number(UNBOUNDED, &by("s", "= 1")).await? == 103);
    ensure!(stage.number(UNBOUNDED, &by("new", "> 1")).await? == 5);
    ensure!(
        stage.items(UNBOUNDED, "status = 'succeeded'").await? == 108,
        "each scope once"
    );
    // New input of a scope that was checked is for a later check.
    stage.capture(UNBOUNDED, "s0").await?;
    stage
        .wait(UNBOUNDED, "status = 'succeeded' and scope_id = 's0'", 2)
        .await?;
    stage.holds().await?;
    third.stop().await
}
