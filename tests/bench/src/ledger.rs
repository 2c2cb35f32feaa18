//! Ledger and worker on SQLite, in this process: what an item costs without HTTP, model or domain.

use std::path::Path;

use powercontext::rt;

use crate::Size;
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
    }
    Ok(())
}
