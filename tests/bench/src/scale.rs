//! Ledger and Supervisor in large tables: claims among many items that wait, dirty scopes among many clean ones, calls beside
//! maintenance that has much to delete.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use powercontext::ledger::{Claim, LeaseTerm, Upkeep, maintain};
use powercontext::rt;
use powercontext::store::modes::TermLength;
use powercontext::supervisor::members::Standing;
use powercontext::supervisor::{PendingWork, Registration, Registry, Supervisor, SupervisorSettings};
use powercontext_core::schedule::Schedule;
use powercontext_core::supervise::mode::Mode;
use powercontext_core::time::Span;
use tokio_util::sync::CancellationToken;

use crate::Size;
use crate::figure::{Figure, Raw, Table, Target, percentile};
use crate::fill::Filler;
use crate::machine::{Bare, Disk};
use crate::noop::{BINDING, KIND, Rig, spec};
use crate::oceanbase::Schema;

/// Connections of the ledger to OceanBase.
const CONNECTIONS: u32 = 8;
/// Connections of the bare loop beside it.
const BARE: usize = 32;
/// Items of one claim: as many as a Worker has slots by default.
const SLOTS: u32 = 4;
/// Scopes that are dirty, as many as admission lets wait.
const DIRTY: usize = 100;
/// Longest wait for anything here.
const PATIENCE: Duration = Duration::from_secs(30);
/// How things are kept by default.
const UPKEEP: Upkeep = Upkeep {
    retention: Span::seconds(30 * 86_400),
    batch: 500,
};

/// The figures of an engine.
struct Figures {
    claim: Figure,
    admitted: Figure,
    at_rest: Figure,
    beside: Figure,
}

const fn at_most(name: &'static str, unit: &'static str, most: f64) -> Figure {
    let target = Target::AtMost(most);
    Figure { name, unit, target }
}

const fn shown(name: &'static str, unit: &'static str) -> Figure {
    let target = Target::Shown;
    Figure { name, unit, target }
}

const SQLITE: Figures = Figures {
    claim: at_most("scale: sqlite: claim among 200,000 that wait, p99", "ms", 20.0),
    admitted: at_most("scale: sqlite: 100 dirty of 1,000,000 scopes admitted", "s", 1.0),
    at_rest: shown("scale: sqlite: enqueue beside 1,000,000 ended items, p99", "ms"),
    beside: at_most("scale: sqlite: the same while they are deleted, times that", "", 2.0),
};
const OCEANBASE: Figures = Figures {
    claim: at_most("scale: oceanbase: claim among 200,000 that wait, p99", "ms", 20.0),
    admitted: at_most("scale: oceanbase: 100 dirty of 1,000,000 scopes admitted", "s", 1.0),
    at_rest: shown("scale: oceanbase: enqueue beside 1,000,000 ended items, p99", "ms"),
    beside: at_most("scale: oceanbase: the same while they are deleted, times that", "", 2.0),
};

/// Measures the section.
pub(crate) async fn measure(table: &mut Table, folder: &Path, url: Option<&str>, size: Size) -> anyhow::Result<()> {
    let mut disk = Disk::new(folder, size.raw_ms).await?;
    for _ in 0..size.rounds {
        let file = folder.join(format!("{}.db", rt::hex_id()));
        let rig = Rig::open(&file.display().to_string(), CONNECTIONS).await?;
        let raw = disk.raw().await?;
        measure_on(table, &SQLITE, rig, raw, size).await?;
        std::fs::remove_file(file)?;

        let schema = Schema::on(url).await?;
        let measured = async {
            let rig = Rig::open(&schema.url, CONNECTIONS).await?;
            let raw = Raw {
                commits: Bare::new(&schema.url, BARE, size.raw_ms).await?.rate().await?,
                fsyncs: disk.fsyncs()?,
            };
            measure_on(table, &OCEANBASE, rig, raw, size).await
        };
        let measured = measured.await;
        schema.remove().await?;
        measured?;
    }
    Ok(())
}

async fn measure_on(table: &mut Table, figures: &Figures, mut rig: Rig, raw: Raw, size: Size) -> anyhow::Result<()> {
    let mut filler = Filler::on(&rig.url).await?;
    filler.clean(BINDING, size.rows).await?;
    filler.dirty(BINDING, DIRTY, size.rows).await?;
    filler.settle().await?;
    table.add(figures.admitted, admitted(&rig, &mut filler).await?, raw);

    filler.queued(KIND, BINDING, size.queued).await?;
    filler.settle().await?;
    table.add(figures.claim, claimed(&rig, size.claims).await?, raw);

    filler.ended(KIND, size.rows).await?;
    filler.settle().await?;
    let scopes = rig.scopes(size.searches).await?;
    let (first, second) = scopes.split_at(scopes.len() / 2);
    let at_rest = percentile(rig.enqueue_each(first).await?.into_iter(), 99);
    table.add(figures.at_rest, at_rest, raw);
    let db = rig.ledger.db().clone();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let deleting = rt::spawn(async move {
        let (mut deleted, mut place) = (0, None);
        while !stopped.is_cancelled() {
            deleted += maintain(&db, UPKEEP, &mut place).await?.operations;
        }
        anyhow::Ok(deleted)
    });
    let beside = percentile(rig.enqueue_each(second).await?.into_iter(), 99);
    stop.cancel();
    ensure!(deleting.await?? > 0, "nothing was deleted");
    table.add(figures.beside, beside / at_rest, raw);
    rig.close().await;
    Ok(())
}

/// 99th percentile of claims, in milliseconds.
async fn claimed(rig: &Rig, claims: usize) -> anyhow::Result<f64> {
    let mut took = Vec::with_capacity(claims);
    for _ in 0..claims {
        let kinds = vec![(spec().work.kind, SLOTS)];
        let start = rt::now();
        let claimed = rig.ledger.claim(&Claim { kinds }).await?;
        took.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(claimed.len() == SLOTS as usize, "{} were claimed", claimed.len());
    }
    Ok(percentile(took.into_iter(), 99))
}

/// From the start of a candidate until every dirty scope has its item, in seconds.
async fn admitted(rig: &Rig, filler: &mut Filler) -> anyhow::Result<f64> {
    let work = spec().work;
    let registration = Registration {
        work,
        prefix: "BENCH".to_owned(),
        schedule: Schedule::Interval(Span::seconds(3600)),
        pending: PendingWork::Marks,
        wanted: None,
        workers_max: None,
        timeout: spec().timeout,
        is_triggerable: false,
    };
    let registry = Registry::new([registration]).map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    let (length, poll) = match rig.ledger.lease() {
        LeaseTerm::Process => (TermLength::Process, None),
        LeaseTerm::Timed(span) => (TermLength::Timed(span), Some(Duration::from_secs(1))),
    };
    let settings = SupervisorSettings {
        mode: Mode::Global,
        length,
        renew: Duration::from_secs(10),
        page_size: 100,
        poll,
    };
    let supervisor = Supervisor::new(rig.ledger.clone(), registry, settings, Standing::alone());
    let (stop, start) = (CancellationToken::new(), rt::now());
    let leading = rt::spawn({
        let stop = stop.clone();
        async move { supervisor.run(stop).await }
    });
    let sql = "SELECT COUNT(*) FROM pc_artifact_processing_admitted";
    let dirty = i64::try_from(DIRTY)?;
    // Without an end the time that was waited is the figure: it is missed by far then.
    while filler.number(sql).await? < dirty && start.elapsed() < PATIENCE {
        rt::sleep(Duration::from_millis(5)).await;
    }
    let took = start.elapsed().as_secs_f64();
    stop.cancel();
    leading.await?;
    Ok(took)
}
