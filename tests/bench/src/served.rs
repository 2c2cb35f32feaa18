//! The server process on SQLite, over HTTP: captures, flushes, searches, the start, and memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use powercontext::families::memory::commit;
use powercontext::rt;
use powercontext::store::TxName;
use powercontext_core::ids::ScopeId;
use powercontext_core::memory::plan::{Candidate, plan_candidates};
use powercontext_core::memory::{EntryContent, EntryKind, EntryText, MemoryWrite};
use serde_json::json;

use crate::Size;
use crate::figure::{Figure, Table, Target, median, percentile};
use crate::machine::{Disk, rate, resident_mb};
use crate::noop::Rig;
use crate::server::{Model, Server};
use crate::wire::Connection;

const CAPTURERS: usize = 32;
const SEARCHERS: usize = 8;
/// Sources of one flush.
const WINDOW: usize = 20;
/// Scopes that captures are spread over.
const SCOPES: usize = 100;
/// How long a server rests before its idle memory is read.
const REST: Duration = Duration::from_millis(500);
const SEARCHED: &str = "bench/searched";

const START: Figure = Figure {
    name: "served: start to ready, existing database",
    unit: "ms",
    target: Target::AtMost(300.0),
};
const FIRST_START: Figure = Figure {
    name: "served: start to ready, new database",
    unit: "ms",
    target: Target::AtMost(300.0),
};
const IDLE: Figure = Figure {
    name: "served: resident memory, idle",
    unit: "MB",
    target: Target::AtMost(40.0),
};
const CAPTURE: Figure = Figure {
    name: "served: capture of 1 KiB, 32 connections",
    unit: "/s",
    target: Target::AtLeast(3_000.0),
};
const FLUSH: Figure = Figure {
    name: "served: flush of 20 sources, model delay 0, p50",
    unit: "ms",
    target: Target::AtMost(30.0),
};
const SEARCH: Figure = Figure {
    name: "served: search of 10,000 entries, 8 connections, p99",
    unit: "ms",
    target: Target::AtMost(20.0),
};
const LOADED: Figure = Figure {
    name: "served: resident memory after 100,000 captures",
    unit: "MB",
    target: Target::AtMost(120.0),
};

/// Measures the section.
pub(crate) async fn measure(table: &mut Table, folder: &Path, size: Size) -> anyhow::Result<()> {
    let mut disk = Disk::new(folder, size.raw_ms).await?;
    let model = Model::start(Duration::ZERO).await?;
    let searched = folder.join("searched.db");
    remember(&searched, size.entries).await?;
    for round in 0..size.rounds {
        let file = folder.join(format!("{}.db", rt::hex_id()));
        starts(table, &mut disk, folder, &file, &model, size).await?;
        let server = Server::start(folder, &file, &model).await?;
        rt::sleep(REST).await;
        table.add(IDLE, resident_mb(server.pid()?)?, disk.raw().await?);

        let raw = disk.raw().await?;
        let took = capture(&server, size.captures, &format!("r{round}")).await?;
        table.add(CAPTURE, rate(size.captures, took), raw);

        let raw = disk.raw().await?;
        table.add(FLUSH, flushes(&server, size.flushes).await?, raw);
        // Memory takes many captures to settle; one round is enough.
        if round == 0 {
            let captures = size.captures_for_memory.saturating_sub(size.captures);
            capture(&server, captures, "memory").await?;
            table.add(LOADED, resident_mb(server.pid()?)?, disk.raw().await?);
        }
        server.stop().await?;

        let server = Server::start(folder, &searched, &model).await?;
        let raw = disk.raw().await?;
        table.add(SEARCH, searches(&server, size).await?, raw);
        server.stop().await?;
    }
    Ok(())
}

async fn starts(
    table: &mut Table,
    disk: &mut Disk,
    folder: &Path,
    file: &Path,
    model: &Model,
    size: Size,
) -> anyhow::Result<()> {
    let raw = disk.raw().await?;
    let server = Server::start(folder, file, model).await?;
    table.add(FIRST_START, millis(server.ready_after), raw);
    server.stop().await?;
    for _ in 0..size.starts {
        let raw = disk.raw().await?;
        let server = Server::start(folder, file, model).await?;
        table.add(START, millis(server.ready_after), raw);
        server.stop().await?;
    }
    Ok(())
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

/// Captures sources of 1 KiB over all connections; answers how long that took.
async fn capture(server: &Server, count: usize, name: &str) -> anyhow::Result<Duration> {
    let connections = server.connections(CAPTURERS).await?;
    let content = "x".repeat(1024);
    let start = rt::now();
    let capturers = connections.into_iter().enumerate().map(|(first, mut connection)| {
        let (content, name) = (content.clone(), name.to_owned());
        rt::spawn(async move {
            for n in (first..count).step_by(CAPTURERS) {
                let scope = format!("bench/capture/{name}/{}", n % SCOPES);
                let body = json!({"scope_id": scope, "source_id": n.to_string(), "content": content});
                connection.post("/v1/sources/content", &body).await?.json(202)?;
            }
            anyhow::Ok(())
        })
    });
    for ended in try_join_all(capturers).await? {
        ended?;
    }
    Ok(start.elapsed())
}

/// Flushes windows of 20 sources one after the other; answers the median from the request to its result.
async fn flushes(server: &Server, count: usize) -> anyhow::Result<f64> {
    let mut connection = Connection::open(server.address).await?;
    let mut took = Vec::with_capacity(count);
    for flush in 0..count {
        let scope = format!("bench/flush/{}/{flush}", server.address.port());
        for n in 0..WINDOW {
            let content = format!("user: I prefer lamp number {n} in room {flush}.");
            let body = json!({"scope_id": scope, "source_id": n.to_string(), "content": content});
            connection.post("/v1/sources/content", &body).await?.json(202)?;
        }
        let start = rt::now();
        let answer = connection.post("/v1/memory/flush", &json!({"scope_id": scope})).await?;
        took.push(millis(start.elapsed()));
        let answer = answer.json(200)?;
        ensure!(answer["status"] == "processed", "a flush that did nothing: {answer}");
    }
    Ok(median(took.into_iter()))
}

/// Searches of two words over all connections; answers the 99th percentile.
async fn searches(server: &Server, size: Size) -> anyhow::Result<f64> {
    let connections = server.connections(SEARCHERS).await?;
    let searchers = connections.into_iter().enumerate().map(|(first, mut connection)| {
        rt::spawn(async move {
            let mut took = Vec::new();
            for n in (first..size.searches).step_by(SEARCHERS) {
                let (topic, word) = (n % TOPICS, n * 7 % WORDS);
                let query = format!("topic{topic} word{word}");
                let body = json!({"scope_id": SEARCHED, "query": query, "limit": 10});
                let start = rt::now();
                let answer = connection.post("/v1/memory/search", &body).await?;
                took.push(millis(start.elapsed()));
                let answer = answer.json(200)?;
                ensure!(answer["hits"][0].is_object(), "nothing was found: {answer}");
            }
            anyhow::Ok(took)
        })
    });
    let mut took = Vec::new();
    for ended in try_join_all(searchers).await? {
        took.extend(ended?);
    }
    Ok(percentile(took.into_iter(), 99))
}

/// Words that entries are made of: a topic names one entry in a hundred, a word one in about 150, and every entry shares
/// ten common words.
const TOPICS: usize = 100;
const WORDS: usize = 1_000;

/// Makes a Memory of so many entries by the product's own plan and write.
async fn remember(file: &Path, entries: usize) -> anyhow::Result<()> {
    let rig = Rig::open(&file.display().to_string(), 2).await?;
    let candidates = (0..entries).map(|n| {
        let words: Vec<String> = (1..8).map(|k| format!("word{}", n * 13 * k % WORDS)).collect();
        let text = format!(
            "the user said that the team will use topic{} with {} and noted it for entry{n} of the plan",
            n % TOPICS,
            words.join(" ")
        );
        let content = EntryContent::new(
            EntryKind::parse("fact")?,
            EntryText::parse(text)?,
            Vec::new(),
            Vec::new(),
        )?;
        anyhow::Ok(Candidate {
            revises: None,
            content,
            reason: None,
        })
    });
    let candidates = candidates.collect::<Result<Vec<_>, _>>()?;
    let write = MemoryWrite {
        scope: ScopeId::parse(SEARCHED)?,
        cursor: None,
        plan: plan_candidates(None, candidates, Vec::new(), &mut rt::random_bits)?,
    };
    let (db, write) = (rig.ledger.db(), Arc::new(write));
    let written = db.tx_with(TxName::Edit, &write, |tx, write| Box::pin(commit::apply(tx, write)));
    ensure!(written.await?.revision.is_some(), "no Memory was made");
    rig.close().await;
    Ok(())
}
