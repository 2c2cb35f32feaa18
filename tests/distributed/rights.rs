//! What a role needs of the database: rows, and no more.

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::kit::{capture, flush, settled};
use powercontext_tests::raw::Raw;
use powercontext_tests::wait::until;
use reqwest::Url;

use crate::rig::{Deployment, SOON};

/// A user of a deployment's database, and the URL by which it connects.
struct Account {
    url: Url,
    user: String,
    admin: Raw,
}

impl Account {
    async fn new(deployment: &Deployment, rights: &str) -> anyhow::Result<Self> {
        let mut url = Url::parse(deployment.database.url())?;
        let schema = url.path().trim_start_matches('/').to_owned();
        let (user, password) = (format!("pc_test_{}", &rt::hex_id()[..12]), rt::hex_id());
        let mut admin = deployment.database.raw().await?;
        let create = format!("create user '{user}' identified by '{password}'");
        admin.execute(&create).await?;
        admin
            .execute(&format!("grant {rights} on {schema}.* to '{user}'"))
            .await?;
        url.set_username(&user).ok().context("a URL that takes no user")?;
        url.set_password(Some(&password))
            .ok()
            .context("a URL that takes no password")?;
        Ok(Self { url, user, admin })
    }

    async fn end(mut self) -> anyhow::Result<()> {
        // The server refuses (1396) while another change of its accounts or schemas is under way.
        until("the account is dropped", SOON, async || {
            let dropped = self
                .admin
                .execute(&format!("drop user if exists '{}'", self.user))
                .await;
            Ok(dropped.ok())
        })
        .await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_runs_on_an_account_that_may_only_select_insert_update_and_delete() -> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let account = Account::new(&deployment, "select, insert, update, delete").await?;
    let url = &account.url;
    let mut restricted = Raw::connect(url.as_str()).await?;
    for ddl in [
        "create table pc_mine (id int)",
        "alter table pc_work_items add mine int",
        "drop table pc_work_attempts",
        "truncate table pc_work_attempts",
    ] {
        ensure!(restricted.execute(ddl).await.is_err(), "it may {ddl}");
    }

    let deployment = deployment.with("DATABASE_URL", url.as_str());
    let mut servers = Vec::new();
    for role in ["api", "scheduler", "worker", "background"] {
        servers.push(deployment.start(role).await?);
    }
    let api = &servers[0];
    capture(&api.client, "house", 3).await?;
    let operation = flush(&api.client, "house").await?;
    api.client.operation_is(&operation, "succeeded", SOON).await?;
    settled(&deployment.database, &api.client, "house", 3).await?;
    // By schedule, without being asked for.
    capture(&api.client, "garden", 3).await?;
    deployment.reads_by_itself(api, "garden", 3).await?;
    for server in servers {
        let log = server.stop_and_log().await?;
        ensure!(!log.contains("ERROR"), "{log}");
    }
    account.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jobs_need_no_more_rights_than_the_table_of_roles_says() -> anyhow::Result<()> {
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md"))?;
    let rights = |process: &str| -> anyhow::Result<String> {
        let row = table.lines().find(|line| line.starts_with(&format!("| {process} |")));
        let cells: Vec<&str> = row.context("a row")?.split('|').map(str::trim).collect();
        Ok(cells
            .get(5)
            .context("rights")?
            .replace(" beside those", ", SELECT, INSERT, UPDATE, DELETE"))
    };
    let deployment = Deployment::unmigrated().await?;
    deployment.drop_tables().await?;
    for (process, arguments) in [
        ("plan", &["server", "migrate", "--plan"][..]),
        ("migrate", &["server", "migrate"]),
        ("switch-mode", &["server", "switch-mode", "--to", "dedicated"]),
    ] {
        let account = Account::new(&deployment, &rights(process)?).await?;
        let job = deployment.role("worker").with("DATABASE_URL", account.url.as_str());
        let output = job.run(arguments).await?;
        ensure!(output.status.success(), "{process}: {output:?}");
        account.end().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_told_apart_from_one_that_refuses() -> anyhow::Result<()> {
    const ABSENT: &str = "pc_not_there";
    let deployment = Deployment::unmigrated().await?;
    let account = Account::new(&deployment, "select").await?;
    let mut wrong = account.url.clone();
    let _ = wrong.set_password(Some("S3cret-but-wrong"));
    let absent = |url: &Url| {
        let mut url = url.clone();
        url.set_path(ABSENT);
        url
    };
    for (url, told, advice) in [
        (
            absent(&Url::parse(deployment.database.url())?),
            "the server has no database of this name",
            "What to do: create the database, or correct its name",
        ),
        (
            absent(&account.url),
            "access refused",
            "What to do: check user, password, database and rights",
        ),
        (
            wrong,
            "access refused",
            "What to do: check user, password, database and rights",
        ),
    ] {
        let setup = deployment.role("api").with("DATABASE_URL", url.as_str());
        let name = url.path().trim_start_matches('/');
        let place = format!(
            "Where: oceanbase at {}:{}/{name}.",
            url.host_str().unwrap_or_default(),
            url.port().unwrap_or_default()
        );
        for (arguments, status) in [
            (&["server", "migrate"][..], 2),
            (&["server", "migrate", "--plan"], 2),
            (&["server", "run"], 1),
            (&["server", "work", "list"], 1),
        ] {
            let output = setup.run(arguments).await?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(status), "{arguments:?}: {output:?}");
            for part in [told, &place, advice] {
                ensure!(said.contains(part), "{arguments:?} does not say {part:?}: {output:?}");
            }
            let all = [&output.stdout[..], &output.stderr].concat();
            let all = String::from_utf8_lossy(&all);
            ensure!(
                url.password().is_none_or(|secret| !all.contains(secret)),
                "{arguments:?} tells the password"
            );
        }
    }
    account.end().await
}
