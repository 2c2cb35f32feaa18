//! Metrics of a real server: closed labels, and the same numbers as the rows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use powercontext_tests::client::Client;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush};
use powercontext_tests::provider::Provider;
use powercontext_tests::server::Setup;

powercontext_tests::on_both_databases! {
    every_item_is_ended_or_open_in_the_rows_and_in_the_metrics,
    work_and_bad_requests_add_no_series,
}

/// The series of a scrape: name with labels to value.
async fn series(client: &Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let text = client.get("/metrics").await?.expect(200)?.text;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').context("no value")?;
            Ok((series.to_owned(), value.parse()?))
        })
        .collect()
}

/// Sum of the series of a family by one of its labels; those that are zero are left out.
fn by_label(series: &BTreeMap<String, f64>, family: &str, labels: &[&str]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (name, value) in series {
        let Some(shown) = name.strip_prefix(family).and_then(|rest| rest.strip_prefix('{')) else {
            continue;
        };
        let label = |label: &&str| {
            let (_, rest) = shown.split_once(&format!("{label}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let key: Vec<_> = labels.iter().filter_map(label).collect();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "counts of a test are small whole numbers"
        )]
        let count = *value as i64;
        if count != 0 {
            *sums.entry(key.join("/")).or_default() += count;
        }
    }
    sums
}

/// Rows of a table, counted by an expression.
async fn counted(database: &Database, by: &str, table: &str) -> anyhow::Result<BTreeMap<String, i64>> {
    let mut raw = database.raw().await?;
    let mut counts = BTreeMap::new();
    for row in raw
        .rows(&format!("select {by}, count(*) from {table} group by {by}"))
        .await?
    {
        counts.insert(row.text(0)?, row.int(1)?);
    }
    Ok(counts)
}

async fn every_item_is_ended_or_open_in_the_rows_and_in_the_metrics(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = Setup::new(&database, &provider)
        .with("WORKER_MAX_ATTEMPTS", "2")
        .start()
        .await?;
    some_of_everything(&server.client, &provider).await?;
    let items = counted(&database, "status", "pc_work_items").await?;
    let seen = [
        ("cancelled", 2),
        ("failed", 1),
        ("queued", 1),
        ("running", 1),
        ("succeeded", 3),
    ];
    let seen: BTreeMap<_, _> = seen.map(|(status, items)| (status.to_owned(), items)).into();
    ensure!(items == seen, "{items:?}");
    counted_alike(&database, &server.client, items).await?;
    facts::hold(&database).await?;
    provider.answer();
    server.stop().await
}

/// Items that end and items that do not, in every state that lasts.
async fn some_of_everything(client: &Client, provider: &Provider) -> anyhow::Result<()> {
    for scope in ["done", "again"] {
        capture(client, scope, 2).await?;
        client.flush(scope, "wait=25").await?.expect(200)?;
    }
    // Two that fail, one of which is brought back and one is cancelled; a third that stays failed.
    provider.refuse(401, "no")?;
    for (scope, act) in [
        ("revived", Some("retry")),
        ("dropped", Some("cancel")),
        ("blocked", None),
    ] {
        capture(client, scope, 1).await?;
        let failed = client.flush(scope, "wait=25").await?.expect(409)?.operation_id()?;
        provider.answer();
        if let Some(act) = act {
            client.act(&failed, act).await?.expect(200)?;
            let end = if act == "retry" { "succeeded" } else { "cancelled" };
            client.operation_is(&failed, end, SOON).await?;
        }
        provider.refuse(401, "no")?;
    }
    // One is cancelled while it runs, one runs on, and one waits behind it; more flushes join them.
    provider.hold();
    for scope in ["cancelled", "running"] {
        capture(client, scope, 1).await?;
        flush(client, scope).await?;
    }
    provider.in_flight(2, SOON).await?;
    let running = client.operations("cancelled").await?[0]["operation_id"].clone();
    let running = running.as_str().context("no id")?;
    ensure!(client.act(running, "cancel").await?.status < 300, "not cancelled");
    client.operation_is(running, "cancelled", SOON).await?;
    client
        .capture("running", "late", "user: I like tea.")
        .await?
        .expect(202)?;
    for _ in 0..3 {
        flush(client, "running").await?;
    }
    Ok(())
}

/// The metrics say the same as the rows, of which `items` are those of the items by state.
async fn counted_alike(database: &Database, client: &Client, items: BTreeMap<String, i64>) -> anyhow::Result<()> {
    let ended = |status: &str| matches!(status, "succeeded" | "cancelled");
    let metrics = series(client).await?;
    let requests = by_label(&metrics, "powercontext_work_enqueues_total", &["outcome"]);
    let all: i64 = items.values().sum();
    ensure!(requests.get("created") == Some(&all), "{requests:?} made {items:?}");
    ensure!(
        requests.get("joined") == Some(&2),
        "two of three late flushes join: {requests:?}"
    );
    let open: BTreeMap<_, _> = items.into_iter().filter(|(status, _)| !ended(status)).collect();
    let depth = by_label(&metrics, "powercontext_work_queue_depth", &["status"]);
    ensure!(depth == open, "{depth:?} instead of {open:?}");

    let closed = "pc_work_attempts where outcome is not null";
    let pair = if database.is_sqlite() {
        "outcome || '/' || coalesce(error_category, 'none')"
    } else {
        "concat(outcome, '/', coalesce(error_category, 'none'))"
    };
    let attempts = counted(database, pair, closed).await?;
    let counters = by_label(
        &metrics,
        "powercontext_work_attempts_total",
        &["outcome", "error_category"],
    );
    ensure!(counters == attempts, "{counters:?} instead of {attempts:?}");
    Ok(())
}

async fn work_and_bad_requests_add_no_series(database: Database) -> anyhow::Result<()> {
    let provider = Provider::start().await?;
    let server = Setup::new(&database, &provider).start().await?;
    let client = &server.client;
    let names = async || anyhow::Ok(series(client).await?.into_keys().collect::<BTreeSet<_>>());
    let before = names().await?;
    for scope in ["one", "two"] {
        capture(client, scope, 1).await?;
        client.flush(scope, "wait=25").await?.expect(200)?;
        client.get(&format!("/v1/{scope}")).await?.expect(404)?;
        client.get(&format!("/v1/operations/{scope}")).await?.expect(422)?;
    }
    provider.refuse(400, "no")?;
    capture(client, "three", 1).await?;
    client.flush("three", "wait=25").await?.expect(409)?;
    let after = names().await?;
    ensure!(before == after, "new: {:?}", after.difference(&before));
    ensure!(after.len() < 2000, "{} series", after.len());
    server.stop().await
}
