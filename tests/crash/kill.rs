//! `kill -9` at every point where a transaction is about to commit or has just committed, and in the middle of the
//! model's answer.

use anyhow::ensure;
use powercontext::rt;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush, flush_all, settled};

use crate::story::{SCOPE, SOURCES, Story};

powercontext_tests::on_both_databases! {
    killed_before_the_claim_the_item_runs_after_the_restart,
    killed_after_the_claim_the_item_is_recovered,
    killed_during_the_call_of_the_model_the_item_is_recovered,
    killed_inside_the_final_transaction_nothing_of_it_stays,
    killed_after_the_final_commit_and_before_the_reply_nothing_runs_again,
    killed_while_another_item_waits_both_end_once,
    a_capture_that_was_not_acknowledged_exists_at_most_once,
    a_flush_that_was_not_acknowledged_exists_at_most_once,
    nothing_acknowledged_is_lost_over_many_kills,
}

/// A server that stops at the point in the first claim after a capture. One that has nothing to do claims nothing, again
/// and again, and passes.
async fn killed_at_a_claim(story: &Story, point: &str) -> anyhow::Result<String> {
    let armed = story.database.beside("armed");
    let server = story.setup.clone().stopping_at(&format!("{point}@{}", armed.display()));
    let server = server.start().await?;
    capture(&server.client, SCOPE, SOURCES).await?;
    std::fs::write(&armed, "")?;
    let operation = flush(&server.client, SCOPE).await?;
    server.reached(point).await?;
    server.kill().await?;
    Ok(operation)
}

async fn killed_before_the_claim_the_item_runs_after_the_restart(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let operation = killed_at_a_claim(&story, "claim.before_commit").await?;
    story.recovered(&operation, &["succeeded"]).await?.stop().await
}

async fn killed_after_the_claim_the_item_is_recovered(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let operation = killed_at_a_claim(&story, "claim.after_commit").await?;
    // On OceanBase the point may be met by a claim that came just before the flush and found nothing.
    let outcomes = match facts::outcomes(&story.database, &operation).await?[..] {
        [] if !story.database.is_sqlite() => &["succeeded"][..],
        _ => &["lease_expired_retry", "succeeded"][..],
    };
    story.recovered(&operation, outcomes).await?.stop().await
}

async fn killed_during_the_call_of_the_model_the_item_is_recovered(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    story.provider.hold();
    let server = story.setup.start().await?;
    capture(&server.client, SCOPE, SOURCES).await?;
    let operation = flush(&server.client, SCOPE).await?;
    story.provider.in_flight(1, SOON).await?;
    server.kill().await?;
    story.provider.answer();
    let outcomes = ["lease_expired_retry", "succeeded"];
    story.recovered(&operation, &outcomes).await?.stop().await?;
    ensure!(
        story.provider.asked() == 2,
        "the model was asked {} times",
        story.provider.asked()
    );
    Ok(())
}

async fn killed_inside_the_final_transaction_nothing_of_it_stays(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let operation = story.killed_at("finish.before_commit").await?;
    ensure!(
        facts::revisions(&story.database, SCOPE).await? == 0,
        "nothing was committed"
    );
    let outcomes = ["lease_expired_retry", "succeeded"];
    story.recovered(&operation, &outcomes).await?.stop().await
}

async fn killed_after_the_final_commit_and_before_the_reply_nothing_runs_again(
    database: Database,
) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    // Nobody looks at the rows for the one who waits: only the run itself could tell, and it does not come to that.
    let server = story.setup.clone().with("OPERATIONS_POLL_SECONDS", "30");
    let server = server.stopping_at("finish.after_commit").start().await?;
    capture(&server.client, SCOPE, SOURCES).await?;
    // The client waits for the end and never hears of it.
    let client = server.client.clone();
    let waiting = rt::spawn(async move { client.flush(SCOPE, "wait=25").await });
    server.reached("finish.after_commit").await?;
    server.kill().await?;
    let told = waiting.await?;
    ensure!(told.is_err(), "an answer from a killed server: {told:?}");
    ensure!(
        facts::revisions(&story.database, SCOPE).await? == 1,
        "the commit happened"
    );

    let server = story.setup.start().await?;
    let operations = server.client.operations(SCOPE).await?;
    let operation = operations[0]["operation_id"].as_str().unwrap_or_default().to_owned();
    server.stop().await?;
    story.recovered(&operation, &["succeeded"]).await?.stop().await?;
    ensure!(
        story.provider.asked() == 1,
        "the model was asked {} times",
        story.provider.asked()
    );
    Ok(())
}

async fn killed_while_another_item_waits_both_end_once(database: Database) -> anyhow::Result<()> {
    let mut story = Story::new(database).await?;
    story.setup = story
        .setup
        .with("WORKER_CONCURRENCY", "1")
        .with("RUNTIME_MEMORY_MAX_WORKERS", "1");
    story.provider.hold();
    let server = story.setup.start().await?;
    for scope in [SCOPE, "garden"] {
        capture(&server.client, scope, SOURCES).await?;
    }
    let running = flush(&server.client, SCOPE).await?;
    story.provider.in_flight(1, SOON).await?;
    let waiting = flush(&server.client, "garden").await?;
    server.kill().await?;
    story.provider.answer();
    let server = story.recovered(&running, &["lease_expired_retry", "succeeded"]).await?;
    server.client.operation_is(&waiting, "succeeded", SOON).await?;
    ensure!(
        facts::outcomes(&story.database, &waiting).await? == ["succeeded"],
        "it had not begun"
    );
    settled(&story.database, &server.client, "garden", i64::from(SOURCES)).await?;
    server.stop().await
}

async fn a_capture_that_was_not_acknowledged_exists_at_most_once(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    for (point, exists) in [("capture.before_commit", false), ("capture.after_commit", true)] {
        let armed = story.database.beside(point);
        let server = story.setup.clone().stopping_at(&format!("{point}@{}", armed.display()));
        let server = server.start().await?;
        capture(&server.client, point, SOURCES).await?;
        std::fs::write(&armed, "")?;
        let client = server.client.clone();
        let sending = rt::spawn(async move { client.capture(point, "last", "user: I like tea.").await });
        server.reached(point).await?;
        server.kill().await?;
        ensure!(sending.await?.is_err(), "an answer from a killed server");

        let mut sources: Vec<String> = (1..=SOURCES).map(|n| format!("s{n}")).collect();
        sources.extend(exists.then(|| "last".to_owned()));
        ensure!(
            facts::sources(&story.database, point).await? == sources,
            "what was acknowledged, {point}"
        );

        // The client tries again, and once more: one source, one place.
        let server = story.setup.start().await?;
        for _ in 0..2 {
            let again = server
                .client
                .capture(point, "last", "user: I like tea.")
                .await?
                .expect(202)?;
            ensure!(again.body["position"] == SOURCES + 1, "{again:?}");
        }
        let flushed = server.client.flush(point, "wait=25").await?.expect(200)?;
        ensure!(flushed.body["processed_source_count"] == SOURCES + 1, "{flushed:?}");
        settled(&story.database, &server.client, point, i64::from(SOURCES) + 1).await?;
        server.stop().await?;
    }
    Ok(())
}

async fn a_flush_that_was_not_acknowledged_exists_at_most_once(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    for (point, operations) in [("flush.before_commit", 0), ("flush.after_commit", 1)] {
        let server = story.setup.clone().stopping_at(point).start().await?;
        capture(&server.client, point, SOURCES).await?;
        let client = server.client.clone();
        let sending = rt::spawn(async move { client.flush(point, "respond-async").await });
        server.reached(point).await?;
        server.kill().await?;
        ensure!(sending.await?.is_err(), "an answer from a killed server");

        let server = story.setup.start().await?;
        let found = server.client.operations(point).await?;
        ensure!(found.len() == operations, "{point}: {found:?}");
        // One that exists runs without being asked for again; the client that asks again gets no second one.
        if let [operation] = &found[..] {
            let id = operation["operation_id"].as_str().unwrap_or_default();
            server.client.operation_is(id, "succeeded", SOON).await?;
        } else {
            server.client.flush(point, "wait=25").await?.expect(200)?;
        }
        settled(&story.database, &server.client, point, i64::from(SOURCES)).await?;
        server.stop().await?;
    }
    Ok(())
}

/// Kills at moments that nobody chose, while sources arrive and flushes run.
async fn nothing_acknowledged_is_lost_over_many_kills(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    // A restart on OceanBase waits for the lease of its predecessor.
    let kills = if story.database.is_sqlite() { 12 } else { 4 };
    let mut acknowledged = Vec::new();
    for round in 0..kills {
        let server = story.setup.start().await?;
        let client = server.client.clone();
        let writing = rt::spawn(async move {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                let id = format!("r{round}-{n}");
                match client.capture(SCOPE, &id, "user: I prefer oak doors.").await {
                    Ok(answer) if answer.status == 202 => acknowledged.push(id),
                    Ok(_) => {}
                    Err(_) => break,
                }
                if n % 5 == 0 && client.flush(SCOPE, "respond-async").await.is_err() {
                    break;
                }
            }
            acknowledged
        });
        rt::sleep(std::time::Duration::from_millis(u64::from(rt::random() % 400))).await;
        server.kill().await?;
        acknowledged.extend(writing.await?);
    }
    let server = story.setup.start().await?;
    let stored = facts::sources(&story.database, SCOPE).await?;
    for id in &acknowledged {
        ensure!(stored.contains(id), "{id} was acknowledged and is lost");
    }
    flush_all(&server.client, SCOPE).await?;
    let (cursor, head) = facts::cursor_and_head(&story.database, SCOPE).await?;
    ensure!(
        cursor == head && head == i64::try_from(stored.len())?,
        "cursor {cursor}, head {head}"
    );
    facts::hold(&story.database).await?;
    server.stop().await
}
