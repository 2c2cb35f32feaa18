//! Many connections that do nothing, or next to nothing, and one client that wants an answer; and a limit that is shared by
//! many connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

powercontext_tests::on_both_databases! {
    idle_and_slow_connections_do_not_stop_a_healthy_client,
    exactly_the_quota_is_served_inside_each_window,
}

const IDLE: usize = 512;
const SLOW: usize = 64;
/// What 99 of 100 answers may take.
const P99_MAX: Duration = Duration::from_millis(50);
const REQUESTS: usize = 400;
/// How often it is measured: the machine has other work than this test, and one quiet round shows what the server does.
const ROUNDS: usize = 5;
const LIVE: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: t\r\n\r\n";

/// A request and its answer on an open connection.
async fn live(stream: &mut TcpStream) -> anyhow::Result<()> {
    stream.write_all(LIVE).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"{\"status\":\"ok\"}") {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).await?;
        ensure!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..read]);
    }
    Ok(())
}

/// A client that sends a byte of a request a second, for ever.
async fn slow(server: SocketAddr) -> anyhow::Result<()> {
    loop {
        let mut stream = TcpStream::connect(server).await?;
        for byte in LIVE {
            // The server gives up on it after a while, and it comes back.
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            rt::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn idle_and_slow_connections_do_not_stop_a_healthy_client(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = Setup::new(&database, &provider).start().await?;
    let mut idle = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        // Alive: each has been answered, and waits for its next request.
        let mut stream = TcpStream::connect(server.address).await?;
        live(&mut stream).await?;
        idle.push(stream);
    }
    let mut crowd = JoinSet::new();
    for _ in 0..SLOW {
        crowd.spawn(slow(server.address));
    }
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS {
        rounds.push(p99(server.address).await?);
        if rounds.last().is_some_and(|p99| *p99 <= P99_MAX) {
            break;
        }
    }
    println!("p99 of liveness beside {IDLE} idle and {SLOW} slow connections: {rounds:?}");
    ensure!(rounds.iter().any(|p99| *p99 <= P99_MAX), "{rounds:?}");
    // They were there all the time.
    for stream in &mut idle {
        live(stream).await?;
    }
    crowd.abort_all();
    drop(idle);
    server.stop().await
}

/// Half of the requests on one connection, half each on its own.
async fn p99(server: SocketAddr) -> anyhow::Result<Duration> {
    let mut kept = TcpStream::connect(server).await?;
    let mut took = Vec::with_capacity(REQUESTS);
    for n in 0..REQUESTS {
        let asked = rt::now();
        if n % 2 == 0 {
            live(&mut kept).await?;
        } else {
            live(&mut TcpStream::connect(server).await?).await?;
        }
        took.push(asked.elapsed());
    }
    took.sort_unstable();
    took.get(REQUESTS * 99 / 100).copied().context("no requests")
}

const QUOTA: i64 = 40;
const WINDOW_SECONDS: i64 = 3;
const CONNECTIONS: usize = 8;
/// Windows that are watched, with the edges between them.
const WINDOWS: u32 = 5;

/// The window that it is now, by the clock that this machine and its databases share.
fn window() -> anyhow::Result<i64> {
    let now = rt::wall_clock().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(now.as_secs())? / WINDOW_SECONDS)
}

/// What one connection was told: how often it was served, and in which windows it was refused for sure.
async fn ask(client: Client, over: Instant) -> anyhow::Result<(i64, BTreeSet<i64>)> {
    let (mut served, mut refused) = (0, BTreeSet::new());
    while rt::now() < over {
        let asked = window()?;
        let answer = client.get("/v1/capabilities").await?;
        match answer.status {
            200 => served += 1,
            429 => {
                let wait: i64 = answer.retry_after.context("no Retry-After")?.parse()?;
                ensure!((1..=WINDOW_SECONDS).contains(&wait), "Retry-After is {wait}");
                refused.extend(Some(asked).filter(|asked| window().is_ok_and(|now| now == *asked)));
            }
            status => anyhow::bail!("{status}: {}", answer.text),
        }
    }
    Ok((served, refused))
}

/// Requests that were counted, by window.
async fn counted(database: &Database) -> anyhow::Result<BTreeMap<i64, i64>> {
    let seconds = if database.is_sqlite() {
        "window_started_at / 1000000"
    } else {
        "timestampdiff(second, '1970-01-01', window_started_at)"
    };
    let rows = format!("select {seconds}, request_count from pc_rate_limit_windows");
    let rows = database.raw().await?.rows(&rows).await?;
    rows.iter()
        .map(|row| Ok((row.int(0)? / WINDOW_SECONDS, row.int(1)?)))
        .collect()
}

async fn exactly_the_quota_is_served_inside_each_window(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = Setup::new(&database, &provider)
        .with("RATE_LIMIT_ENABLED", "true")
        .with("RATE_LIMIT_REQUESTS", &QUOTA.to_string())
        .with("RATE_LIMIT_WINDOW_SECONDS", &WINDOW_SECONDS.to_string())
        .start()
        .await?;
    let mut clients = JoinSet::new();
    let over = rt::now() + Duration::from_secs(WINDOW_SECONDS.unsigned_abs()) * WINDOWS;
    for _ in 0..CONNECTIONS {
        // Each has a connection of its own.
        clients.spawn(ask(Client::new(server.address)?, over));
    }
    let (mut accepted, mut refused) = (0, BTreeSet::new());
    for told in clients.join_all().await {
        let (ours, full) = told?;
        accepted += ours;
        refused.extend(full);
    }
    let windows = counted(&database).await?;
    println!("{accepted} served in {windows:?}, refused in {refused:?}");
    ensure!(
        windows.values().sum::<i64>() == accepted,
        "{accepted} were served: {windows:?}"
    );
    ensure!(windows.values().all(|count| *count <= QUOTA), "{windows:?}");
    // Nobody is refused while something is left.
    for window in &refused {
        ensure!(windows.get(window) == Some(&QUOTA), "refused in {window}: {windows:?}");
    }
    let edges = refused
        .iter()
        .filter(|window| refused.contains(&(**window + 1)))
        .count();
    ensure!(
        edges > 0,
        "no two windows in a row were used up: {windows:?}, {refused:?}"
    );
    server.stop().await
}
