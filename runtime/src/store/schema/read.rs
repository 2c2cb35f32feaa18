//! Reads what a database holds, with a connection of its own: the pools of the runtime have limits made for transactions,
//! and a schema is read before there is a pool.

use std::path::Path;
use std::time::Duration;

use rusqlite::OpenFlags;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};

use crate::rt;
use crate::store::conn::Dialect;
use crate::store::error::{Down, TxError, classify, corrupt, sqlite};
use crate::store::migrate::plan::{Found, StoredRevision};
use crate::store::schema::ddl::{Catalog, Table};
use crate::store::url::DatabaseUrl;

/// Longest wait for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long SQLite waits for a lock of another process on the file.
const SQLITE_BUSY_WAIT: Duration = Duration::from_secs(5);

/// DDL may run long; the lease of the migrator is renewed while it does.
const SESSION: &str = "-- schema.session
SET time_zone = '+00:00', ob_query_timeout = 3600000000, ob_trx_timeout = 3600000000, ob_trx_lock_timeout = 5000000,
    autocommit = 1";

const REVISIONS: &str = "-- schema_revisions.all
SELECT revision, name, checksum, oldest_reader, completed_at IS NOT NULL AS completed, statements_done
FROM pc_schema_revisions ORDER BY revision";

/// Everything in a database; a SQLite file that is not there holds nothing.
pub(crate) async fn found(url: &DatabaseUrl) -> Result<(Dialect, Found), TxError> {
    match url {
        DatabaseUrl::OceanBase(options) => {
            let mut conn = connect_oceanbase(options).await?;
            let found = found_oceanbase(&mut conn).await;
            // Whether the goodbye arrives changes nothing.
            let _ = conn.close().await;
            Ok((Dialect::OceanBase, found?))
        }
        DatabaseUrl::Sqlite(path) => {
            if !path.exists() {
                return Ok((Dialect::Sqlite, Found::default()));
            }
            Ok((Dialect::Sqlite, found_sqlite(&connect_sqlite(path, false)?)?))
        }
    }
}

pub(crate) async fn connect_oceanbase(options: &MySqlConnectOptions) -> Result<MySqlConnection, TxError> {
    // No statement runs yet, so giving up here leaves nothing behind.
    let mut conn = rt::within(CONNECT_WAIT, MySqlConnection::connect_with(options))
        .await
        .map_err(|_| TxError::Down(Down::Connection))?
        .map_err(|error| oceanbase(&error))?;
    sqlx::raw_sql(SESSION)
        .execute(&mut conn)
        .await
        .map_err(|error| oceanbase(&error))?;
    Ok(conn)
}

pub(crate) fn connect_sqlite(path: &Path, create: bool) -> Result<rusqlite::Connection, TxError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let open = || {
        let conn = rusqlite::Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(SQLITE_BUSY_WAIT)?;
        conn.execute_batch("PRAGMA foreign_keys = ON")?;
        Ok(conn)
    };
    open().map_err(|error| sqlite(&error))
}

pub(crate) async fn found_oceanbase(conn: &mut MySqlConnection) -> Result<Found, TxError> {
    let fail = |error: sqlx::Error| oceanbase(&error);
    let sql = "-- schema.tables
SELECT CAST(table_name AS CHAR) AS name FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND LEFT(table_name, 3) = 'pc_' ORDER BY table_name";
    let rows = sqlx::query(sql).fetch_all(&mut *conn).await.map_err(fail)?;
    let mut found = Found::default();
    for row in rows {
        let name: String = row.try_get("name").map_err(fail)?;
        let shown = if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let sql = format!("-- schema.table\nSHOW CREATE TABLE `{name}`");
            let row = sqlx::raw_sql(AssertSqlSafe(sql))
                .fetch_one(&mut *conn)
                .await
                .map_err(fail)?;
            row.try_get::<String, _>(1).map_err(fail)?
        } else {
            String::new()
        };
        add(&mut found.catalog, name, &shown);
    }
    if found.catalog.tables.contains_key("pc_schema_revisions") {
        for row in sqlx::query(REVISIONS).fetch_all(&mut *conn).await.map_err(fail)? {
            let text = |column| row.try_get::<Vec<u8>, _>(column).map_err(fail);
            found.revisions.push(stored(
                row.try_get("revision").map_err(fail)?,
                String::from_utf8(text("name")?).map_err(|_| corrupt("name"))?,
                String::from_utf8(text("checksum")?).map_err(|_| corrupt("checksum"))?,
                row.try_get("oldest_reader").map_err(fail)?,
                row.try_get::<i64, _>("completed").map_err(fail)? != 0,
                row.try_get("statements_done").map_err(fail)?,
            )?);
        }
    }
    Ok(found)
}

pub(crate) fn found_sqlite(conn: &rusqlite::Connection) -> Result<Found, TxError> {
    let fail = |error: rusqlite::Error| sqlite(&error);
    // The tables in which FTS5 keeps an index are its own affair.
    let sql = "-- schema.objects
SELECT name, sql FROM sqlite_master
WHERE sql IS NOT NULL AND substr(tbl_name, 1, 3) = 'pc_'
  AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow')
ORDER BY type <> 'table', rowid";
    let mut found = Found::default();
    let mut statement = conn.prepare(sql).map_err(fail)?;
    let mut rows = statement.query([]).map_err(fail)?;
    while let Some(row) = rows.next().map_err(fail)? {
        let shown: String = row.get("sql").map_err(fail)?;
        add(&mut found.catalog, row.get("name").map_err(fail)?, &shown);
    }
    if found.catalog.tables.contains_key("pc_schema_revisions") {
        let mut statement = conn.prepare(REVISIONS).map_err(fail)?;
        let mut rows = statement.query([]).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            found.revisions.push(stored(
                row.get("revision").map_err(fail)?,
                row.get("name").map_err(fail)?,
                row.get("checksum").map_err(fail)?,
                row.get("oldest_reader").map_err(fail)?,
                row.get("completed").map_err(fail)?,
                row.get("statements_done").map_err(fail)?,
            )?);
        }
    }
    Ok(found)
}

/// A table that cannot be read is a table without columns: a difference with a name, not a failure without one.
fn add(catalog: &mut Catalog, name: String, shown: &str) {
    if catalog.apply(shown).is_err() {
        catalog.tables.insert(name, Table::default());
    }
}

fn stored(
    number: i64,
    name: String,
    checksum: String,
    oldest_reader: i64,
    completed: bool,
    done: i64,
) -> Result<StoredRevision, TxError> {
    Ok(StoredRevision {
        number: u32::try_from(number).map_err(|_| corrupt("revision"))?,
        name,
        checksum,
        oldest_reader: u32::try_from(oldest_reader).map_err(|_| corrupt("oldest_reader"))?,
        completed,
        statements_done: usize::try_from(done).map_err(|_| corrupt("statements_done"))?,
    })
}

pub(crate) fn oceanbase(error: &sqlx::Error) -> TxError {
    classify(error)
}
