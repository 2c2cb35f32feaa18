//! An empty database of either engine, and raw statements on it: what a migrator meets, tests arrange by hand.

use std::path::PathBuf;

use anyhow::Context;
use powercontext::store::migrate::{Mode, Report, migrate};
use powercontext::store::{DatabaseUrl, Dialect};
use powercontext_core::time::Span;
use powercontext_tests::oceanbase;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row, SqliteConnection};
use tempfile::TempDir;

pub(crate) const APPLY: Mode = Mode::Apply {
    wait: Span::seconds(30),
};

pub(crate) struct Database {
    pub(crate) dialect: Dialect,
    pub(crate) url: DatabaseUrl,
    text: String,
    /// Goes away with the file in it; a schema goes away with the process.
    _directory: Option<TempDir>,
}

impl Database {
    pub(crate) async fn oceanbase() -> anyhow::Result<Self> {
        let server = oceanbase::fresh().await?;
        Ok(Self {
            dialect: Dialect::OceanBase,
            url: DatabaseUrl::parse(server.url())?,
            text: server.url().to_owned(),
            _directory: None,
        })
    }

    pub(crate) fn sqlite() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("power.db").display().to_string();
        Ok(Self {
            dialect: Dialect::Sqlite,
            url: DatabaseUrl::parse(&path)?,
            text: path,
            _directory: Some(directory),
        })
    }

    /// One empty database of each engine.
    pub(crate) async fn both() -> anyhow::Result<[Self; 2]> {
        Ok([Self::sqlite()?, Self::oceanbase().await?])
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(&self.text)
    }

    pub(crate) async fn migrate(&self) -> Report {
        migrate(&self.url, APPLY, &mut |_| {}).await
    }

    pub(crate) async fn plan(&self) -> Report {
        migrate(&self.url, Mode::Plan, &mut |_| {}).await
    }

    /// Migrates and checks that it is done.
    pub(crate) async fn migrated(self) -> anyhow::Result<Self> {
        let report = self.migrate().await;
        anyhow::ensure!(report.code as u8 == 0, "{report:?}");
        Ok(self)
    }

    pub(crate) async fn run(&self, sql: &str) -> anyhow::Result<()> {
        match self.dialect {
            Dialect::OceanBase => {
                let mut conn = MySqlConnection::connect(&self.text).await?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            }
            Dialect::Sqlite => {
                let mut conn = self.file().await?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            }
        }
        Ok(())
    }

    /// The first column of the first row, as a number.
    pub(crate) async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(match self.dialect {
            Dialect::OceanBase => {
                let mut conn = MySqlConnection::connect(&self.text).await?;
                sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut conn).await?.try_get(0)?
            }
            Dialect::Sqlite => {
                let mut conn = self.file().await?;
                sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut conn).await?.try_get(0)?
            }
        })
    }

    /// Binds texts and a number, and answers the first column and the `score` of each row.
    pub(crate) async fn search(
        &self,
        sql: &str,
        query: &str,
        scope: &str,
        limit: u32,
    ) -> anyhow::Result<Vec<(String, f64)>> {
        let mut hits = Vec::new();
        match self.dialect {
            Dialect::OceanBase => {
                let mut conn = MySqlConnection::connect(&self.text).await?;
                let rows = sqlx::query(AssertSqlSafe(sql))
                    .bind(query)
                    .bind(scope.as_bytes())
                    .bind(query)
                    .bind(limit);
                for row in rows.fetch_all(&mut conn).await? {
                    let id: Vec<u8> = row.try_get("entry_id")?;
                    hits.push((String::from_utf8(id)?, row.try_get("score")?));
                }
            }
            Dialect::Sqlite => {
                let mut conn = self.file().await?;
                let rows = sqlx::query(AssertSqlSafe(sql))
                    .bind(query)
                    .bind(scope)
                    .bind(query)
                    .bind(limit);
                for row in rows.fetch_all(&mut conn).await? {
                    hits.push((row.try_get("entry_id")?, row.try_get("score")?));
                }
            }
        }
        Ok(hits)
    }

    /// Everything the engine shows of the schema, as text.
    pub(crate) async fn dump(&self) -> anyhow::Result<Vec<String>> {
        let mut shown = Vec::new();
        match self.dialect {
            Dialect::OceanBase => {
                let mut conn = MySqlConnection::connect(&self.text).await?;
                for row in sqlx::raw_sql("SHOW TABLES").fetch_all(&mut conn).await? {
                    let table: String = row.try_get(0)?;
                    let sql = format!("SHOW CREATE TABLE `{table}`");
                    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut conn).await?;
                    let text: String = row.try_get(1)?;
                    // A foreign key shows the schema's own name; the counter of an index-organised table is data.
                    let schema = self.text.rsplit('/').next().context("a schema")?;
                    let text = text.replace(&format!("`{schema}`."), "");
                    let kept = text.lines().filter(|line| !line.starts_with(") ORGANIZATION"));
                    shown.push(kept.collect::<Vec<_>>().join("\n"));
                }
            }
            Dialect::Sqlite => {
                if !self.path().exists() {
                    return Ok(shown);
                }
                let mut conn = self.file().await?;
                let sql = "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master";
                for row in sqlx::query(sql).fetch_all(&mut conn).await? {
                    shown.push(row.try_get(0)?);
                }
            }
        }
        shown.sort();
        Ok(shown)
    }

    async fn file(&self) -> anyhow::Result<SqliteConnection> {
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(self.path())
            .create_if_missing(true);
        Ok(SqliteConnection::connect_with(&options).await?)
    }
}
