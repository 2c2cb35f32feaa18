//! A collector that is away, slow or absent, and a process that has nothing to do.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::collector::Collector;
use powercontext_tests::database::Database;
use powercontext_tests::kit::capture;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{Server, Setup};
use powercontext_tests::wait::until;

powercontext_tests::on_both_databases! {
    a_collector_that_fails_costs_its_spans_and_nothing_else,
    an_idle_process_says_nothing_and_the_last_spans_are_sent_at_its_end,
}

/// How long a process is watched that should say nothing: several polls, heartbeats and batches.
const WATCHED: Duration = Duration::from_secs(3);
/// The bound of the last export, and what a server takes to end besides.
const ENDED_WITHIN: Duration = Duration::from_secs(8);

async fn server(database: &Database, provider: &Provider, endpoint: &str) -> anyhow::Result<Server> {
    let setup = Setup::new(database, provider).with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    setup.start().await
}

async fn a_collector_that_fails_costs_its_spans_and_nothing_else(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let (hanging, refusing) = (Collector::hanging().await?, Collector::refusing().await?);
    // Nothing listens on the discard port of this machine.
    for (n, endpoint) in [hanging.endpoint(), refusing.endpoint(), "http://127.0.0.1:9".to_owned()]
        .iter()
        .enumerate()
    {
        let mut server = server(&database, &provider, endpoint).await?;
        for m in 0..3 {
            let scope = format!("house {n} {m}");
            capture(&server.client, &scope, 1).await?;
            let flushed = server.client.flush(&scope, "wait=25").await?.expect(200)?;
            ensure!(flushed.body["status"] == "processed", "{flushed:?}");
        }
        server.terminate()?;
        let status = server.ended(ENDED_WITHIN).await?;
        ensure!(status.success(), "{endpoint}: {status}\n{}", server.log());
        let log = server.log();
        ensure!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        let told = ["does not take them", "were not sent in time"];
        ensure!(told.iter().any(|text| log.contains(text)), "{endpoint}: {log}");
    }
    ensure!(hanging.requests() > 0 && refusing.requests() > 0, "nobody was asked");
    Ok(())
}

async fn an_idle_process_says_nothing_and_the_last_spans_are_sent_at_its_end(database: Database) -> anyhow::Result<()> {
    let (provider, collector) = (Provider::start().await?, Collector::start().await?);
    let server = server(&database, &provider, &collector.endpoint()).await?;
    // For as long as the silence lasts that is looked for.
    rt::sleep(WATCHED).await;
    ensure!(collector.requests() == 0, "{:?}", collector.spans());
    capture(&server.client, "house", 1).await?;
    server.client.flush("house", "wait=25").await?.expect(200)?;
    server.stop().await?;
    for (name, count) in [
        ("work.enqueue", 1),
        ("work.claim", 1),
        ("work.execute", 1),
        ("work.commit", 1),
    ] {
        ensure!(collector.named(name).len() == count, "{name}: {:?}", collector.spans());
    }
    Ok(())
}

/// How often each thread that runs statements on the file has been woken, as the kernel counts it. Every statement wakes one.
fn wakes(server: &Server) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut wakes = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{}/task", server.pid()?))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::trim).with_context(|| format!("no {name} in {status}"))
        };
        if field("Name:")?.starts_with("sqlite") {
            let count = field("voluntary_ctxt_switches:")?.parse()?;
            wakes.insert(field("Pid:")?.to_owned(), count);
        }
    }
    ensure!(wakes.len() > 1, "one thread writes and some read: {wakes:?}");
    Ok(wakes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_on_sqlite_runs_no_statement_for_a_minute() -> anyhow::Result<()> {
    const IDLE: Duration = Duration::from_mins(1);
    let (database, provider) = (Database::sqlite().await?, Provider::start().await?);
    let server = Setup::new(&database, &provider).start().await?;
    capture(&server.client, "house", 1).await?;
    server.client.flush("house", "wait=25").await?.expect(200)?;
    // What the start and the run leave behind is over once nothing has happened for a while.
    let mut last = BTreeMap::new();
    until("it comes to rest", Duration::from_secs(30), async || {
        let before = std::mem::replace(&mut last, wakes(&server)?);
        rt::sleep(WATCHED).await;
        Ok((before == last).then_some(()))
    })
    .await?;
    let before = wakes(&server)?;
    // For as long as the silence lasts that is looked for.
    rt::sleep(IDLE).await;
    ensure!(
        wakes(&server)? == before,
        "{before:?}, a minute later {:?}",
        wakes(&server)?
    );
    server.client.operations("house").await?;
    ensure!(wakes(&server)? != before, "the count does not count");
    server.stop().await
}
