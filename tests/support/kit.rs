//! What the cases of the process suites share: sources that are captured, a flush that is not waited for, and the end that every
//! case must come to.

use std::time::Duration;

use crate::client::Client;
use crate::database::Database;
use crate::facts;
use anyhow::ensure;

/// Longest wait for anything that takes a lease to expire, or a busy machine.
pub const SOON: Duration = Duration::from_secs(30);
/// What a restart on SQLite may take from its start to the end of the work that it found: nothing expires there.
pub const AT_ONCE: Duration = Duration::from_secs(3);

/// Captures so many sources, each of which is acknowledged.
///
/// # Errors
/// When one is not.
pub async fn capture(client: &Client, scope: &str, sources: u32) -> anyhow::Result<()> {
    for n in 1..=sources {
        let content = format!("user: I prefer blue curtain number {n} in the house of {scope}.");
        client.capture(scope, &format!("s{n}"), &content).await?.expect(202)?;
    }
    Ok(())
}

/// Flushes without waiting; answers the operation.
///
/// # Errors
/// When it is not accepted.
pub async fn flush(client: &Client, scope: &str) -> anyhow::Result<String> {
    client.flush(scope, "respond-async").await?.expect(202)?.operation_id()
}

/// Flushes until nothing is left: one flush covers one window.
///
/// # Errors
/// When a flush fails.
pub async fn flush_all(client: &Client, scope: &str) -> anyhow::Result<()> {
    loop {
        let flushed = client.flush(scope, "wait=25").await?.expect(200)?;
        if flushed.body["status"] == "idle" {
            return Ok(());
        }
    }
}

/// The end of every case: the scope's sources became one revision of its Memory, the cursor stands at the head, nothing is
/// left to do, and no rule of the ledger is broken.
///
/// # Errors
/// With what does not hold.
pub async fn settled(database: &Database, client: &Client, scope: &str, sources: i64) -> anyhow::Result<()> {
    let (cursor, head) = facts::cursor_and_head(database, scope).await?;
    ensure!(
        (cursor, head) == (sources, sources),
        "cursor {cursor}, journal head {head}"
    );
    ensure!(
        facts::revisions(database, scope).await? == 1,
        "one revision for one window"
    );
    let entries = client.entries(scope).await?;
    ensure!(
        entries["memory"]["revision"] == 1 && entries["entries"][0].is_object(),
        "{entries}"
    );
    let again = client.flush(scope, "wait=5").await?.expect(200)?;
    ensure!(again.body["status"] == "idle", "{again:?}");
    ensure!(
        client.operations(scope).await?.len() == 1,
        "one operation for one window"
    );
    facts::hold(database).await
}
