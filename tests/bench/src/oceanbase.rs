//! Ledger and worker on an OceanBase server: items a second, and what one costs in round trips and commits.
//!
//! Round trips are counted by a proxy between the ledger and the server. Commits are counted by the server, where it tells;
//! the kernel that the tests start has no `GV$SYSSTAT`, so there the proxy counts the commits that it hands on.

use std::sync::Arc;

use anyhow::{Context, ensure};
use powercontext::ledger::{Claim, Claimed, Done, Ended};
use powercontext::rt;
use powercontext_core::refs::Position;
use reqwest::Url;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::Size;
use crate::figure::{Figure, Raw, Table, Target};
use crate::machine::{Bare, Disk, rate};
use crate::noop::{Rig, spec};
use crate::proxy::Proxy;

const SLOTS: u32 = 32;
const CALLERS: usize = 32;
const CONNECTIONS: u32 = 40;
/// Items of one claim.
const BATCH: u32 = 64;

const COMPLETE: Figure = Figure {
    name: "oceanbase: claim and completion, no-op items, 32 slots",
    unit: "items/s",
    target: Target::AtLeast(3_000.0),
};
const ENQUEUE: Figure = Figure {
    name: "oceanbase: enqueue, 32 callers, one item a call",
    unit: "items/s",
    target: Target::Shown,
};
const FINISH_TRIPS: Figure = Figure {
    name: "oceanbase: round trips of a completion",
    unit: "trips",
    target: Target::Exactly(2.0),
};
const FINISH_COMMITS: Figure = Figure {
    name: "oceanbase: commits of a completion",
    unit: "commits",
    target: Target::Exactly(1.0),
};
const CLAIM_TRIPS: Figure = Figure {
    name: "oceanbase: round trips of a claim for each item, 64 free slots",
    unit: "trips",
    target: Target::AtMost(0.08),
};
const REFILL_TRIPS: Figure = Figure {
    name: "oceanbase: round trips of claims for each item, steady refill",
    unit: "trips",
    target: Target::AtMost(1.0),
};

/// Measures the section.
pub(crate) async fn measure(table: &mut Table, url: Option<&str>, size: Size) -> anyhow::Result<()> {
    let schema = Schema::on(url).await?;
    let measured = measure_on(table, &schema, size).await;
    schema.remove().await?;
    measured
}

async fn measure_on(table: &mut Table, schema: &Schema, size: Size) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut disk = Disk::new(folder.path(), size.raw_ms).await?;
    let mut bare = Bare::new(&schema.url, SLOTS as usize, size.raw_ms).await?;
    let mut rig = Rig::open(&schema.url, CONNECTIONS).await?;
    let proxy = Proxy::before(&schema.url).await?;
    let mut counted = Rig::attach(proxy.url(), &schema.url, CONNECTIONS).await?;
    for _ in 0..size.rounds {
        let scopes = rig.scopes(size.items_oceanbase).await?;
        let raw = raw(&mut disk, &mut bare).await?;
        let took = rig.enqueue(&scopes, CALLERS).await?;
        table.add(ENQUEUE, rate(scopes.len(), took), raw);
        let raw = self::raw(&mut disk, &mut bare).await?;
        let took = rig.drain(scopes.len(), SLOTS).await?;
        table.add(COMPLETE, rate(scopes.len(), took), raw);
        trips(table, &mut counted, &proxy, schema, raw).await?;
    }
    counted.close().await;
    rig.close().await;
    Ok(())
}

async fn raw(disk: &mut Disk, bare: &mut Bare) -> anyhow::Result<Raw> {
    Ok(Raw {
        commits: bare.rate().await?,
        fsyncs: disk.fsyncs()?,
    })
}

/// Round trips and commits of a claim and of completions, one after the other, so that each can be told apart.
async fn trips(table: &mut Table, rig: &mut Rig, proxy: &Proxy, schema: &Schema, raw: Raw) -> anyhow::Result<()> {
    // The first pass prepares statements in every connection that the second one uses.
    let mut measured = None;
    for _ in 0..2 {
        let scopes = rig.scopes(BATCH as usize).await?;
        rig.enqueue(&scopes, 1).await?;
        let before = proxy.counts().round_trips;
        let claimed = claim(rig, scopes.len()).await?;
        let after = proxy.counts().round_trips;
        let commits = schema.commits(proxy).await?;
        for claimed in &claimed {
            complete(rig, claimed).await?;
        }
        let commits_after = schema.commits(proxy).await?;
        let trips = proxy.counts().round_trips - after;
        measured = Some((after - before, trips, commits_after - commits, claimed.len()));
    }
    let (claim, complete, commits, items) = measured.context("two passes measure something")?;
    let each = |count: u64| share(count, items);
    table.add(CLAIM_TRIPS, each(claim), raw);
    table.add(FINISH_TRIPS, each(complete), raw);
    table.add(FINISH_COMMITS, each(commits), raw);

    let scopes = rig.scopes(BATCH as usize * 8).await?;
    rig.enqueue(&scopes, CALLERS).await?;
    // Everything that a claim sends and nothing else does.
    proxy.watch(&["works.ready_many", "works.claimable", "works.claim_many"]);
    let before = proxy.counts().watched;
    rig.drain(scopes.len(), SLOTS).await?;
    table.add(REFILL_TRIPS, share(proxy.counts().watched - before, scopes.len()), raw);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
fn share(count: u64, items: usize) -> f64 {
    count as f64 / items as f64
}

async fn claim(rig: &Rig, items: usize) -> anyhow::Result<Vec<Claimed>> {
    let kinds = vec![(spec().work.kind, BATCH)];
    let claimed = rig.ledger.claim(&Claim { kinds }).await?;
    ensure!(
        claimed.len() == items,
        "{} of {items} items were claimed",
        claimed.len()
    );
    Ok(claimed)
}

async fn complete(rig: &Rig, claimed: &Claimed) -> anyhow::Result<()> {
    let head = Position::START.next();
    let done = Done {
        write: None,
        head_read: head,
        cursor: head,
        code: "processed",
        result: serde_json::json!({}),
    };
    let ended = rig.ledger.finish(claimed, done).await?;
    ensure!(ended == Ended::Succeeded, "not completed: {ended:?}");
    Ok(())
}

/// A schema of the benchmark's own on the server.
pub(crate) struct Schema {
    server: Arc<str>,
    name: String,
    pub(crate) url: String,
}

impl Schema {
    /// Makes one.
    pub(crate) async fn on(server: Option<&str>) -> anyhow::Result<Self> {
        let server = server.context("this section needs a server: --oceanbase mysql://user:password@host:port")?;
        let name = format!("pc_bench_{}", &rt::hex_id()[..12]);
        let mut url = Url::parse(server).map_err(|_| anyhow::anyhow!("no URL of a server"))?;
        url.set_path(&name);
        let schema = Self {
            server: server.into(),
            name,
            url: url.into(),
        };
        schema.run(format!("CREATE DATABASE {}", schema.name)).await?;
        Ok(schema)
    }

    /// Removes it.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        self.run(format!("DROP DATABASE {}", self.name)).await
    }

    async fn run(&self, sql: String) -> anyhow::Result<()> {
        let mut conn = self.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<MySqlConnection> {
        // The driver's error may quote the URL, which may hold a password.
        let conn = MySqlConnection::connect(&self.server).await.ok();
        conn.context("the OceanBase server does not answer")
    }

    /// Transactions that the server has committed since it started, or else those that went through the proxy.
    async fn commits(&self, proxy: &Proxy) -> anyhow::Result<u64> {
        let sql = "SELECT CAST(SUM(value) AS SIGNED) FROM oceanbase.GV$SYSSTAT WHERE name = 'trans commit count'";
        let mut conn = self.connect().await?;
        match sqlx::query(sql).fetch_one(&mut conn).await {
            Ok(row) => Ok(u64::try_from(row.try_get::<i64, _>(0)?)?),
            Err(sqlx::Error::Database(_)) => Ok(proxy.counts().commits),
            Err(error) => Err(error.into()),
        }
    }
}
