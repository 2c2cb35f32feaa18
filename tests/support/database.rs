//! A database for one test's server processes, of either engine. The servers migrate it themselves, as they do anywhere.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::oceanbase;
use crate::raw::Raw;
use crate::wait::until;

/// How long locks of a server that was killed may hold up the emptying of its schema.
const EMPTIED_WITHIN: Duration = Duration::from_secs(20);

/// Schemas that no test uses just now: making and dropping one takes longer than most tests.
static IDLE: Mutex<Vec<oceanbase::Server>> = Mutex::new(Vec::new());

/// A database without a row of anybody else, and a folder beside it.
#[derive(Debug)]
pub struct Database {
    url: String,
    folder: TempDir,
    lent: Option<oceanbase::Server>,
}

impl Drop for Database {
    fn drop(&mut self) {
        // The schema of a failed test is not used again: its server may still be at work.
        if let Some(schema) = self.lent.take().filter(|_| !std::thread::panicking()) {
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(schema);
        }
    }
}

impl Database {
    /// A SQLite file that does not exist yet.
    ///
    /// # Errors
    /// When there is no place for it.
    pub async fn sqlite() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("powercontext.db");
        let url = path.to_str().context("a temporary path that is not UTF-8")?.to_owned();
        // As the other engine's, so that both can be named in one macro.
        std::future::ready(Ok(Self {
            url,
            folder,
            lent: None,
        }))
        .await
    }

    /// An empty schema on the OceanBase server under test.
    ///
    /// # Errors
    /// When no server is named or it does not answer.
    pub async fn oceanbase() -> anyhow::Result<Self> {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let schema = match idle {
            Some(schema) => {
                until("a used schema is empty", EMPTIED_WITHIN, async || {
                    Raw::connect(schema.url()).await?.empty().await.map(Some)
                })
                .await?;
                schema
            }
            None => oceanbase::fresh().await?,
        };
        Self::on(schema)
    }

    /// A schema on the OceanBase server under test that nobody has migrated yet.
    ///
    /// # Errors
    /// When no server is named or it does not answer.
    pub async fn oceanbase_unused() -> anyhow::Result<Self> {
        Self::on(oceanbase::fresh().await?)
    }

    fn on(schema: oceanbase::Server) -> anyhow::Result<Self> {
        Ok(Self {
            url: schema.url().to_owned(),
            folder: tempfile::tempdir()?,
            lent: Some(schema),
        })
    }

    /// What a server is told as `DATABASE_URL`: a path for SQLite, a URL for OceanBase, which may hold a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is a file.
    pub fn is_sqlite(&self) -> bool {
        self.lent.is_none()
    }

    /// The file, on SQLite.
    ///
    /// # Errors
    /// On OceanBase.
    pub fn file(&self) -> anyhow::Result<&Path> {
        self.is_sqlite()
            .then(|| Path::new(&self.url))
            .context("OceanBase has no file")
    }

    /// Names another place for the SQLite file, which does not exist yet.
    ///
    /// # Errors
    /// When the path is not UTF-8.
    pub fn move_file(&mut self, to: impl AsRef<Path>) -> anyhow::Result<()> {
        let to = to.as_ref().to_str().context("a path that is not UTF-8")?;
        to.clone_into(&mut self.url);
        Ok(())
    }

    /// A path in the test's own folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A connection beside the servers'.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn raw(&self) -> anyhow::Result<Raw> {
        Raw::connect(&self.url).await
    }
}

/// Runs tests, each an `async fn(Database) -> anyhow::Result<()>` of the module, on SQLite and on OceanBase.
#[macro_export]
macro_rules! on_both_databases {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::database::Database::sqlite().await?).await
            })*
        }

        mod oceanbase {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name($crate::database::Database::oceanbase().await?).await
            })*
        }
    };
}
