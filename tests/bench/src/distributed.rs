//! API, Scheduler and Worker processes on OceanBase: throughput over lanes, recovery after a kill, cost of idleness.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use powercontext::rt;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

use crate::Size;
use crate::figure::{Figure, Raw, Table, Target};
use crate::machine::{Bare, Disk, rate, resident_mb};
use crate::noop::Rig;
use crate::oceanbase::Schema;
use crate::proxy::Proxy;
use crate::server::{Model, Server};
use crate::wire::Connection;

const LANES: usize = 64;
/// Slots of each Worker.
const SLOTS: &str = "16";
/// Length of leases, in seconds: a leader's and that of a run.
const LEASE: &str = "4";
/// How long idle processes are watched.
const IDLE_FOR: Duration = Duration::from_secs(10);
/// Longest wait for anything here.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// Connections of the bare loop beside it.
const BARE: usize = 32;

const INVOKED: Figure = Figure {
    name: "distributed: invocations, 64 lanes, 2 Workers of 16 slots",
    unit: "items/s",
    target: Target::AtLeast(80.0),
};
const LED: Figure = Figure {
    name: "distributed: leader killed to next admission, lease 4 s",
    unit: "s",
    target: Target::AtMost(5.0),
};
const TAKEN: Figure = Figure {
    name: "distributed: Worker killed to its item elsewhere, lease 4 s",
    unit: "s",
    // The lease and one poll, which is a second.
    target: Target::AtMost(5.0),
};
const IDLE: [Figure; 3] = [
    idle("distributed: statements of an idle API"),
    idle("distributed: statements of an idle Scheduler"),
    idle("distributed: statements of an idle Worker"),
];
const RESIDENT: [Figure; 3] = [
    resident("distributed: resident memory, idle API", 40.0),
    resident("distributed: resident memory, idle Scheduler", 30.0),
    resident("distributed: resident memory, idle Worker", 40.0),
];
const ROLES: [&str; 3] = ["api", "scheduler", "worker"];

const fn idle(name: &'static str) -> Figure {
    Figure {
        name,
        unit: "/s",
        target: Target::AtMost(2.0),
    }
}

const fn resident(name: &'static str, most: f64) -> Figure {
    Figure {
        name,
        unit: "MB",
        target: Target::AtMost(most),
    }
}

/// Measures the section.
pub(crate) async fn measure(table: &mut Table, folder: &Path, url: Option<&str>, size: Size) -> anyhow::Result<()> {
    let schema = Schema::on(url).await?;
    let measured = measure_on(table, folder, &schema, size).await;
    schema.remove().await?;
    measured
}

async fn measure_on(table: &mut Table, folder: &Path, schema: &Schema, size: Size) -> anyhow::Result<()> {
    // Migrates.
    Rig::open(&schema.url, 4).await?.close().await;
    let bench = Bench {
        folder,
        schema,
        model: Model::start(Duration::ZERO).await?,
    };
    let mut bare = Bare::new(&schema.url, BARE, size.raw_ms).await?;
    let mut disk = Disk::new(folder, size.raw_ms).await?;
    let raw = Raw {
        commits: bare.rate().await?,
        fsyncs: disk.fsyncs()?,
    };
    bench.at_rest(table, raw).await?;
    bench.busy(table, size.flushes, raw).await?;
    for round in 0..size.rounds {
        let raw = Raw {
            commits: bare.rate().await?,
            fsyncs: disk.fsyncs()?,
        };
        bench.invoked(table, size.invocations, round, raw).await?;
        bench.recovered(table, round, raw).await?;
    }
    Ok(())
}

pub(crate) struct Bench<'a> {
    folder: &'a Path,
    pub(crate) schema: &'a Schema,
    pub(crate) model: Model,
}

impl Bench<'_> {
    pub(crate) async fn role(&self, role: &str, more: &[(&str, &str)]) -> anyhow::Result<Server> {
        self.role_by(&self.schema.url, &self.model, role, more).await
    }

    // Processes that were killed are members for a while; those after them have other settings, and so another revision.
    pub(crate) async fn role_by(
        &self,
        url: &str,
        model: &Model,
        role: &str,
        more: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        let settings = [
            ("DATABASE_URL", url),
            ("DEPLOYMENT_MODE", "distributed"),
            ("DEPLOYMENT_ROLE", role),
            ("COORDINATION_ALLOW_SEEKDB_SERVER", "true"),
        ];
        Server::with(self.folder, model, &[&settings[..], more].concat()).await
    }

    /// One process of each role with the settings of a default deployment and nothing to do.
    async fn at_rest(&self, table: &mut Table, raw: Raw) -> anyhow::Result<()> {
        let mut idle = Vec::new();
        for role in ROLES {
            let proxy = Proxy::before(&self.schema.url).await?;
            let server = self.role_by(proxy.url(), &self.model, role, &[]).await?;
            idle.push((proxy, server));
        }
        // What a start asks for is not idleness.
        rt::sleep(IDLE_FOR / 2).await;
        let before: Vec<u64> = idle.iter().map(|(proxy, _)| proxy.counts().statements).collect();
        rt::sleep(IDLE_FOR).await;
        for (((proxy, server), before), (statements, memory)) in idle.iter().zip(before).zip(IDLE.iter().zip(RESIDENT))
        {
            let sent = usize::try_from(proxy.counts().statements - before)?;
            table.add(*statements, rate(sent, IDLE_FOR), raw);
            table.add(memory, resident_mb(server.pid()?)?, raw);
        }
        for (_, server) in idle {
            server.stop().await?;
        }
        Ok(())
    }

    /// Captures and flushes over all lanes until so many invocations have ended.
    async fn invoked(&self, table: &mut Table, count: usize, round: usize, raw: Raw) -> anyhow::Result<()> {
        let revision = format!("lanes {round}");
        let slots = [
            ("DEPLOYMENT_BEHAVIOR_REVISION", revision.as_str()),
            ("WORKER_CONCURRENCY", SLOTS),
            ("WORKER_POLL_SECONDS", "0.2"),
        ];
        let workers = [self.role("worker", &slots).await?, self.role("worker", &slots).await?];
        let api = [slots[0], ("OPERATIONS_POLL_SECONDS", "0.05")];
        let api = self.role("api", &api).await?;
        let connections = api.connections(LANES).await?;
        let start = rt::now();
        let lanes = connections.into_iter().enumerate().map(|(lane, mut connection)| {
            rt::spawn(async move {
                let scope = format!("bench/lane/{round}/{lane}");
                for n in (lane..count).step_by(LANES) {
                    capture(&mut connection, &scope, n).await?;
                    let flushed = connection.post("/v1/memory/flush", &json!({"scope_id": scope})).await?;
                    let flushed = flushed.json(200)?;
                    ensure!(flushed["status"] == "processed", "a flush that did nothing: {flushed}");
                }
                anyhow::Ok(())
            })
        });
        for ended in try_join_all(lanes).await? {
            ended?;
        }
        table.add(INVOKED, rate(count, start.elapsed()), raw);
        for server in workers.into_iter().chain([api]) {
            server.stop().await?;
        }
        Ok(())
    }

    /// Kills the leader, then a Worker in the middle of a call.
    async fn recovered(&self, table: &mut Table, round: usize, raw: Raw) -> anyhow::Result<()> {
        let revision = format!("recovery {round}");
        let leases = [
            ("DEPLOYMENT_BEHAVIOR_REVISION", revision.as_str()),
            ("COORDINATION_SCHEDULER_LEASE_SECONDS", LEASE),
            ("COORDINATION_SCHEDULER_RENEW_SECONDS", "1"),
            ("RUNTIME_MEMORY_SCHEDULE_SECONDS", "1"),
            ("WORKER_LEASE_SECONDS", LEASE),
            ("WORKER_HEARTBEAT_SECONDS", "1"),
            ("WORKER_SHUTDOWN_GRACE_SECONDS", "2"),
        ];
        let api = self.role("api", &leases).await?;
        let leader = self.role("scheduler", &leases).await?;
        let standby = self.role("scheduler", &leases).await?;
        let mut connection = Connection::open(api.address).await?;
        let mut rows = Rows::open(&self.schema.url).await?;
        let first = format!("bench/led/{round}/1");
        capture(&mut connection, &first, 1).await?;
        rows.until("the leader admits", &item_of(&first)).await?;
        leader.stop().await?;
        let killed = rt::now();
        let second = format!("bench/led/{round}/2");
        capture(&mut connection, &second, 1).await?;
        rows.until("the standby admits", &item_of(&second)).await?;
        table.add(LED, killed.elapsed().as_secs_f64(), raw);
        standby.stop().await?;

        let slow = Model::start(PATIENCE).await?;
        let worker = self.role_by(&self.schema.url, &slow, "worker", &leases).await?;
        let running = format!("{} and status = 'running'", item_of(&second));
        rows.until("the item runs", &running).await?;
        let other = self.role_by(&self.schema.url, &slow, "worker", &leases).await?;
        let fence = format!("{running} and lease_fence > 1");
        worker.stop().await?;
        let killed = rt::now();
        rows.until("the item runs elsewhere", &fence).await?;
        table.add(TAKEN, killed.elapsed().as_secs_f64(), raw);
        other.stop().await?;
        api.stop().await
    }
}

pub(crate) async fn capture(connection: &mut Connection, scope: &str, n: usize) -> anyhow::Result<()> {
    let content = format!("user: I prefer lamp number {n} in the house of {scope}.");
    let body = json!({"scope_id": scope, "source_id": n.to_string(), "content": content});
    connection.post("/v1/sources/content", &body).await?.json(202)?;
    Ok(())
}

fn item_of(scope: &str) -> String {
    format!("select count(*) from pc_work_items where scope_id = '{scope}'")
}

/// A connection that looks at the rows.
pub(crate) struct Rows(MySqlConnection);

impl Rows {
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let conn = MySqlConnection::connect(url).await.ok();
        Ok(Self(conn.context("the OceanBase server does not answer")?))
    }

    /// A text and a whole number of each row of a query.
    pub(crate) async fn pairs(&mut self, sql: &str) -> anyhow::Result<Vec<(String, i64)>> {
        let rows: Vec<(Vec<u8>, i64)> = sqlx::query_as(AssertSqlSafe(sql.to_owned()))
            .fetch_all(&mut self.0)
            .await?;
        rows.into_iter()
            .map(|(text, number)| Ok((String::from_utf8(text)?, number)))
            .collect()
    }

    /// Waits until a query counts something.
    pub(crate) async fn until(&mut self, what: &str, sql: &str) -> anyhow::Result<()> {
        let give_up = rt::now() + PATIENCE;
        loop {
            let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
                .fetch_one(&mut self.0)
                .await?;
            if count > 0 {
                return Ok(());
            }
            ensure!(rt::now() < give_up, "in vain: {what}");
            rt::sleep(Duration::from_millis(10)).await;
        }
    }
}
