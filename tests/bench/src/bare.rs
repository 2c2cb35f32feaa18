//! What SQLite itself takes for the ledger's statements: the same texts on the same schema, one after the other on one thread,
//! with nothing around them and without waiting for the disk. No runtime on this engine and this schema can be faster.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext::store::{Dialect, sql};
use rusqlite::{Connection, ToSql, params};

use crate::noop::{BINDING, KIND};

/// A member's id, and the digests of lanes and keys, as long as real ones.
const OWNER: &str = "00000000-0000-7000-8000-000000000000";

/// A connection as the store's own, but for the wait for the disk.
pub(crate) struct Bare {
    conn: Connection,
    texts: BTreeMap<&'static str, &'static str>,
}

impl Bare {
    /// Opens a migrated file that nobody else has open.
    pub(crate) fn open(file: &Path) -> anyhow::Result<Self> {
        let conn = Connection::open(file)?;
        conn.execute_batch(
            "PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL;
             PRAGMA cache_size = -8192",
        )?;
        conn.set_prepared_statement_cache_capacity(64);
        let texts = sql::all(Dialect::Sqlite).into_iter();
        let texts = texts.map(|text| (text.lines().next().unwrap_or_default().trim_start_matches("-- "), text));
        Ok(Self {
            conn,
            texts: texts.collect(),
        })
    }

    fn one(&self, name: &str, args: &[&dyn ToSql]) -> anyhow::Result<()> {
        let text = self.texts.get(name).with_context(|| format!("no statement {name}"))?;
        let touched = self.conn.prepare_cached(text)?.execute(args)?;
        ensure!(touched == 1, "{name} touched {touched} rows");
        Ok(())
    }

    fn rows(&self, name: &str, args: &[&dyn ToSql]) -> anyhow::Result<Vec<(String, String)>> {
        let text = self.texts.get(name).with_context(|| format!("no statement {name}"))?;
        let mut statement = self.conn.prepare_cached(text)?;
        let rows = statement.query_map(args, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Claims and completes what waits, so many items a commit; answers how many, and how long that took.
    pub(crate) fn drain(&self, together: u32) -> anyhow::Result<(usize, Duration)> {
        let (start, mut count) = (rt::now(), 0);
        let mut running: Vec<Item> = Vec::new();
        loop {
            self.conn.execute_batch("BEGIN IMMEDIATE")?;
            let now = self.now()?;
            for item in running.drain(..) {
                self.finish(&item, now)?;
            }
            for (id, _) in self.rows("works.ready", params![KIND, 1, together])? {
                running.push(self.claim(&id, now)?);
            }
            self.conn.execute_batch("COMMIT")?;
            count += running.len();
            if running.is_empty() {
                return Ok((count, start.elapsed()));
            }
        }
    }

    fn now(&self) -> anyhow::Result<i64> {
        let text = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
        Ok(self.conn.prepare_cached(text)?.query_row([], |row| row.get(0))?)
    }

    fn claim(&self, id: &str, now: i64) -> anyhow::Result<Item> {
        let text = self
            .texts
            .get("works.claimable")
            .context("no statement works.claimable")?;
        let item = self.conn.prepare_cached(text)?.query_row(params![id, BINDING], |row| {
            Ok(Item {
                id: row.get("work_id")?,
                key: row.get("logical_key")?,
                lane: row.get("lane_key")?,
                scope: row.get("scope_id")?,
                version: row.get("state_version")?,
                requested: row.get("requested_generation")?,
                dirty: row.get("dirty_generation")?,
            })
        })?;
        let never: Option<i64> = None;
        let args = params![now, OWNER, never, item.requested, item.dirty, item.id, item.version];
        self.one("works.claim", args)?;
        self.one("attempts.open", params![item.id, 1, 0, OWNER, 1, now, now])?;
        Ok(item)
    }

    fn finish(&self, item: &Item, now: i64) -> anyhow::Result<()> {
        let none: Option<&str> = None;
        self.one("lanes.leave", params![item.lane, 1, 2])?;
        let result: &[u8] = b"{}";
        let args = params![now, "processed", result, item.id, item.version + 1, OWNER, 1];
        self.one("works.finish", args)?;
        let args = params![now, now, "succeeded", none, none, item.id, 1, OWNER, 1];
        self.one("attempts.close", args)?;
        self.one("keys.delete_of", params![item.key, item.id])?;
        self.one("intents.settle", params![item.dirty, BINDING, item.scope])
    }

    /// Makes items, so many a commit, in scopes that have none; answers how long that took.
    pub(crate) fn enqueue(&self, scopes: &[String], together: usize) -> anyhow::Result<Duration> {
        let start = rt::now();
        let limit: Option<i64> = Some(5);
        for scopes in scopes.chunks(together) {
            self.conn.execute_batch("BEGIN IMMEDIATE")?;
            let now = self.now()?;
            for scope in scopes {
                let (id, payload): (_, &[u8]) = (rt::work_id().to_string(), b"{}");
                let (lane, key) = (digest(), digest());
                self.one("lanes.put", params![lane, 1, 2])?;
                let args = params![id, key, lane, 1, KIND, 1, scope, payload, now, now, limit, now, now];
                self.one("works.insert", args)?;
                self.one("keys.put", params![key, id, lane, now])?;
                self.one("intents.raise", params![BINDING, scope])?;
            }
            self.conn.execute_batch("COMMIT")?;
        }
        Ok(start.elapsed())
    }
}

struct Item {
    id: String,
    key: String,
    lane: String,
    scope: String,
    version: i64,
    requested: i64,
    dirty: i64,
}

/// As long as a digest, and as far from the one before it.
fn digest() -> String {
    rt::hex_id() + &rt::hex_id()
}
