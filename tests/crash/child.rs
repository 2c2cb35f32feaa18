//! The processes under a worker: what one of them costs when it dies, hangs or is left behind, and what it is told.

use std::time::Duration;

use anyhow::ensure;
use powercontext_tests::children::{self, Process};
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush, settled};
use powercontext_tests::server::Server;
use powercontext_tests::wait::until;
use rustix::process::Signal;

use crate::story::{SCOPE, SOURCES, Story};

powercontext_tests::on_both_databases! {
    a_killed_child_costs_its_run_one_attempt_and_the_worker_nothing,
    children_end_with_a_worker_that_is_killed,
    a_child_that_does_not_hear_its_end_is_killed_before_its_slot_is_free,
    a_run_beyond_its_time_ends_with_its_child,
    a_spare_that_died_is_replaced,
    nothing_secret_stands_in_the_arguments_or_the_environment_of_a_child,
}

const KEY: &str = "key-that-nobody-may-see-5b1f";

/// A server in the middle of a run.
async fn in_mid_run(story: &Story, setup: &powercontext_tests::server::Setup) -> anyhow::Result<(Server, String)> {
    story.provider.hold();
    let server = setup.start().await?;
    capture(&server.client, SCOPE, SOURCES).await?;
    let operation = flush(&server.client, SCOPE).await?;
    story.provider.in_flight(1, SOON).await?;
    Ok((server, operation))
}

fn all(server: &Server) -> anyhow::Result<Vec<Process>> {
    let children = children::of(server.pid()?)?;
    ensure!(!children.is_empty(), "the worker has no children");
    Ok(children)
}

async fn gone(children: &[Process]) -> anyhow::Result<()> {
    until("the children are gone", Duration::from_secs(5), async || {
        Ok((!children.iter().any(|child| child.lives())).then_some(()))
    })
    .await
}

async fn a_killed_child_costs_its_run_one_attempt_and_the_worker_nothing(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let (server, operation) = in_mid_run(&story, &story.setup).await?;
    for child in all(&server)? {
        child.signal(Signal::KILL)?;
    }
    story.provider.answer();
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&story.database, &operation).await?;
    ensure!(outcomes == ["retry_wait", "succeeded"], "{outcomes:?}");
    let errors = facts::errors(&story.database, &operation).await?;
    ensure!(errors[0].contains("missing_durable_acknowledgement"), "{errors:?}");
    settled(&story.database, &server.client, SCOPE, SOURCES.into()).await?;
    server.stop().await
}

async fn children_end_with_a_worker_that_is_killed(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let (server, _) = in_mid_run(&story, &story.setup).await?;
    let children = all(&server)?;
    ensure!(children.len() >= 2, "one runs and one is spare: {children:?}");
    server.kill().await?;
    gone(&children).await?;
    // The call of the model ended with the child that made it.
    story.provider.in_flight(0, SOON).await
}

async fn a_child_that_does_not_hear_its_end_is_killed_before_its_slot_is_free(
    database: Database,
) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let (server, operation) = in_mid_run(&story, &story.setup).await?;
    let children = all(&server)?;
    for child in &children {
        child.signal(Signal::STOP)?;
    }
    server.client.act(&operation, "cancel").await?.expect(200)?;
    server.client.operation_is(&operation, "cancelled", SOON).await?;
    let left = children.iter().filter(|child| child.lives()).count();
    ensure!(left + 1 == children.len(), "{left} of {} live", children.len());
    story.provider.in_flight(0, SOON).await
}

async fn a_run_beyond_its_time_ends_with_its_child(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let setup = story.setup.clone().with("RUNTIME_MEMORY_WORKER_TIMEOUT_SECONDS", "1");
    let (server, operation) = in_mid_run(&story, &setup).await?;
    until("an attempt ran out of time", SOON, async || {
        let errors = facts::errors(&story.database, &operation).await?;
        Ok(errors
            .iter()
            .any(|error| error.contains("worker_timeout"))
            .then_some(()))
    })
    .await?;
    story.provider.answer();
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    settled(&story.database, &server.client, SCOPE, SOURCES.into()).await?;
    server.stop().await
}

async fn a_spare_that_died_is_replaced(database: Database) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let server = story.setup.start().await?;
    let spares = until("a spare waits", SOON, async || {
        let children = children::of(server.pid()?)?;
        Ok((!children.is_empty()).then_some(children))
    })
    .await?;
    for spare in &spares {
        spare.signal(Signal::KILL)?;
    }
    gone(&spares).await?;
    capture(&server.client, SCOPE, SOURCES).await?;
    let operation = flush(&server.client, SCOPE).await?;
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    let outcomes = facts::outcomes(&story.database, &operation).await?;
    ensure!(outcomes == ["succeeded"], "a spare cost an attempt: {outcomes:?}");
    server.stop().await
}

async fn nothing_secret_stands_in_the_arguments_or_the_environment_of_a_child(
    database: Database,
) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    let setup = story.setup.clone().with_variable("OPENAI_API_KEY", KEY);
    let (server, operation) = in_mid_run(&story, &setup).await?;
    for child in all(&server)? {
        let told = child.arguments_and_environment()?;
        for secret in [KEY, SCOPE, story.database.url(), "POWERCONTEXT"] {
            ensure!(!told.contains(secret), "a child was told {secret:?}: {told:?}");
        }
    }
    story.provider.answer();
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    server.stop().await
}
