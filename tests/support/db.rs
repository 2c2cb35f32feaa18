//! A migrated database for one conformance test, of either engine.
//!
//! SQLite: a file of the test's own. OceanBase: one schema for the test process, shared by its tests, so every test
//! works in scopes of its own; [`TestDb::scope`] makes them. A connection pool belongs to the runtime that opened it,
//! so every test opens its own.

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext::store::migrate::{Code, Mode, migrate};
use powercontext::store::{DatabaseUrl, Db, DbLimits, Dialect};
use powercontext_core::ids::ScopeId;
use powercontext_core::time::Span;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::oceanbase;
use crate::raw::Raw;

/// Connections of a test's OceanBase pool unless it asks for another number.
const CONNECTIONS: u32 = 8;

static OCEANBASE_MIGRATED: OnceCell<()> = OnceCell::const_new();
/// Migrated schemas that no test uses just now.
static IDLE: Mutex<Vec<oceanbase::Server>> = Mutex::new(Vec::new());

/// A migrated database and the scopes of one test in it.
#[derive(Debug)]
pub struct TestDb {
    /// The database.
    pub db: Db,
    url: String,
    prefix: String,
    /// Keeps the file of a SQLite database.
    _directory: Option<TempDir>,
    /// Gives a schema of its own back.
    _lent: Option<Lent>,
}

/// A schema that one test has for itself. One whose test failed is not used again.
#[derive(Debug)]
struct Lent(Option<oceanbase::Server>);

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(server) = self.0.take().filter(|_| !std::thread::panicking()) {
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(server);
        }
    }
}

impl TestDb {
    /// A fresh SQLite file.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub async fn sqlite() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("powercontext.db");
        let url = path.to_str().context("a temporary path that is not UTF-8")?.to_owned();
        migrated(&url).await?;
        Self::over(url, Some(directory), None).await
    }

    /// This process's schema on the OceanBase server under test.
    ///
    /// # Errors
    /// When no server is named or it does not answer.
    pub async fn oceanbase() -> anyhow::Result<Self> {
        let server = oceanbase::url().await?;
        OCEANBASE_MIGRATED.get_or_try_init(|| migrated(server.url())).await?;
        Self::over(server.url().to_owned(), None, None).await
    }

    /// A schema on the OceanBase server under test that no other test uses meanwhile, without rows: for tests of what
    /// looks at all rows, as a claim does.
    ///
    /// # Errors
    /// When no server is named or it does not answer.
    pub async fn oceanbase_alone() -> anyhow::Result<Self> {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let server = if let Some(server) = idle {
            Raw::connect(server.url()).await?.empty().await?;
            server
        } else {
            let server = oceanbase::fresh().await?;
            migrated(server.url()).await?;
            server
        };
        Self::over(server.url().to_owned(), None, Some(Lent(Some(server)))).await
    }

    async fn over(url: String, directory: Option<TempDir>, lent: Option<Lent>) -> anyhow::Result<Self> {
        Ok(Self {
            db: open(&url, CONNECTIONS).await?,
            url,
            prefix: rt::hex_id()[..12].to_owned(),
            _directory: directory,
            _lent: lent,
        })
    }

    /// The same database behind a pool of its own.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn reopened(&self, connections: u32) -> anyhow::Result<Db> {
        open(&self.url, connections).await
    }

    /// Where the database is: a URL for OceanBase, which may hold a password, a path for SQLite.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The engine.
    pub fn dialect(&self) -> Dialect {
        self.db.dialect()
    }

    /// A scope that no other test uses. Names that differ in one byte make scopes that differ in that byte.
    ///
    /// # Errors
    /// When the name cannot be part of a scope's.
    pub fn scope(&self, name: &str) -> anyhow::Result<ScopeId> {
        Ok(ScopeId::parse(format!("{}/{name}", self.prefix))?)
    }
}

async fn migrated(url: &str) -> anyhow::Result<()> {
    let mode = Mode::Apply {
        wait: Span::seconds(30),
    };
    let report = migrate(&DatabaseUrl::parse(url)?, mode, &mut |_| {}).await;
    ensure!(report.code == Code::Done, "the schema was not made: {report:?}");
    Ok(())
}

async fn open(url: &str, connections: u32) -> anyhow::Result<Db> {
    let url = DatabaseUrl::parse(url)?;
    Ok(Db::open(&url, DbLimits::for_lease(Span::seconds(30), connections)).await?)
}

/// Runs tests, each an `async fn(TestDb) -> anyhow::Result<()>` of the module, on SQLite and on OceanBase.
#[macro_export]
macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::db::TestDb::sqlite().await?).await
            })*
        }

        mod oceanbase {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::db::TestDb::oceanbase().await?).await
            })*
        }
    };
}
