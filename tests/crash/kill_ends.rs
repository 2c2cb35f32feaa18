//! `kill -9` while an attempt ends otherwise than well, while a successor recovers, and while an operator acts.

use anyhow::ensure;
use powercontext::dev::model::Fail;
use powercontext::rt;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush, settled};
use powercontext_tests::wait::until;

use crate::story::{SCOPE, SOURCES, Story};

powercontext_tests::on_both_databases! {
    killed_while_a_failure_is_recorded_the_attempt_has_one_end,
    killed_while_a_run_is_given_back_the_attempt_has_one_end,
    killed_while_it_recovers_a_successor_recovers_once,
    a_cancel_that_was_not_acknowledged_happens_at_most_once,
    a_retry_that_was_not_acknowledged_happens_at_most_once,
}

const RECOVERED: &str = "lease_expired_retry";

async fn killed_while_a_failure_is_recorded_the_attempt_has_one_end(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    story.provider.fail(Fail::ServerError).await?;
    let operation = story.killed_at("fail.before_commit").await?;
    // The successor meets the same failure, and is killed right after it has recorded that.
    let server = story.setup.clone().stopping_at("fail.after_commit").start().await?;
    server.reached("fail.after_commit").await?;
    server.kill().await?;
    story.provider.answer();
    // What waited was due at once, so the kill may have met the next run as well.
    let ends = [RECOVERED, "retry_wait", RECOVERED, "succeeded"];
    let either = [&ends[..], &[ends[0], ends[1], ends[3]]];
    story.recovered_either(&operation, &either).await?.stop().await
}

async fn killed_while_a_run_is_given_back_the_attempt_has_one_end(database: Database) -> anyhow::Result<()> {
    let mut story = Story::new(database).await?;
    story.setup = story.setup.with("WORKER_SHUTDOWN_GRACE_SECONDS", "0");
    story.provider.hold();
    let mut operation = String::new();
    for point in ["release.before_commit", "release.after_commit"] {
        let server = story.setup.clone().stopping_at(point).start().await?;
        capture(&server.client, SCOPE, SOURCES).await?;
        operation = flush(&server.client, SCOPE).await?;
        story.provider.in_flight(1, SOON).await?;
        server.terminate()?;
        server.reached(point).await?;
        server.kill().await?;
        story.provider.in_flight(0, SOON).await?;
    }
    story.provider.answer();
    story
        .recovered(&operation, &[RECOVERED, "released", "succeeded"])
        .await?
        .stop()
        .await
}

async fn killed_while_it_recovers_a_successor_recovers_once(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let operation = story.killed_at("finish.before_commit").await?;
    for point in ["recover.before_commit", "recover.after_commit"] {
        lease_is_over(&story, &operation).await?;
        // It stops before it listens.
        let server = story.setup.clone().stopping_at(point).spawn().await?;
        server.reached(point).await?;
        server.kill().await?;
    }
    story
        .recovered(&operation, &[RECOVERED, "succeeded"])
        .await?
        .stop()
        .await
}

/// Waits until the lease of a killed run is over, so that the next start finds it to recover.
async fn lease_is_over(story: &Story, operation: &str) -> anyhow::Result<()> {
    if story.database.is_sqlite() {
        return Ok(());
    }
    let sql = format!(
        "select count(*) from pc_work_items where work_id = '{operation}' and lease_expires_at <= utc_timestamp(6)"
    );
    until("the lease is over", SOON, async || {
        Ok((facts::number(&story.database, &sql).await? == 1).then_some(()))
    })
    .await
}

async fn a_cancel_that_was_not_acknowledged_happens_at_most_once(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    for (scope, point, status) in [
        ("kept", "cancel.before_commit", "succeeded"),
        ("cancelled", "cancel.after_commit", "cancelled"),
    ] {
        let server = story.setup.clone().stopping_at(point).start().await?;
        capture(&server.client, scope, SOURCES).await?;
        story.provider.hold();
        let operation = flush(&server.client, scope).await?;
        story.provider.in_flight(1, SOON).await?;
        let (client, id) = (server.client.clone(), operation.clone());
        let acting = rt::spawn(async move { client.act(&id, "cancel").await });
        server.reached(point).await?;
        server.kill().await?;
        ensure!(acting.await?.is_err(), "an answer from a killed server");
        story.provider.answer();

        let server = story.setup.start().await?;
        server.client.operation_is(&operation, status, SOON).await?;
        let outcomes = facts::outcomes(&story.database, &operation).await?;
        if status == "cancelled" {
            ensure!(outcomes == ["cancelled"], "{outcomes:?}");
            // What was pending is still pending, for whoever asks next.
            server.client.flush(scope, "wait=25").await?.expect(200)?;
            ensure!(facts::revisions(&story.database, scope).await? == 1, "one revision");
            facts::hold(&story.database).await?;
        } else {
            ensure!(outcomes == [RECOVERED, "succeeded"], "{outcomes:?}");
            settled(&story.database, &server.client, scope, i64::from(SOURCES)).await?;
        }
        server.stop().await?;
    }
    Ok(())
}

async fn a_retry_that_was_not_acknowledged_happens_at_most_once(database: Database) -> anyhow::Result<()> {
    let mut story = Story::new(database).await?;
    story.setup = story.setup.with("WORKER_MAX_ATTEMPTS", "2");
    for point in ["retry.before_commit", "retry.after_commit"] {
        let server = story.setup.clone().stopping_at(point).start().await?;
        story.provider.fail(Fail::Empty).await?;
        capture(&server.client, point, SOURCES).await?;
        let operation = server
            .client
            .flush(point, "wait=25")
            .await?
            .expect(409)?
            .operation_id()?;
        story.provider.answer();
        let (client, id) = (server.client.clone(), operation.clone());
        let acting = rt::spawn(async move { client.act(&id, "retry").await });
        server.reached(point).await?;
        server.kill().await?;
        ensure!(acting.await?.is_err(), "an answer from a killed server");

        let server = story.setup.start().await?;
        if point == "retry.before_commit" {
            let failed = server.client.operation(&operation).await?;
            ensure!(failed["status"] == "failed", "{failed}");
            server.client.act(&operation, "retry").await?.expect(200)?;
        }
        server.client.operation_is(&operation, "succeeded", SOON).await?;
        let outcomes = facts::outcomes(&story.database, &operation).await?;
        // What was committed is claimed at once, so the kill may have met that run as well.
        let ends = ["retry_wait", "failed", RECOVERED, "succeeded"];
        ensure!(
            outcomes == ends || outcomes == [ends[0], ends[1], ends[3]],
            "{outcomes:?}"
        );
        let retries = format!("select recovery_generation from pc_work_items where work_id = '{operation}'");
        ensure!(
            facts::number(&story.database, &retries).await? == 1,
            "it was retried once"
        );
        settled(&story.database, &server.client, point, i64::from(SOURCES)).await?;
        server.stop().await?;
    }
    Ok(())
}
