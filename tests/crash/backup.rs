//! The guide about backups, followed on both engines: a backup of a server at work, restored as it says, goes on with its work.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use powercontext_tests::database::Database;
use powercontext_tests::kit::{SOON, capture, flush, settled};
use powercontext_tests::raw::Raw;
use powercontext_tests::server::Setup;

use crate::story::{SCOPE, SOURCES, Story};

powercontext_tests::on_both_databases! {
    a_backup_of_a_server_at_work_goes_on_where_it_is_restored_and_waits_for_no_lease,
}

/// The guide.
fn guide() -> anyhow::Result<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/backup.md");
    std::fs::read_to_string(path).context(path)
}

/// The statements that the guide runs after every restore.
fn statements() -> anyhow::Result<Vec<String>> {
    let guide = guide()?;
    let fenced = guide.split("```sql\n").nth(1).context("a block of SQL")?;
    let block = fenced.split("```").next().context("its end")?;
    let statements = block.split(';').map(str::trim).filter(|one| !one.is_empty());
    Ok(statements.map(str::to_owned).collect())
}

/// The tables that the guide leaves out of a dump row by row.
fn left_out() -> anyhow::Result<BTreeSet<String>> {
    let guide = guide()?;
    let options = guide.split("--ignore-table=powercontext.").skip(1);
    let names = options.filter_map(|rest| rest.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn what_a_dump_leaves_out_is_what_a_restore_removes_and_the_revisions() -> anyhow::Result<()> {
    let removed = statements()?;
    let mut tables: BTreeSet<String> = removed
        .iter()
        .filter_map(|one| one.strip_prefix("DELETE FROM ").map(str::to_owned))
        .collect();
    ensure!(tables.len() == removed.len() && tables.len() == 3, "{removed:?}");
    tables.insert("pc_schema_revisions".to_owned());
    ensure!(tables == left_out()?, "{tables:?}, {:?}", left_out()?);
    Ok(())
}

/// Every table but the revisions, leases and members included, as a physical backup brings them.
async fn copied(from: &Database, to: &Database) -> anyhow::Result<()> {
    let schema = |database: &Database| -> anyhow::Result<String> {
        let name = database.url().rsplit('/').next().context("a schema")?;
        Ok(name.split('?').next().unwrap_or(name).to_owned())
    };
    let (source, target) = (schema(from)?, schema(to)?);
    let mut raw = from.raw().await?;
    raw.execute("set foreign_key_checks = 0").await?;
    let columns = "select table_name, column_name from information_schema.columns \
        where table_schema = database() and extra not like '%GENERATED' and table_name <> 'pc_schema_revisions' order by table_name";
    let mut tables: Vec<(String, Vec<String>)> = Vec::new();
    for row in raw.rows(columns).await? {
        let (table, column) = (row.text(0)?, row.text(1)?);
        match tables.last_mut() {
            Some((last, columns)) if *last == table => columns.push(column),
            _ => tables.push((table, vec![column])),
        }
    }
    ensure!(tables.len() > 20, "{tables:?}");
    for (table, columns) in tables {
        let columns = columns.join(", ");
        raw.execute(&format!("delete from {target}.{table}")).await?;
        let copy = format!("insert into {target}.{table} ({columns}) select {columns} from {source}.{table}");
        raw.execute(&copy).await?;
    }
    Ok(())
}

async fn a_backup_of_a_server_at_work_goes_on_where_it_is_restored_and_waits_for_no_lease(
    database: Database,
) -> anyhow::Result<()> {
    let story = Story::new(database).await?;
    story.provider.hold();
    let server = story.setup.start().await?;
    capture(&server.client, SCOPE, SOURCES).await?;
    let operation = flush(&server.client, SCOPE).await?;
    story.provider.in_flight(1, SOON).await?;
    capture(&server.client, "garden", 2).await?;

    // While the server works.
    let restored = if story.database.is_sqlite() {
        let restored = Database::sqlite().await?;
        let statement = format!("VACUUM INTO '{}'", restored.url());
        ensure!(guide()?.contains("\"VACUUM INTO '"), "the guide says otherwise");
        story.database.raw().await?.execute(&statement).await?;
        restored
    } else {
        let restored = Database::oceanbase().await?;
        let setup = Setup::new(&restored, &story.provider);
        let migrated = setup.run(&["server", "migrate"]).await?;
        ensure!(migrated.status.success(), "{migrated:?}");
        copied(&story.database, &restored).await?;
        restored
    };
    server.kill().await?;
    story.provider.answer();

    let mut raw: Raw = restored.raw().await?;
    for statement in statements()? {
        raw.execute(&statement).await?;
    }
    drop(raw);
    let server = Setup::new(&restored, &story.provider).start().await?;
    let log = server.log();
    ensure!(!log.contains("waiting for its lease to end"), "{log}");
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    settled(&restored, &server.client, SCOPE, SOURCES.into()).await?;
    let flushed = server.client.flush("garden", "wait=25").await?.expect(200)?;
    ensure!(flushed.body["current_cursor"] == 2, "{flushed:?}");
    settled(&restored, &server.client, "garden", 2).await?;
    server.stop().await
}
