//! What the Memory family writes and reads, over captured sources.

mod commit;
mod edit;
mod load;
mod search;

use std::sync::atomic::{AtomicU64, Ordering};

use powercontext::families::memory::commit::{Applied, apply};
use powercontext::families::memory::{self, read};
use powercontext::families::{Load, Loaded};
use powercontext::ledger::{NewSource, capture};
use powercontext::rt;
use powercontext::store::{Db, TxError, TxName};
use powercontext_core::ids::{EntryId, ScopeId, SourceId, SourceType};
use powercontext_core::memory::plan::plan_candidates;
use powercontext_core::memory::{Candidate, CursorStep, EntryContent, EntryKind, EntryText, EntryVersion, MemoryWrite};
use powercontext_core::refs::{Position, Revision, SourceRef};

/// Everything, whatever its size.
const ALL: Load = Load {
    sources_max: 100,
    source_bytes_max: u64::MAX,
    entry_bytes_max: u64::MAX,
};

fn revision(n: u32) -> anyhow::Result<Revision> {
    Ok(Revision::new(n)?)
}

/// Captures so many sources that have not been captured before.
async fn capture_more(db: &Db, scope: &ScopeId, number: usize) -> anyhow::Result<Vec<SourceRef>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut captured = Vec::new();
    for _ in 0..number {
        let source = SourceRef {
            name: SourceType::content(),
            source_id: SourceId::parse(format!("source {}", NEXT.fetch_add(1, Ordering::Relaxed)))?,
        };
        capture(
            db,
            NewSource::native(scope.clone(), source.clone(), "text".to_owned(), None),
        )
        .await?;
        captured.push(source);
    }
    Ok(captured)
}

/// A candidate that cites sources; revises an entry or adds one.
fn candidate(revises: Option<&EntryId>, text: &str, sources: &[SourceRef]) -> anyhow::Result<Candidate> {
    let (kind, text) = (EntryKind::parse("fact")?, EntryText::parse(text)?);
    Ok(Candidate {
        revises: revises.cloned(),
        content: EntryContent::new(kind, text, sources.to_vec(), Vec::new())?,
        reason: None,
    })
}

/// The write that a run makes of what it loaded, as the Memory family does.
fn planned(scope: &ScopeId, loaded: &Loaded, candidates: Vec<Candidate>) -> anyhow::Result<MemoryWrite> {
    let window: Vec<_> = loaded.sources.iter().map(|source| source.source.clone()).collect();
    let through = loaded
        .sources
        .last()
        .map_or(loaded.cursor.sequence, |source| source.position);
    Ok(MemoryWrite {
        scope: scope.clone(),
        cursor: Some(CursorStep {
            from: loaded.cursor,
            through,
        }),
        plan: plan_candidates(loaded.memory.as_ref(), candidates, window, &mut rt::random_bits)?,
    })
}

async fn commit(db: &Db, write: &MemoryWrite) -> Result<Applied, TxError> {
    let write = write.clone();
    db.tx(TxName::Finish, move |tx| {
        let write = write.clone();
        Box::pin(async move { apply(tx, &write).await })
    })
    .await
}

/// Captures one source and commits one entry that cites it for each text, all in one revision.
async fn know(db: &Db, scope: &ScopeId, texts: &[&str]) -> anyhow::Result<()> {
    let sources = capture_more(db, scope, 1).await?;
    let loaded = memory::load::load(db, scope, ALL).await?;
    let candidates = texts.iter().map(|text| candidate(None, text, &sources));
    let write = planned(scope, &loaded, candidates.collect::<anyhow::Result<_>>()?)?;
    commit(db, &write).await?;
    Ok(())
}

/// The active entry that states a text.
async fn stating(db: &Db, scope: &ScopeId, text: &str) -> anyhow::Result<EntryVersion> {
    let entries = read::entries(db, scope, false).await?.entries;
    let found = entries.into_iter().find(|entry| entry.text.as_str() == text);
    found.ok_or_else(|| anyhow::anyhow!("no entry states {text:?}"))
}

fn position(n: usize) -> Position {
    Position::new(n as u64)
}
