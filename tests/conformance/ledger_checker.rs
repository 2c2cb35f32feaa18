//! The checker itself: it accepts a ledger in every state of its life and sees each of these broken rows.

use powercontext::ledger::Ended;
use powercontext_core::work::Outcome;
use powercontext_tests::db::TestDb;

use crate::ledger_kit::{Kit, claim_one, waits};

/// One broken row each, with what the checker must say of it.
const BROKEN: [(&str, &str); 17] = [
    (
        "update pc_work_lanes set head_sequence = null where head_sequence = 1",
        "head None",
    ),
    (
        "update pc_work_lanes set head_sequence = 2 where head_sequence = 1",
        "head Some(2)",
    ),
    (
        "update pc_work_lanes set next_sequence = 9 where next_sequence = 3",
        "places",
    ),
    (
        "update pc_work_items set ready_at = null where status = 'retry_wait'",
        "waiting head",
    ),
    (
        "update pc_work_items set ready_at = 1 where lane_sequence = 2",
        "waiting head",
    ),
    ("delete from pc_work_keys", "key"),
    (
        "update pc_work_keys set work_id = (select work_id from pc_work_items where status = 'running')
         where work_id = (select work_id from pc_work_items where lane_sequence = 2)",
        "newest live item",
    ),
    (
        "insert into pc_work_keys select logical_key, work_id, lane_key, 1 from pc_work_items where status = 'succeeded'",
        "without a live item",
    ),
    ("update pc_work_attempts set attempt_no = 2", "attempts [2]"),
    ("update pc_work_attempts set fence = 5", "fences [5]"),
    (
        "update pc_work_attempts set outcome = 'released', finished_at = 1 where outcome is null",
        "open attempts",
    ),
    (
        "update pc_work_attempts set outcome = null, finished_at = null where outcome = 'released'",
        "open attempts",
    ),
    (
        "update pc_work_attempts set outcome = 'failed' where outcome = 'succeeded'",
        "0 successes",
    ),
    ("update pc_work_items set generation_attempt_count = 4", "budget"),
    (
        "update pc_artifact_processing_intents set handled_generation = requested_generation",
        "live true",
    ),
    (
        "update pc_artifact_processing_intents set requested_generation = requested_generation + 1",
        "live false",
    ),
    (
        "update pc_artifact_processing_intents set clean_generation = dirty_generation",
        "clean with cursor 0",
    ),
];

async fn every_state(kit: &Kit) -> anyhow::Result<()> {
    let (_, finished) = kit.running("finished").await?;
    assert_eq!(kit.finish(&kit.a, &finished).await?, Ended::Succeeded);
    let (_, released) = kit.running("released").await?;
    assert!(waits(kit.a.release(&released).await?, Outcome::Released));
    let busy = kit.scope_with_source("busy").await?;
    kit.accepted(&busy).await?;
    let mut raw = kit.raw().await?;
    // The released item must not be claimed again.
    let later = raw.ago(-100);
    let waiting =
        format!("update pc_work_items set available_at = {later}, ready_at = {later} where status = 'retry_wait'");
    raw.execute(&waiting).await?;
    claim_one(&kit.a).await?;
    kit.capture(&busy).await?;
    kit.accepted(&busy).await?;
    kit.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_accepts_a_ledger_and_sees_each_broken_row() -> anyhow::Result<()> {
    for (sql, what) in BROKEN {
        let kit = Kit::new(TestDb::sqlite().await?);
        every_state(&kit).await?;
        assert!(kit.raw().await?.execute(sql).await? > 0, "it breaks nothing: {sql}");
        let told = kit
            .check()
            .await
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(told.contains(what), "after {sql}\nthe checker says {told:?}");
    }
    Ok(())
}
