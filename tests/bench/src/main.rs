//! `make bench`: figures of the real ledger, worker and server, each beside what the machine itself can do.
//!
//! A figure is measured in several rounds. The rounds of a section are interleaved, and before each measurement the raw
//! commit and fsync rates are taken, so that a machine that is slow for a while is slow for both. The table shows medians,
//! the smallest and the largest value, the target, and whether it is held. `docs/performance.md` explains the method.

mod bare;
mod busy;
mod distributed;
mod figure;
mod fill;
mod ledger;
mod machine;
mod noop;
mod oceanbase;
#[path = "../../support/proxy.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "a file of the tests; the benchmark counts with it and breaks nothing"
)]
mod proxy;
mod scale;
mod served;
mod server;
mod wire;

use clap::Parser;

use crate::figure::Table;

/// Measures PowerContext.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    /// What to measure; everything when nothing is named
    #[arg(value_enum)]
    sections: Vec<Section>,
    /// One short round, to see that everything runs; the figures mean little
    #[arg(long)]
    quick: bool,
    /// The smallest run of every figure, for the tests of the benchmark
    #[arg(long, hide = true)]
    smallest: bool,
    /// Rounds of each figure
    #[arg(long)]
    rounds: Option<usize>,
    /// Where to put databases; a folder on the disk that is to be measured
    #[arg(long)]
    folder: Option<std::path::PathBuf>,
    /// OceanBase server for the sections `oceanbase`, `distributed` and `scale`: mysql://user:password@host:port
    #[arg(long, env = "POWERCONTEXT_TEST_OCEANBASE_URL", hide_env_values = true)]
    oceanbase: Option<String>,
}

/// A part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// Ledger and worker on SQLite, in this process
    Sqlite,
    /// Ledger and worker on an OceanBase server
    Oceanbase,
    /// The server process on SQLite, over HTTP
    Served,
    /// API, Scheduler and Worker processes on an OceanBase server
    Distributed,
    /// Ledger and Supervisor in large tables, on both engines
    Scale,
}

impl Section {
    const ALL: [Self; 5] = [
        Self::Sqlite,
        Self::Oceanbase,
        Self::Served,
        Self::Distributed,
        Self::Scale,
    ];
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Size {
    rounds: usize,
    /// Work items of one measurement in the ledger, on SQLite.
    items: usize,
    /// The same on OceanBase.
    items_oceanbase: usize,
    /// Captures of one measurement.
    captures: usize,
    /// Captures before memory is read.
    captures_for_memory: usize,
    /// Flushes of one measurement.
    flushes: usize,
    /// Entries of the Memory that is searched.
    entries: usize,
    /// Searches of one measurement.
    searches: usize,
    /// Invocations of one measurement.
    invocations: usize,
    /// Items that wait while claims are measured.
    queued: usize,
    /// Claims of one measurement.
    claims: usize,
    /// Clean scopes among which the dirty ones are found, and items that ended long ago.
    rows: usize,
    /// Starts of one measurement.
    starts: usize,
    /// How long a raw rate is taken, in milliseconds.
    raw_ms: u64,
}

impl Size {
    const FULL: Self = Self {
        rounds: 5,
        items: 10_000,
        items_oceanbase: 5_000,
        captures: 10_000,
        captures_for_memory: 100_000,
        flushes: 40,
        entries: 10_000,
        searches: 2_000,
        invocations: 1_000,
        queued: 200_000,
        claims: 200,
        rows: 1_000_000,
        starts: 3,
        raw_ms: 500,
    };
    const QUICK: Self = Self {
        rounds: 1,
        items: 2_000,
        items_oceanbase: 1_000,
        captures: 3_000,
        captures_for_memory: 5_000,
        flushes: 10,
        entries: 2_000,
        searches: 300,
        invocations: 200,
        queued: 20_000,
        claims: 100,
        rows: 100_000,
        starts: 1,
        raw_ms: 200,
    };
    const SMALLEST: Self = Self {
        rounds: 1,
        items: 40,
        items_oceanbase: 40,
        captures: 64,
        captures_for_memory: 64,
        flushes: 1,
        entries: 50,
        searches: 16,
        invocations: 8,
        queued: 200,
        claims: 4,
        rows: 2_000,
        starts: 1,
        raw_ms: 20,
    };

    fn of(arguments: &Arguments) -> Self {
        let size = match arguments {
            Arguments { smallest: true, .. } => Self::SMALLEST,
            Arguments { quick: true, .. } => Self::QUICK,
            _ => Self::FULL,
        };
        Self {
            rounds: arguments.rounds.unwrap_or(size.rounds).max(1),
            ..size
        }
    }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let size = Size::of(&arguments);
    let sections = match arguments.sections.as_slice() {
        [] => &Section::ALL[..],
        named => named,
    };
    let folder = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let mut table = Table::default();
    for section in sections {
        match section {
            Section::Sqlite => ledger::measure(&mut table, folder.path(), size).await?,
            Section::Oceanbase => oceanbase::measure(&mut table, arguments.oceanbase.as_deref(), size).await?,
            Section::Served => served::measure(&mut table, folder.path(), size).await?,
            Section::Scale => scale::measure(&mut table, folder.path(), arguments.oceanbase.as_deref(), size).await?,
            Section::Distributed => {
                distributed::measure(&mut table, folder.path(), arguments.oceanbase.as_deref(), size).await?;
            }
        }
    }
    print!("{}", table.render());
    Ok(())
}
