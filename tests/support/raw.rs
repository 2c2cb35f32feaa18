//! A connection of a test beside the store's own: it reads rows as they are, and moves stored times where a test would
//! otherwise have to wait for them.

use anyhow::Context;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Connection, Row};

/// A connection of either engine.
#[derive(Debug)]
pub enum Raw {
    /// To OceanBase, with the zone and isolation that the server gives by default.
    OceanBase(Box<MySqlConnection>),
    /// To a SQLite file.
    Sqlite(Box<SqliteConnection>),
}

/// One row; columns by their place.
#[derive(Debug)]
pub enum RawRow {
    /// From OceanBase.
    OceanBase(MySqlRow),
    /// From SQLite.
    Sqlite(SqliteRow),
}

impl Raw {
    /// Connects to what [`TestDb::url`](crate::db::TestDb::url) names.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        if url.starts_with("mysql://") {
            // The error of the driver may quote the URL, which may hold a password.
            let conn = MySqlConnection::connect(url).await.ok();
            return Ok(Self::OceanBase(Box::new(conn.context("the server does not answer")?)));
        }
        let options = SqliteConnectOptions::new().filename(url);
        let conn = SqliteConnection::connect_with(&options).await?;
        Ok(Self::Sqlite(Box::new(conn)))
    }

    /// Runs a statement and answers how many rows it touched.
    ///
    /// # Errors
    /// What the database answers.
    pub async fn execute(&mut self, sql: &str) -> anyhow::Result<u64> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        Ok(match self {
            Self::OceanBase(conn) => query.execute(&mut **conn).await?.rows_affected(),
            Self::Sqlite(conn) => query.execute(&mut **conn).await?.rows_affected(),
        })
    }

    /// Runs a query.
    ///
    /// # Errors
    /// What the database answers.
    pub async fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<RawRow>> {
        let sql = AssertSqlSafe(sql.to_owned());
        Ok(match self {
            Self::OceanBase(conn) => {
                let rows = sqlx::query(sql).fetch_all(&mut **conn).await?;
                rows.into_iter().map(RawRow::OceanBase).collect()
            }
            Self::Sqlite(conn) => {
                let rows = sqlx::query(sql).fetch_all(&mut **conn).await?;
                rows.into_iter().map(RawRow::Sqlite).collect()
            }
        })
    }

    /// A moment on the database's clock, so many seconds before now (after it when negative), as an expression.
    pub fn ago(&self, seconds: i32) -> String {
        match self {
            Self::OceanBase(_) => format!("(utc_timestamp(6) - interval {seconds} second)"),
            Self::Sqlite(_) => format!("cast((unixepoch('subsec') - {seconds}) * 1000000 as integer)"),
        }
    }

    /// Deletes every row but the record of the schema's revisions.
    ///
    /// # Errors
    /// What the database answers.
    pub async fn empty(&mut self) -> anyhow::Result<()> {
        self.execute("set foreign_key_checks = 0").await?;
        for row in self.rows("show tables").await? {
            let table = row.text(0)?;
            if table != "pc_schema_revisions" {
                self.execute(&format!("delete from {table}")).await?;
            }
        }
        Ok(())
    }
}

impl RawRow {
    /// A whole number or NULL.
    ///
    /// # Errors
    /// When the column holds something else.
    pub fn opt_int(&self, column: usize) -> anyhow::Result<Option<i64>> {
        Ok(match self {
            Self::OceanBase(row) => row.try_get(column)?,
            Self::Sqlite(row) => row.try_get(column)?,
        })
    }

    /// A whole number.
    ///
    /// # Errors
    /// When the column holds something else.
    pub fn int(&self, column: usize) -> anyhow::Result<i64> {
        self.opt_int(column)?.context("NULL instead of a number")
    }

    /// A text, or bytes that are one, or NULL.
    ///
    /// # Errors
    /// When the column holds something else.
    pub fn opt_text(&self, column: usize) -> anyhow::Result<Option<String>> {
        match self {
            Self::OceanBase(row) => {
                let bytes: Option<Vec<u8>> = row.try_get_unchecked(column)?;
                Ok(bytes.map(String::from_utf8).transpose()?)
            }
            Self::Sqlite(row) => Ok(row.try_get(column)?),
        }
    }

    /// A text, or bytes that are one.
    ///
    /// # Errors
    /// When the column holds something else.
    pub fn text(&self, column: usize) -> anyhow::Result<String> {
        self.opt_text(column)?.context("NULL instead of a text")
    }
}
