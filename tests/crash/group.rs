//! SQLite commits in groups (ADR 0018): a kill in the middle of one takes all of it that was not committed, and nothing that
//! was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::ensure;
use futures_util::future::join_all;
use powercontext::rt;
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::SOON;
use powercontext_tests::wait::until;

use crate::story::Story;

/// Clients that capture at once, each in a scope of its own.
const CLIENTS: usize = 24;
/// Acknowledged captures before the server is stopped.
const ACKNOWLEDGED_MIN: u32 = 200;

/// Captures until the server does not answer any more; answers how many captures it acknowledged.
async fn capture_until_the_end(client: Client, scope: String, first: usize, all: Arc<AtomicU32>) -> usize {
    for n in first.. {
        let answer = client.capture(&scope, &format!("s{n}"), "user: I like trains.").await;
        if !answer.is_ok_and(|answer| answer.status == 202) {
            return n - first;
        }
        all.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the server is killed")
}

/// Nothing of a scope is half there: source, place in the journal and mark of the family come together.
async fn whole(database: &Database, scope: &str) -> anyhow::Result<usize> {
    let sources = facts::sources(database, scope).await?;
    for (n, source) in sources.iter().enumerate() {
        ensure!(*source == format!("s{n}"), "{source} at place {n} of {scope}");
    }
    for sql in [
        format!("select position from pc_source_journal_heads where scope_id = '{scope}'"),
        format!(
            "select dirty_generation from pc_artifact_processing_intents
             where scope_id = '{scope}' and binding_name = '{}'",
            facts::BINDING
        ),
    ] {
        let counted = facts::number(database, &sql).await?;
        ensure!(
            counted == i64::try_from(sources.len())?,
            "{counted} of {} sources in {scope}",
            sources.len()
        );
    }
    Ok(sources.len())
}

async fn killed_at(point: &str) -> anyhow::Result<()> {
    let story = Story::new(Database::sqlite().await?).await?;
    let mut there = [0; CLIENTS];
    for round in 0..3 {
        let armed = story.database.beside(&format!("armed-{round}"));
        let setup = story.setup.clone().stopping_at(&format!("{point}@{}", armed.display()));
        let server = setup.start().await?;
        let all = Arc::<AtomicU32>::default();
        let clients = there.iter().enumerate().map(|(n, first)| {
            let (client, scope, all) = (server.client.clone(), format!("scope{n}"), Arc::clone(&all));
            rt::spawn(capture_until_the_end(client, scope, *first, all))
        });
        let clients: Vec<_> = clients.collect();
        until("captures are acknowledged", SOON, async || {
            Ok((all.load(Ordering::Relaxed) >= ACKNOWLEDGED_MIN).then_some(()))
        })
        .await?;
        std::fs::write(&armed, "")?;
        server.reached(point).await?;
        server.kill().await?;
        for (n, acknowledged) in join_all(clients).await.into_iter().enumerate() {
            let (acknowledged, stored) = (acknowledged?, whole(&story.database, &format!("scope{n}")).await?);
            let expected = there[n] + acknowledged;
            ensure!(
                stored == expected || stored == expected + 1,
                "{expected} captures of scope{n} were acknowledged and {stored} are there"
            );
            there[n] = stored;
        }
    }
    facts::hold(&story.database).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_inside_a_group_what_was_acknowledged_is_there_and_nothing_is_half() -> anyhow::Result<()> {
    killed_at("capture.before_commit").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_the_commit_of_a_group_and_its_answers_each_exists_once() -> anyhow::Result<()> {
    killed_at("capture.after_commit").await
}
