//! What the machine can do by itself: commits of a bare SQLite, `fdatasync` calls, the completion's packets on a bare
//! connection to OceanBase, and how much memory a process holds.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use powercontext::rt;
use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection as _};

use crate::figure::{Raw, median};

/// Bytes of one write before its fsync: a page of the database.
const PAGE: [u8; 4096] = [7; 4096];
/// Rows that the bare connections to OceanBase update, many enough that no two meet.
const BARE_ROWS: usize = 64;

/// How many times something happened in a second.
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
    let count = count as f64;
    count / took.as_secs_f64()
}

/// A bare SQLite file and a bare file on the same disk.
pub(crate) struct Disk {
    conn: SqliteConnection,
    file: File,
    span: Duration,
}

impl Disk {
    /// Files in this folder; each rate is taken for `span_ms`.
    pub(crate) async fn new(folder: &Path, span_ms: u64) -> anyhow::Result<Self> {
        let name = rt::hex_id();
        let options = SqliteConnectOptions::new()
            .filename(folder.join(format!("{name}.raw.db")))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let mut conn = SqliteConnection::connect_with(&options).await?;
        sqlx::raw_sql("CREATE TABLE raw (id INTEGER PRIMARY KEY, value INTEGER NOT NULL) STRICT")
            .execute(&mut conn)
            .await?;
        Ok(Self {
            conn,
            file: File::create(folder.join(format!("{name}.raw")))?,
            span: Duration::from_millis(span_ms),
        })
    }

    /// Both rates, now.
    pub(crate) async fn raw(&mut self) -> anyhow::Result<Raw> {
        Ok(Raw {
            commits: self.commits().await?,
            fsyncs: self.fsyncs()?,
        })
    }

    async fn commits(&mut self) -> anyhow::Result<f64> {
        let (start, mut count) = (rt::now(), 0);
        while start.elapsed() < self.span {
            sqlx::query("INSERT INTO raw (value) VALUES (1)")
                .execute(&mut self.conn)
                .await?;
            count += 1;
        }
        Ok(rate(count, start.elapsed()))
    }

    /// `fdatasync` after each page that is written, over the same 4 MiB again and again as a log does after a checkpoint.
    pub(crate) fn fsyncs(&mut self) -> anyhow::Result<f64> {
        let (start, mut count) = (rt::now(), 0);
        while start.elapsed() < self.span {
            let at = count % 1024 * PAGE.len();
            self.file.write_all_at(&PAGE, at as u64)?;
            self.file.sync_data()?;
            count += 1;
        }
        Ok(rate(count, start.elapsed()))
    }
}

/// The completion's two packets on bare connections to OceanBase, 32 at once: what no ledger on this driver can beat.
pub(crate) struct Bare {
    connections: Vec<MySqlConnection>,
    span: Duration,
}

impl Bare {
    /// Makes its table and connects.
    pub(crate) async fn new(url: &str, connections: usize, span_ms: u64) -> anyhow::Result<Self> {
        let mut conn = MySqlConnection::connect(url).await?;
        for sql in [
            "CREATE TABLE IF NOT EXISTS bench_bare (kind INT, id INT, fence BIGINT, note VARBINARY(64), PRIMARY KEY (kind, id))",
            "DELETE FROM bench_bare",
        ] {
            sqlx::raw_sql(sql).execute(&mut conn).await?;
        }
        for kind in 0..4 {
            let rows: Vec<String> = (0..BARE_ROWS).map(|id| format!("({kind}, {id}, 1, '')")).collect();
            let sql = format!("INSERT INTO bench_bare VALUES {}", rows.join(", "));
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
        }
        let connections = try_join_all((0..connections).map(|_| MySqlConnection::connect(url))).await?;
        Ok(Self {
            connections,
            span: Duration::from_millis(span_ms),
        })
    }

    /// Time of a bare commit of one row, one after the other on one connection, p50 in milliseconds.
    pub(crate) async fn commit_ms(&mut self) -> anyhow::Result<f64> {
        const COMMITS: usize = 100;
        let conn = self.connections.first_mut().context("no connection")?;
        let mut took = Vec::with_capacity(COMMITS);
        for _ in 0..COMMITS {
            let start = rt::now();
            let sql = "START TRANSACTION; UPDATE bench_bare SET fence = fence + 1 WHERE kind = 0 AND id = 0; COMMIT";
            sqlx::raw_sql(sql).execute(&mut *conn).await?;
            took.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(took.into_iter()))
    }

    /// Completions a second of all connections together.
    pub(crate) async fn rate(&mut self) -> anyhow::Result<f64> {
        let (start, span) = (rt::now(), self.span);
        let loops = self.connections.iter_mut().enumerate().map(|(id, conn)| async move {
            let update = |kind| {
                format!("UPDATE bench_bare SET fence = fence + 1, note = X'61' WHERE kind = {kind} AND id = {id};")
            };
            let first = format!("START TRANSACTION;{}{}", update(0), update(1));
            let last = format!("{}{}COMMIT", update(2), update(3));
            let mut count = 0;
            while start.elapsed() < span {
                for packet in [&first, &last] {
                    sqlx::raw_sql(AssertSqlSafe(packet.clone())).execute(&mut *conn).await?;
                }
                count += 1;
            }
            anyhow::Ok(count)
        });
        let counts: Vec<usize> = try_join_all(loops).await?;
        Ok(rate(counts.iter().sum(), start.elapsed()))
    }
}

/// Resident memory of a process and of all below it, in megabytes (10^6 bytes).
pub(crate) fn resident_tree_mb(pid: u32) -> anyhow::Result<f64> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that has just ended is none of those that are asked for.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        parents.extend(parent.and_then(|parent| Some((pid, parent.trim().parse::<u32>().ok()?))));
    }
    let (mut tree, mut at) = (vec![pid], 0);
    while let Some(parent) = tree.get(at).copied() {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    Ok(tree.into_iter().map(proportional_mb).sum())
}

/// Resident memory of a process, in megabytes (10^6 bytes), in which a page that several have counts for each of them in part.
fn proportional_mb(pid: u32) -> f64 {
    // One that has just ended has none.
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    kib_of(&rollup, "Pss:").unwrap_or_default() * 1024.0 / 1e6
}

fn kib_of(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Resident memory of a process, in megabytes (10^6 bytes).
pub(crate) fn resident_mb(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = kib_of(&status, "VmRSS:").context("no VmRSS in the status of the process")?;
    Ok(kib * 1024.0 / 1e6)
}
