//! Ledger and worker on SQLite, in this process: what an item costs without HTTP, model or domain.

use std::path::Path;

use anyhow::ensure;
use powercontext::rt;

use crate::Size;
use crate::bare::Bare;
use crate::figure::{Figure, Table, Target};
use crate::machine::{Disk, rate};
use crate::noop::Rig;

const SLOTS: u32 = 8;
const CALLERS: usize = 32;
/// Items of one call, where they come in hundreds.
const HUNDREDS: usize = 256;

const ENQUEUE: Figure = Figure {
    name: "sqlite: enqueue, 32 callers, one item a call",
    unit: "items/s",
    target: Target::AtLeast(3_000.0),
};
const TOGETHER: Figure = Figure {
    name: "sqlite: enqueue in hundreds, one caller",
    unit: "items/s",
    target: Target::AtLeast(100_000.0),
};
const COMPLETE: Figure = Figure {
    name: "sqlite: claim and completion, no-op items, 8 slots",
    unit: "items/s",
    target: Target::AtLeastOrTimesRaw {
        value: 10_000.0,
        raw_min: 4_000.0,
        times: 2.5,
    },
};

const COMPLETE_BARE: Figure = Figure {
    name: "sqlite: the same statements alone, 8 items a commit",
    unit: "items/s",
    target: Target::Shown,
};
const TOGETHER_BARE: Figure = Figure {
    name: "sqlite: the inserts of hundreds alone",
    unit: "items/s",
    target: Target::Shown,
};

/// Measures the section.
pub(crate) async fn measure(table: &mut Table, folder: &Path, size: Size) -> anyhow::Result<()> {
    let mut disk = Disk::new(folder, size.raw_ms).await?;
    for _ in 0..size.rounds {
        let file = folder.join(format!("{}.db", rt::hex_id()));
        let mut rig = Rig::open(&file.display().to_string(), 8).await?;
        let scopes = rig.scopes(size.items).await?;
        let raw = disk.raw().await?;
        let took = rig.enqueue(&scopes, CALLERS).await?;
        table.add(ENQUEUE, rate(scopes.len(), took), raw);
        let raw = disk.raw().await?;
        let took = rig.drain(scopes.len(), SLOTS).await?;
        table.add(COMPLETE, rate(scopes.len(), took), raw);
        let scopes = rig.scopes(size.items).await?;
        let raw = disk.raw().await?;
        let took = rig.enqueue_together(&scopes, HUNDREDS).await?;
        table.add(TOGETHER, rate(scopes.len(), took), raw);
        rig.close().await;
        bare(table, &mut disk, &file, size.items).await?;
    }
    Ok(())
}

/// What the engine alone takes for the same rows, on the file that the ledger has just left.
async fn bare(table: &mut Table, disk: &mut Disk, file: &Path, items: usize) -> anyhow::Result<()> {
    let bare = Bare::open(file)?;
    let raw = disk.raw().await?;
    let (count, took) = bare.drain(SLOTS)?;
    ensure!(count == items, "{count} items waited, not {items}");
    table.add(COMPLETE_BARE, rate(count, took), raw);
    let scopes: Vec<String> = (0..items).map(|n| format!("bench/bare/{n}")).collect();
    let raw = disk.raw().await?;
    let took = bare.enqueue(&scopes, HUNDREDS)?;
    table.add(TOGETHER_BARE, rate(items, took), raw);
    Ok(())
}
