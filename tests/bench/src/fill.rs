//! Large tables, filled in a few statements: what a measurement stands in, not what it measures.
//!
//! Keys look like the digests that they stand for, so that rows lie scattered as in a real deployment; ids grow, as real ones do.

use std::time::Duration;

use powercontext::rt;
use powercontext::store::{DatabaseUrl, Dialect};
use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};

/// Rows of one statement.
const CHUNK: usize = 50_000;
/// Numbers that the fills join with themselves.
const NUMBERS: usize = 1000;
/// Lanes of items that have ended.
const LANES: usize = 1000;
/// How long the kernel is given to merge what was filled.
const SETTLE_MIN: Duration = Duration::from_secs(3);
const SETTLE_MAX: Duration = Duration::from_mins(2);

/// A connection beside the store's own, for rows that the benchmark needs and does not measure.
pub(crate) enum Raw {
    /// To a server.
    OceanBase(MySqlConnection),
    /// To a file.
    Sqlite(SqliteConnection),
}

impl Raw {
    /// Connects.
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(match DatabaseUrl::parse(url)? {
            DatabaseUrl::OceanBase(_) => Self::OceanBase(MySqlConnection::connect(url).await?),
            DatabaseUrl::Sqlite(path) => {
                let options = SqliteConnectOptions::new().filename(path);
                Self::Sqlite(SqliteConnection::connect_with(&options).await?)
            }
        })
    }

    /// Runs a text of statements.
    pub(crate) async fn execute(&mut self, sql: String) -> anyhow::Result<()> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::OceanBase(conn) => query.execute(conn).await.map(|_| ())?,
            Self::Sqlite(conn) => query.execute(conn).await.map(|_| ())?,
        }
        Ok(())
    }

    /// Whole number that a query answers.
    pub(crate) async fn number(&mut self, sql: &str) -> anyhow::Result<i64> {
        let query = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
        Ok(match self {
            Self::OceanBase(conn) => query.fetch_one(conn).await?,
            Self::Sqlite(conn) => {
                sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
                    .fetch_one(conn)
                    .await?
            }
        })
    }

    fn dialect(&self) -> Dialect {
        match self {
            Self::OceanBase(_) => Dialect::OceanBase,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }
}

/// The words in which the engines differ. `n` is the number of a row.
struct Words {
    /// 64 hex digits for a number, scattered.
    lane: fn(&str) -> String,
    /// 64 others.
    key: &'static str,
    /// The text of an id that begins with this.
    id: fn(&str) -> String,
    /// So many seconds and microseconds before now.
    ago: fn(u32, &str) -> String,
    /// A scope of this name and number.
    scope: fn(&str) -> String,
}

const OCEANBASE: Words = Words {
    lane: |n| format!("CONCAT(LPAD(LOWER(HEX({n} * 2654435761 % 4294967296)), 8, '0'), LPAD({n}, 56, '0'))"),
    key: "CONCAT(LPAD(LOWER(HEX(n * 2246822519 % 4294967296)), 8, '0'), LPAD(n, 56, '0'))",
    id: |start| format!("CONCAT('{start}-0000-7000-8000-', LPAD(n, 12, '0'))"),
    ago: |seconds, micros| {
        format!("DATE_SUB(DATE_SUB(UTC_TIMESTAMP(6), INTERVAL {seconds} SECOND), INTERVAL {micros} MICROSECOND)")
    },
    scope: |name| format!("CONCAT('{name}', n)"),
};
const SQLITE: Words = Words {
    lane: |n| format!("printf('%08x%056d', {n} * 2654435761 % 4294967296, {n})"),
    key: "printf('%08x%056d', n * 2246822519 % 4294967296, n)",
    id: |start| format!("printf('{start}-0000-7000-8000-%012d', n)"),
    ago: |seconds, micros| format!("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - {seconds} * 1000000 - {micros}"),
    scope: |name| format!("'{name}' || n"),
};

/// Fills the tables of a migrated schema.
pub(crate) struct Filler {
    raw: Raw,
    words: &'static Words,
}

impl Filler {
    /// Makes its table of numbers.
    pub(crate) async fn on(url: &str) -> anyhow::Result<Self> {
        let mut raw = Raw::connect(url).await?;
        let (set_up, words) = match raw.dialect() {
            Dialect::OceanBase => (
                "SET ob_query_timeout = 300000000, ob_trx_timeout = 300000000",
                &OCEANBASE,
            ),
            // Nothing here has to survive anything.
            Dialect::Sqlite => ("PRAGMA synchronous = OFF", &SQLITE),
        };
        raw.execute(set_up.to_owned()).await?;
        let numbers: Vec<String> = (0..NUMBERS).map(|n| format!("({n})")).collect();
        raw.execute("CREATE TABLE bench_numbers (n BIGINT NOT NULL PRIMARY KEY)".to_owned())
            .await?;
        raw.execute(format!("INSERT INTO bench_numbers VALUES {}", numbers.join(", ")))
            .await?;
        Ok(Self { raw, words })
    }

    /// Items of a kind that wait, one a lane, with what a claim reads beside them.
    pub(crate) async fn queued(&mut self, kind: &str, binding: &str, count: usize) -> anyhow::Result<()> {
        let Words {
            lane,
            key,
            id,
            ago,
            scope,
        } = self.words;
        let (id, lane, scope) = (id("01900000"), lane("n"), scope("bench/queued/"));
        let (now, due) = (ago(0, "0"), ago(0, "n"));
        self.fill(
            "pc_work_lanes (lane_key, head_sequence, next_sequence)",
            &format!("{lane}, 1, 2"),
            count,
        )
        .await?;
        self.fill(
            "pc_work_items (work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id, payload, status,
                            available_at, ready_at, created_at, updated_at)",
            &format!(
                "{id}, {key}, {lane}, 1, '{kind}', 1, {scope}, x'7B7D', 'queued', {due}, {due}, {now}, {now}"
            ),
            count,
        )
        .await?;
        self.fill(
            "pc_artifact_processing_intents (binding_name, scope_id, dirty_generation, requested_generation)",
            &format!("'{binding}', {scope}, 1, 1"),
            count,
        )
        .await
    }

    /// Items of a kind that ended two months ago, each in one attempt.
    pub(crate) async fn ended(&mut self, kind: &str, count: usize) -> anyhow::Result<()> {
        let Words { lane, key, id, ago, .. } = self.words;
        let (id, at) = (id("01800000"), ago(60 * 86_400, "n"));
        // Behind those of the items that wait.
        let lane = lane(&format!("(n % {LANES} + 100000000)"));
        self.fill(
            "pc_work_items (work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id, payload, status,
                            available_at, lease_fence, attempt_count, result_code, result_payload, created_at, updated_at,
                            completed_at)",
            &format!(
                "{id}, {key}, {lane}, (n - n % {LANES}) / {LANES} + 1, '{kind}', 1, 'bench/ended', x'7B7D', 'succeeded', {at}, 1, 1,
                 'processed', x'7B7D', {at}, {at}, {at}"
            ),
            count,
        )
        .await?;
        self.fill(
            "pc_work_attempts (work_id, attempt_no, recovery_generation, owner_id, fence, started_at, heartbeat_at,
                               finished_at, outcome)",
            &format!("{id}, 1, 0, 'bench', 1, {at}, {at}, {at}, 'succeeded'"),
            count,
        )
        .await
    }

    /// Scopes of a binding in which nothing is pending.
    pub(crate) async fn clean(&mut self, binding: &str, count: usize) -> anyhow::Result<()> {
        let scope = (self.words.scope)("bench/clean/");
        self.fill(
            "pc_artifact_processing_intents (binding_name, scope_id, dirty_generation, clean_generation)",
            &format!("'{binding}', {scope}, 1, 1"),
            count,
        )
        .await
    }

    /// Makes so many of those scopes dirty, evenly among all.
    pub(crate) async fn dirty(&mut self, binding: &str, dirty: usize, all: usize) -> anyhow::Result<()> {
        let scopes: Vec<String> = (0..dirty)
            .map(|n| format!("'bench/clean/{}'", n * all / dirty))
            .collect();
        self.raw
            .execute(format!(
                "UPDATE pc_artifact_processing_intents SET dirty_generation = 2
                 WHERE binding_name = '{binding}' AND scope_id IN ({})",
                scopes.join(", ")
            ))
            .await
    }

    /// Whole number that a query answers.
    pub(crate) async fn number(&mut self, sql: &str) -> anyhow::Result<i64> {
        self.raw.number(sql).await
    }

    /// Lets nothing of a fill be left to do while something is measured.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        match self.raw.dialect() {
            Dialect::OceanBase => self.compacted().await,
            Dialect::Sqlite => self.raw.execute("PRAGMA wal_checkpoint(TRUNCATE)".to_owned()).await,
        }
    }

    /// Waits until the kernel has written away what was filled and merges nothing any more.
    async fn compacted(&mut self) -> anyhow::Result<()> {
        self.raw.execute("ALTER SYSTEM MINOR FREEZE".to_owned()).await?;
        let newest = "SELECT COUNT(*) FROM oceanbase.V$OB_TABLET_COMPACTION_HISTORY
                      WHERE type <> 'MDS_MINOR_MERGE' AND finish_time > NOW(6) - INTERVAL 4 SECOND";
        let begun = rt::now();
        // A merge is seen once it is over, so it is not over before none was seen for a while.
        while begun.elapsed() < SETTLE_MIN || (self.number(newest).await? > 0 && begun.elapsed() < SETTLE_MAX) {
            rt::sleep(Duration::from_millis(250)).await;
        }
        Ok(())
    }

    async fn fill(&mut self, into: &str, columns: &str, count: usize) -> anyhow::Result<()> {
        for from in (0..count).step_by(CHUNK) {
            let (to, first, last) = ((from + CHUNK).min(count), from / NUMBERS, (from + CHUNK) / NUMBERS);
            self.raw
                .execute(format!(
                    "INSERT INTO {into}
                     SELECT {columns} FROM (
                       SELECT a.n * {NUMBERS} + b.n AS n FROM bench_numbers a CROSS JOIN bench_numbers b
                       WHERE a.n >= {first} AND a.n < {last}) numbered
                     WHERE n >= {from} AND n < {to}"
                ))
                .await?;
        }
        Ok(())
    }
}
