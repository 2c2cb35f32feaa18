//! A SQLite file that cannot be used, at the start or later: what was acknowledged stays, the message says what, where
//! and what to do, and work goes on once the cause is gone.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::database::Database;
use powercontext_tests::facts;
use powercontext_tests::kit::{SOON, capture, flush, flush_all, settled};
use powercontext_tests::mounts;
use powercontext_tests::provider::Provider;
use powercontext_tests::server::{END_WITHIN, Server, Setup};

const SCOPE: &str = "house";
/// Longest that a client may be kept waiting for its refusal: the official ones give up after ten seconds.
const REFUSED_WITHIN: Duration = Duration::from_secs(9);

struct Case {
    database: Database,
    provider: Provider,
    setup: Setup,
}

impl Case {
    async fn new() -> anyhow::Result<Self> {
        let database = Database::sqlite().await?;
        let provider = Provider::start().await?;
        let setup = Setup::new(&database, &provider);
        Ok(Self {
            database,
            provider,
            setup,
        })
    }

    /// A case on a disk of its own.
    async fn on_disk(size: &str) -> anyhow::Result<Self> {
        let mut case = Self::new().await?;
        let disk = case.database.beside("disk");
        mounts::disk(&disk, size)?;
        case.database.move_file(disk.join("powercontext.db"))?;
        case.setup = case.setup.with("DATABASE_URL", case.database.url());
        Ok(case)
    }

    /// A start that ends with status 1, and says these things.
    async fn refused(&self, says: &[&str]) -> anyhow::Result<()> {
        let mut server = self.setup.spawn().await?;
        let status = server.ended(END_WITHIN).await?;
        let log = server.log();
        ensure!(status.code() == Some(1), "{status}:\n{log}");
        for text in says.iter().copied().chain([self.database.url(), "What to do"]) {
            ensure!(log.contains(text), "{text:?} is not in\n{log}");
        }
        ensure!(!log.contains("panicked"), "{log}");
        Ok(())
    }

    /// A server with two sources that became a Memory.
    async fn settled(&self) -> anyhow::Result<Server> {
        let server = self.setup.start().await?;
        capture(&server.client, SCOPE, 2).await?;
        server.client.flush(SCOPE, "wait=25").await?.expect(200)?;
        Ok(server)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_program_locks_is_refused_at_the_start_and_served_afterwards() -> anyhow::Result<()> {
    let case = Case::new().await?;
    case.settled().await?.stop().await?;
    let mut other = case.database.raw().await?;
    other.execute("begin exclusive").await?;
    case.refused(&["lock"]).await?;
    other.execute("rollback").await?;
    let server = case.setup.start().await?;
    settled(&case.database, &server.client, SCOPE, 2).await?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_program_locks_later_refuses_writes_and_only_those() -> anyhow::Result<()> {
    let case = Case::new().await?;
    let server = case.settled().await?;
    let mut other = case.database.raw().await?;
    other.execute("begin immediate").await?;
    let asked = rt::now();
    let refused = server
        .client
        .capture(SCOPE, "late", "user: I like tea.")
        .await?
        .expect(503)?;
    ensure!(
        asked.elapsed() < REFUSED_WITHIN,
        "the refusal took {:?}",
        asked.elapsed()
    );
    ensure!(
        refused.code() == "runtime_not_ready" && refused.retry_after.is_some(),
        "{refused:?}"
    );
    server.client.entries(SCOPE).await?;
    server.client.ready().await?.expect(200)?;
    other.execute("rollback").await?;
    let captured = server
        .client
        .capture(SCOPE, "late", "user: I like tea.")
        .await?
        .expect(202)?;
    ensure!(captured.body["position"] == 3, "{captured:?}");
    server.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_folder_or_file_is_refused_at_the_start() -> anyhow::Result<()> {
    if !mounts::inside("files::a_read_only_folder_or_file_is_refused_at_the_start")? {
        return Ok(());
    }
    let case = Case::on_disk("16m").await?;
    let disk = case.database.beside("disk");
    mounts::change(&disk, "ro")?;
    case.refused(&["Read-only"]).await?;
    mounts::change(&disk, "rw")?;
    case.settled().await?.stop().await?;
    mounts::read_only(case.database.file()?)?;
    case.refused(&["read-only"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_no_file_is_refused_at_the_start() -> anyhow::Result<()> {
    let case = Case::new().await?;
    fs::create_dir(case.database.file()?)?;
    case.refused(&["cannot be opened"]).await?;

    let mut case = Case::new().await?;
    let under_a_file = case.database.beside("file").join("powercontext.db");
    fs::write(case.database.beside("file"), "")?;
    case.database.move_file(under_a_file)?;
    case.setup = case.setup.with("DATABASE_URL", case.database.url());
    case.refused(&["directory"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_refused_at_the_start() -> anyhow::Result<()> {
    if !mounts::inside("files::a_full_disk_is_refused_at_the_start")? {
        return Ok(());
    }
    let case = Case::on_disk("64k").await?;
    case.refused(&["the disk is full"]).await?;
    mounts::change(&case.database.beside("disk"), "size=16m")?;
    let server = case.settled().await?;
    settled(&case.database, &server.client, SCOPE, 2).await?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_refuses_captures_and_loses_none_that_it_took() -> anyhow::Result<()> {
    if !mounts::inside("files::a_disk_that_fills_up_refuses_captures_and_loses_none_that_it_took")? {
        return Ok(());
    }
    let case = Case::on_disk("3m").await?;
    let server = case.settled().await?;
    let mut acknowledged = vec!["s1".to_owned(), "s2".to_owned()];
    let content = "user: I prefer a large house. ".repeat(3000);
    let refused = loop {
        let id = format!("large{}", acknowledged.len());
        let answer = server.client.capture(SCOPE, &id, &content).await?;
        if answer.status != 202 {
            break answer.expect(503)?;
        }
        acknowledged.push(id);
        ensure!(acknowledged.len() < 100, "the disk does not fill up");
    };
    ensure!(refused.code() == "runtime_not_ready", "{refused:?}");
    ensure!(server.log().contains("the disk is full"), "{}", server.log());
    server.client.entries(SCOPE).await?;
    ensure!(
        facts::sources(&case.database, SCOPE).await? == acknowledged,
        "what was acknowledged"
    );

    // Killed on a full disk, too. More room is all it takes.
    server.kill().await?;
    mounts::change(&case.database.beside("disk"), "size=32m")?;
    let server = case.setup.start().await?;
    ensure!(
        facts::sources(&case.database, SCOPE).await? == acknowledged,
        "what was acknowledged"
    );
    server.client.capture(SCOPE, "last", &content).await?.expect(202)?;
    flush_all(&server.client, SCOPE).await?;
    let total = i64::try_from(acknowledged.len())? + 1;
    ensure!(
        facts::cursor_and_head(&case.database, SCOPE).await? == (total, total),
        "all is read"
    );
    facts::hold(&case.database).await?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_on_a_full_disk_is_recorded_once_there_is_room() -> anyhow::Result<()> {
    if !mounts::inside("files::a_run_that_ends_on_a_full_disk_is_recorded_once_there_is_room")? {
        return Ok(());
    }
    let case = Case::on_disk("4m").await?;
    let server = case.setup.start().await?;
    capture(&server.client, SCOPE, 2).await?;
    case.provider.hold();
    let operation = flush(&server.client, SCOPE).await?;
    case.provider.in_flight(1, SOON).await?;
    let ballast = case.database.beside("disk").join("ballast");
    // As much as there is room for.
    while fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&ballast)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 4096]))
        .is_ok()
    {}
    case.provider.answer();
    server.logged("the disk is full", SOON).await?;
    let running = server.client.operation(&operation).await?;
    ensure!(running["status"] == "running", "{running}");
    fs::remove_file(ballast)?;
    server.client.operation_is(&operation, "succeeded", SOON).await?;
    ensure!(
        case.provider.asked() == 1,
        "the result was kept, and written when that was possible"
    );
    settled(&case.database, &server.client, SCOPE, 2).await?;
    server.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() -> anyhow::Result<()> {
    let garbage: Vec<u8> = (0..20_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for content in [b"dear diary\n".as_slice(), &garbage] {
        let case = Case::new().await?;
        fs::write(case.database.file()?, content)?;
        case.refused(&["damaged"]).await?;
        ensure!(fs::read(case.database.file()?)? == content, "the file was changed");
    }
    Ok(())
}

/// Overwrites the first page of a table; answers where, and what stood there.
async fn tear(database: &Database, table: &str) -> anyhow::Result<(u64, Vec<u8>)> {
    let size = u64::try_from(facts::number(database, "pragma page_size").await?)?;
    let root = format!("select rootpage from sqlite_schema where name = '{table}'");
    let at = u64::try_from(facts::number(database, &root).await? - 1)? * size;
    let mut before = vec![0; usize::try_from(size)?];
    let file = fs::OpenOptions::new().read(true).write(true).open(database.file()?)?;
    file.read_exact_at(&mut before, at)?;
    file.write_all_at(&vec![0xa5; before.len()], at)?;
    Ok((at, before))
}

fn mend(file: &Path, (at, page): &(u64, Vec<u8>)) -> anyhow::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(file)?;
    file.write_all_at(page, *at).context("the page")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_page_is_told_where_it_is_met_and_nothing_is_written_over_it() -> anyhow::Result<()> {
    let case = Case::new().await?;
    case.settled().await?.stop().await?;

    // Met by the start, which writes its term.
    let torn = tear(&case.database, "pc_scheduler_leases").await?;
    case.refused(&["damaged"]).await?;
    mend(case.database.file()?, &torn)?;

    // Met by requests only: those are refused, the others are served, and the process stays.
    let torn = tear(&case.database, "pc_sources").await?;
    let server = case.setup.start().await?;
    let refused = server
        .client
        .capture(SCOPE, "late", "user: I like tea.")
        .await?
        .expect(503)?;
    ensure!(refused.code() == "runtime_not_ready", "{refused:?}");
    ensure!(
        server.log().contains("the database file is damaged"),
        "{}",
        server.log()
    );
    ensure!(
        server.client.operations(SCOPE).await?.len() == 1,
        "operations are served"
    );
    server.client.entries(SCOPE).await?;
    server.stop().await?;
    mend(case.database.file()?, &torn)?;
    let server = case.setup.start().await?;
    settled(&case.database, &server.client, SCOPE, 2).await?;
    server.stop().await
}
