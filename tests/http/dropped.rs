//! Clients that go away in the middle of their request: whatever was acknowledged to anybody else stays.

use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::flush_all;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{Server, Setup};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const SCOPE: &str = "house";
/// Requests that are dropped, in all.
const DROPPED: usize = 200;
/// Clients that drop theirs at the same time: more than the pool has connections.
const DROPPING: usize = 8;
/// Clients that wait for their answers beside them.
const WAITING: usize = 4;

powercontext_tests::on_both_databases! {
    requests_dropped_in_the_middle_lose_no_acknowledged_write,
}

async fn requests_dropped_in_the_middle_lose_no_acknowledged_write(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = Setup::new(&database, &provider)
        .with("DATABASE_POOL_SIZE", "4")
        .start()
        .await?;
    let dropping: Vec<_> = (0..DROPPING)
        .map(|task| {
            let address = server.address;
            rt::spawn(async move {
                for n in 0..DROPPED / DROPPING {
                    drop_one(address, &format!("dropped{task}-{n}")).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let waiting: Vec<_> = (0..WAITING)
        .map(|task| rt::spawn(acknowledged(server.client.clone(), task)))
        .collect();
    for task in dropping {
        task.await??;
    }
    let mut acknowledged = Vec::new();
    for task in waiting {
        acknowledged.extend(task.await??);
    }
    everything_is_there(&database, &server, &acknowledged).await?;
    server.stop().await
}

/// Sends a capture or a flush and goes away before, while or after it is worked on.
async fn drop_one(address: std::net::SocketAddr, source: &str) -> anyhow::Result<()> {
    let is_flush = rt::random().is_multiple_of(4);
    let (path, body) = if is_flush {
        ("/v1/memory/flush", json!({"scope_id": SCOPE}))
    } else {
        let content = "user: I prefer doors that open.";
        (
            "/v1/sources/content",
            json!({"scope_id": SCOPE, "source_id": source, "content": content}),
        )
    };
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(request.as_bytes()).await?;
    // Not a wait for anything: where the request is cut is left to chance.
    rt::sleep(Duration::from_micros(u64::from(rt::random() % 20_000))).await;
    Ok(())
}

/// Captures one source after the other; answers those that were acknowledged.
async fn acknowledged(client: Client, task: usize) -> anyhow::Result<Vec<String>> {
    let mut acknowledged = Vec::new();
    for n in 0..25 {
        let id = format!("kept{task}-{n}");
        let answer = client.capture(SCOPE, &id, "user: I prefer walls that stand.").await?;
        // A pool of four may be busy; what is refused is not acknowledged.
        ensure!(matches!(answer.status, 202 | 503), "{answer:?}");
        if answer.status == 202 {
            acknowledged.push((id, answer.body["position"].as_u64().context("no position")?));
        }
    }
    ensure!(
        acknowledged.len() > 10,
        "only {} captures were served",
        acknowledged.len()
    );
    let is_growing = acknowledged.windows(2).all(|pair| pair[0].1 < pair[1].1);
    ensure!(is_growing, "positions of one client grow: {acknowledged:?}");
    Ok(acknowledged.into_iter().map(|(id, _)| id).collect())
}

async fn everything_is_there(database: &Database, server: &Server, acknowledged: &[String]) -> anyhow::Result<()> {
    flush_all(&server.client, SCOPE).await?;
    let stored = facts::sources(database, SCOPE).await?;
    for id in acknowledged {
        ensure!(stored.contains(id), "{id} was acknowledged and is lost");
    }
    let (cursor, head) = facts::cursor_and_head(database, SCOPE).await?;
    ensure!(
        cursor == head && usize::try_from(head)? == stored.len(),
        "cursor {cursor}, head {head}"
    );
    let log = server.log();
    ensure!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    facts::hold(database).await
}
