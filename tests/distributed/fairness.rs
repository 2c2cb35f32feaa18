//! Fairness: a family that is flooded, that fills its slots for good, or whose discovery fails, is its own concern.

use std::time::Duration;

use anyhow::ensure;
use powercontext::families::test_only::{BOUNDED, Settings, UNBOUNDED};
use powercontext_tests::kit::{capture, flush};
use powercontext_tests::wait::until;

use crate::rig::SOON;
use crate::stage::{RUNNING, Stage, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_requests_and_retries_leaves_ordinary_scopes_and_other_families_their_starts() -> anyhow::Result<()>
{
    const ORDINARY: i64 = 8;
    let flooded = Settings {
        retry_base_ms: 20,
        retry_max_ms: 20,
        ..settings(Some(200), 2)
    };
    let stage = Stage::with(settings(Some(200), 2), flooded).await?;
    // Retries that never end, requests of many scopes, and among them what nobody asked for.
    for scope in stage.capture_many(UNBOUNDED, "failing", 12).await? {
        stage.say(UNBOUNDED, &scope, "fail")?;
        stage.flush(UNBOUNDED, &scope).await?;
    }
    for scope in stage.capture_many(UNBOUNDED, "asked", 60).await? {
        stage.flush(UNBOUNDED, &scope).await?;
    }
    stage.capture_many(UNBOUNDED, "ordinary", 8).await?;
    stage.capture_many(BOUNDED, "other", 4).await?;
    let process = stage.start("background").await?;
    stage
        .wait(
            UNBOUNDED,
            "status = 'succeeded' and scope_id like 'ordinary%'",
            ORDINARY,
        )
        .await?;
    stage.wait(BOUNDED, "status = 'succeeded'", 4).await?;
    // Starts of the family from the first moment at which an ordinary item waited to the last of them.
    let starts = "select count(*) from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id and i.kind = KIND
         where a.started_at >= (select min(created_at) from pc_work_items where kind = KIND and scope_id like 'ordinary%')
           and a.started_at <= (select max(b.started_at) from pc_work_attempts b join pc_work_items o on o.work_id = b.work_id
                                where o.kind = KIND and o.scope_id like 'ordinary%')";
    let starts = stage.number(UNBOUNDED, starts).await?;
    ensure!(
        starts <= 4 * ORDINARY + 8,
        "{ORDINARY} ordinary scopes started within {starts} starts"
    );
    let left = stage
        .items(UNBOUNDED, "status = 'queued' and scope_id like 'asked%'")
        .await?;
    ensure!(left >= 10, "the flood was over: {left} left");
    let late = "select coalesce(max(timestampdiff(microsecond, i.created_at, a.started_at)), 0)
         from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id where i.kind = KIND";
    let late = stage.number(BOUNDED, late).await?;
    ensure!(late < 2_000_000, "the other family waited {late} µs");
    // The rules hold between two transactions, and they are read one table after the other.
    process.stop().await?;
    stage.holds().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_family_whose_runs_outlast_the_test_fills_its_slots_and_the_others_start_within_two_seconds()
-> anyhow::Result<()> {
    let stage = Stage::new(settings(None, 0)).await?.set("WORKER_CONCURRENCY", "2");
    let (process, api) = (stage.start("background").await?, stage.start("api").await?);
    stage.say(BOUNDED, "all", "hold")?;
    for scope in stage.capture_many(BOUNDED, "long", 6).await? {
        stage.flush(BOUNDED, &scope).await?;
    }
    // All that there is, and no more of it than that.
    stage.wait(BOUNDED, RUNNING, 2).await?;
    for n in 0..3 {
        let scope = format!("s{n}");
        stage.capture(UNBOUNDED, &scope).await?;
        stage.flush(UNBOUNDED, &scope).await?;
        stage
            .wait_within(UNBOUNDED, "status = 'succeeded'", n + 1, Duration::from_secs(10))
            .await?;
    }
    capture(&api.client, "house", 1).await?;
    let operation = flush(&api.client, "house").await?;
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    let late = "select max(timestampdiff(microsecond, i.created_at, a.started_at))
         from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id where i.kind <> KIND";
    let late = stage.number(BOUNDED, late).await?;
    ensure!(late < 2_000_000, "another family waited {late} µs");
    ensure!(stage.items(BOUNDED, RUNNING).await? == 2);
    stage.holds().await?;
    process.stop().await?;
    api.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_family_whose_discovery_fails_is_degraded_alone_and_works_again_by_itself() -> anyhow::Result<()> {
    let stage = Stage::new(settings(Some(200), 0)).await?;
    stage.say(BOUNDED, "discovery", "fail")?;
    stage.capture_many(BOUNDED, "s", 3).await?;
    let process = stage.start("background").await?;
    let checked = async |state: &str| {
        until(&format!("the family's discovery is {state}"), SOON, async || {
            let ready = process.client.ready().await?.expect(200)?;
            let checks = &ready.body["checks"];
            let family = &checks["artifact_processing_supervisor.test-bounded"];
            ensure!(family == state, "{ready:?}");
            ensure!(
                checks["artifact_processing_supervisor"] == state
                    && checks["artifact_processing_supervisor.test-unbounded"] == "ready"
                    && checks["artifact_processing_supervisor.memory"] == "ready",
                "{ready:?}"
            );
            let whole = if state == "ready" { "ready" } else { "degraded" };
            ensure!(ready.body["status"] == whole, "{ready:?}");
            Ok(Some(()))
        })
        .await
    };
    checked("unavailable").await?;
    stage.capture_many(UNBOUNDED, "s", 3).await?;
    stage.rests(UNBOUNDED).await?;
    ensure!(stage.items(BOUNDED, "1 = 1").await? == 0, "nothing of it was admitted");
    checked("unavailable").await?;
    stage.say(BOUNDED, "discovery", "")?;
    stage.rests(BOUNDED).await?;
    checked("ready").await?;
    stage.holds().await?;
    process.stop().await
}
