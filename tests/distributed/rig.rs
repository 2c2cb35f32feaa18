//! One deployment: a migrated database, a model that does what the test says, and processes of each role.

use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::settled;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{END_WITHIN, Server, Setup};
use powercontext_tests::wait::until;

/// Longest wait for anything that takes a lease to expire, or a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(40);
/// The fence under which a process leads all families.
pub(crate) const GLOBAL: &str = "powercontext_supervisor_fence{lease=\"global\"}";

/// A deployment without processes yet.
pub(crate) struct Deployment {
    pub(crate) database: Database,
    pub(crate) provider: Provider,
    setup: Setup,
}

impl Deployment {
    /// A deployment whose database has been migrated.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let deployment = Self::unmigrated().await?;
        let migrated = deployment.setup.run(&["server", "migrate"]).await?;
        ensure!(migrated.status.success(), "{migrated:?}");
        Ok(deployment)
    }

    /// A migrated deployment that looks for new Sources of each scope every second.
    pub(crate) async fn scheduled() -> anyhow::Result<Self> {
        Ok(Self::new().await?.with("RUNTIME_MEMORY_SCHEDULE_SECONDS", "1"))
    }

    /// A deployment on an empty database.
    pub(crate) async fn unmigrated() -> anyhow::Result<Self> {
        let database = Database::oceanbase().await?;
        let provider = Provider::start().await?;
        let setup = Setup::new(&database, &provider)
            .with("COORDINATION_ALLOW_SEEKDB_SERVER", "true")
            .with("COORDINATION_SCHEDULER_LEASE_SECONDS", "3")
            .with("COORDINATION_SCHEDULER_RENEW_SECONDS", "1");
        Ok(Self {
            database,
            provider,
            setup,
        })
    }

    /// Takes every table away, whoever had the schema before.
    pub(crate) async fn drop_tables(&self) -> anyhow::Result<()> {
        let tables = "select table_name from information_schema.tables where table_schema = database()";
        let mut raw = self.database.raw().await?;
        raw.execute("set foreign_key_checks = 0").await?;
        for table in raw.rows(tables).await? {
            raw.execute(&format!("drop table {}", table.text(0)?)).await?;
        }
        Ok(())
    }

    /// The same with this setting for every process.
    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.setup = self.setup.with(key, value);
        self
    }

    /// Processes of a role.
    pub(crate) fn role(&self, role: &str) -> Setup {
        let setup = self.setup.clone().with("DEPLOYMENT_MODE", "distributed");
        setup.with("DEPLOYMENT_ROLE", role)
    }

    /// Starts a process of a role and waits until it is ready.
    pub(crate) async fn start(&self, role: &str) -> anyhow::Result<Server> {
        self.role(role).start().await
    }

    /// Runs another command of the program to its end, which must be a good one.
    pub(crate) async fn command(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let ran = self.role("api").run(arguments).await?;
        ensure!(ran.status.success(), "{arguments:?}: {ran:?}");
        Ok(())
    }

    /// Two Workers, two Schedulers and two APIs.
    pub(crate) async fn all(&self) -> anyhow::Result<Six> {
        Ok(Six {
            workers: [self.start("worker").await?, self.start("worker").await?],
            schedulers: [self.start("scheduler").await?, self.start("scheduler").await?],
            apis: [self.start("api").await?, self.start("api").await?],
        })
    }

    /// Member that holds the global lease, and the fence of its term; `None` while nobody does.
    pub(crate) async fn leader(&self) -> anyhow::Result<Option<(String, i64)>> {
        let sql = "select owner_id, fence from pc_scheduler_leases
                   where lease_name = 'global' and owner_id is not null and lease_expires_at > utc_timestamp(6)";
        let rows = self.database.raw().await?.rows(sql).await?;
        rows.first().map(|row| Ok((row.text(0)?, row.int(1)?))).transpose()
    }

    /// Waits for a leader with a fence above this one.
    pub(crate) async fn led_above(&self, fence: i64) -> anyhow::Result<(String, i64)> {
        until("somebody leads under a higher fence", SOON, async || {
            Ok(self.leader().await?.filter(|(_, now)| *now > fence))
        })
        .await
    }

    /// Member that runs an operation.
    pub(crate) async fn runner(&self, operation: &str) -> anyhow::Result<String> {
        let sql = format!("select lease_owner from pc_work_items where work_id = '{operation}'");
        let rows = self.database.raw().await?.rows(&sql).await?;
        rows.first().context("no such operation")?.text(0)
    }

    /// Items that run in their first attempt under a lease that is not over, this one aside.
    pub(crate) async fn held(&self, apart: &str) -> anyhow::Result<i64> {
        let sql = format!(
            "select count(*) from pc_work_items
             where status = 'running' and attempt_count = 1 and lease_expires_at > utc_timestamp(6) and work_id <> '{apart}'"
        );
        facts::number(&self.database, &sql).await
    }

    /// Waits until everything of a scope is read although nobody asks for it, which must have made one revision.
    pub(crate) async fn reads_by_itself(&self, api: &Server, scope: &str, sources: i64) -> anyhow::Result<()> {
        until("everything is read", SOON, async || {
            let (cursor, head) = facts::cursor_and_head(&self.database, scope).await?;
            Ok((cursor == head && head == sources).then_some(()))
        })
        .await?;
        settled(&self.database, &api.client, scope, sources).await
    }

    /// Whether no rule of the ledger is broken.
    pub(crate) async fn holds(&self) -> anyhow::Result<()> {
        facts::hold(&self.database).await
    }
}

/// Two processes of each role.
pub(crate) struct Six {
    pub(crate) workers: [Server; 2],
    pub(crate) schedulers: [Server; 2],
    pub(crate) apis: [Server; 2],
}

impl Six {
    /// Ends all of them in order.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for server in self.apis.into_iter().chain(self.schedulers).chain(self.workers) {
            server.stop().await?;
        }
        Ok(())
    }
}

/// The value of a series on a process's `/metrics`.
pub(crate) async fn metric(server: &Server, series: &str) -> anyhow::Result<i64> {
    let text = server.client.get("/metrics").await?.expect(200)?.text;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = line.with_context(|| format!("no {series} in:\n{text}"))?;
    Ok(value.parse()?)
}

/// Waits until this process leads under a lease, and answers its fence.
pub(crate) async fn leads(server: &Server, series: &str) -> anyhow::Result<i64> {
    until("a leader", SOON, async || {
        let fence = metric(server, series).await?;
        Ok((fence > 0).then_some(fence))
    })
    .await
}

/// What a process says of its readiness.
pub(crate) async fn checks(server: &Server) -> anyhow::Result<serde_json::Value> {
    Ok(server.client.ready().await?.body)
}

/// Starts a process that is refused before it listens, and answers what it said.
pub(crate) async fn refused(setup: &Setup) -> anyhow::Result<String> {
    let mut server = setup.spawn().await?;
    let status = server.ended(END_WITHIN).await?;
    let log = server.log();
    ensure!(status.code() == Some(2), "{status}:\n{log}");
    ensure!(!log.contains("listening"), "{log}");
    Ok(log)
}

/// The one of two processes whose log says that it runs as this member, and the other.
pub(crate) fn by_member(pair: [Server; 2], member: &str) -> anyhow::Result<(Server, Server)> {
    let [first, second] = pair;
    if first.log().contains(member) {
        Ok((first, second))
    } else {
        ensure!(second.log().contains(member), "no process runs as {member}");
        Ok((second, first))
    }
}
