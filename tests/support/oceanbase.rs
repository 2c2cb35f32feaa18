//! A schema of its own on the OceanBase server under test, one for each test process.
//!
//! `make test` starts a kernel and names it in `POWERCONTEXT_TEST_OCEANBASE_URL`; a developer may name another server
//! there. The schema is called `pc_test_<second it was made>_<random>`. It goes away when the process ends, however that
//! happens: `drop-test-schema` waits outside the process for its end. What a lost machine leaves behind is dropped by the
//! next run once it is a day old.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, bail};
use powercontext::rt;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::OnceCell;

/// Names the server, `mysql://user:password@host:port`; a schema in it is ignored.
pub const URL_VARIABLE: &str = "POWERCONTEXT_TEST_OCEANBASE_URL";

/// What every schema name of the tests starts with.
pub const PREFIX: &str = "pc_test_";

const KEEP_LEFTOVERS_SECONDS: i64 = 24 * 60 * 60;

/// A schema of this test process.
pub struct Server {
    url: String,
    schema: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Where to connect, schema included. May hold a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Name of the schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }
}

static SERVER: OnceCell<Server> = OnceCell::const_new();
static WATCHERS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// The server under test with this process's own empty schema; the first caller makes it.
///
/// # Errors
/// When no server is named or it does not answer.
pub async fn url() -> anyhow::Result<&'static Server> {
    SERVER.get_or_try_init(fresh).await
}

/// One more empty schema on the server under test, for a test that cannot share: migrations, start-up checks.
///
/// # Errors
/// When no server is named or it does not answer.
pub async fn fresh() -> anyhow::Result<Server> {
    let server = crate::env(URL_VARIABLE)
        .with_context(|| format!("no OceanBase server: run `make test`, or name one in {URL_VARIABLE}"))?;
    let admin = with_schema(&server, "oceanbase")?;
    let mut conn = connect(&admin).await?;
    drop_leftovers(&mut conn).await?;
    let schema = create(&mut conn).await?;
    conn.close().await?;
    watch(&admin, &schema)?;
    Ok(Server {
        url: with_schema(&server, &schema)?,
        schema,
    })
}

/// Drops a schema of the tests.
///
/// # Errors
/// When the name is not one of theirs or the server does not answer.
pub async fn drop_schema(admin: &str, schema: &str) -> anyhow::Result<()> {
    let mut conn = connect(admin).await?;
    execute(&mut conn, "drop database if exists", schema).await?;
    Ok(conn.close().await?)
}

async fn connect(url: &str) -> anyhow::Result<MySqlConnection> {
    // The error of the driver may quote the URL, which may hold a password.
    let connected = MySqlConnection::connect(url).await;
    connected.map_err(|_| anyhow::anyhow!("the server named in {URL_VARIABLE} does not answer"))
}

async fn create(conn: &mut MySqlConnection) -> anyhow::Result<String> {
    let now = now(conn).await?;
    let schema = format!("{PREFIX}{now}_{}", &rt::hex_id()[..12]);
    execute(conn, "create database", &schema).await?;
    Ok(schema)
}

async fn now(conn: &mut MySqlConnection) -> anyhow::Result<i64> {
    let row = sqlx::raw_sql("select cast(unix_timestamp() as signed)")
        .fetch_one(conn)
        .await?;
    Ok(row.try_get(0)?)
}

async fn drop_leftovers(conn: &mut MySqlConnection) -> anyhow::Result<()> {
    let oldest = now(conn).await? - KEEP_LEFTOVERS_SECONDS;
    let rows = sqlx::raw_sql("show databases").fetch_all(&mut *conn).await?;
    for row in rows {
        let schema: String = row.try_get(0)?;
        if made_at(&schema).is_some_and(|second| second < oldest) {
            execute(conn, "drop database if exists", &schema).await?;
        }
    }
    Ok(())
}

/// The second in a schema's name; `None` for a name that is not ours.
fn made_at(schema: &str) -> Option<i64> {
    let (second, random) = schema.strip_prefix(PREFIX)?.split_once('_')?;
    let is_ours = !random.is_empty() && random.bytes().all(|b| b.is_ascii_hexdigit());
    second.parse().ok().filter(|_| is_ours)
}

/// Names cannot be bound as parameters; `made_at` accepts nothing that would need quoting.
async fn execute(conn: &mut MySqlConnection, verb: &str, schema: &str) -> anyhow::Result<()> {
    if made_at(schema).is_none() {
        bail!("{schema:?} is no schema of the tests");
    }
    sqlx::raw_sql(AssertSqlSafe(format!("{verb} {schema}")))
        .execute(conn)
        .await?;
    Ok(())
}

/// Starts the program that drops the schema when this process is gone. It is told by the end of its standard input, and
/// has a process group of its own, so that an interrupt at the keyboard does not end it first.
fn watch(admin: &str, schema: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::process::CommandExt;

    let mut child = Command::new(crate::binary::named("drop-test-schema")?)
        .arg(schema)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("starting drop-test-schema")?;
    let stdin = child.stdin.as_mut().context("drop-test-schema has no standard input")?;
    writeln!(stdin, "{admin}")?;
    WATCHERS
        .lock()
        .map_err(|_| anyhow::anyhow!("a test panicked while it made a schema"))?
        .push(child);
    Ok(())
}

/// The URL with its schema replaced.
fn with_schema(url: &str, schema: &str) -> anyhow::Result<String> {
    let (base, query) = url
        .split_once('?')
        .map_or((url, None), |(base, query)| (base, Some(query)));
    let Some((protocol, rest)) = base.split_once("://") else {
        bail!("{URL_VARIABLE} is no URL of the form mysql://user:password@host:port");
    };
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    let query = query.map(|q| format!("?{q}")).unwrap_or_default();
    Ok(format!("{protocol}://{authority}/{schema}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_a_url_is_replaced_and_the_rest_kept() {
        for (url, want) in [
            ("mysql://root@127.0.0.1:2881", "mysql://root@127.0.0.1:2881/s"),
            ("mysql://root@127.0.0.1:2881/test", "mysql://root@127.0.0.1:2881/s"),
            (
                "mysql://u:p%2F@h/x?ssl-mode=disabled",
                "mysql://u:p%2F@h/s?ssl-mode=disabled",
            ),
        ] {
            assert_eq!(with_schema(url, "s").expect("a URL"), want);
        }
        assert!(with_schema("127.0.0.1:2881", "s").is_err());
    }

    #[test]
    fn only_schemas_of_the_tests_are_ever_dropped() {
        assert_eq!(made_at("pc_test_1795993783_0a1b2c3d4e5f"), Some(1_795_993_783));
        for foreign in [
            "test",
            "pc_test_",
            "pc_test_x_0a",
            "pc_test_1_",
            "pc_test_1_0a; drop",
            "powercontext",
        ] {
            assert_eq!(made_at(foreign), None, "{foreign}");
        }
    }
}
