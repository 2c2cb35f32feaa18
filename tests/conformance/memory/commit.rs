//! A run's write: all of it or nothing, once.

use std::collections::BTreeSet;

use powercontext::families::memory::{load, read};
use powercontext::store::artifacts::{self, ArtifactKey};
use powercontext::store::{Db, TxError, TxName};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::ScopeId;
use powercontext_core::limits::ENTRY_TEXT_BYTES_MAX;
use powercontext_core::memory::{ContentHash, CursorStep, EntryState, MemoryWrite};
use powercontext_core::refs::{ArtifactRef, Cursor, Revision, SourceRef};
use powercontext_tests::db::TestDb;

use super::{ALL, candidate, capture_more, commit, know, planned, position, revision, stating};

powercontext_tests::on_both_engines! {
    a_run_writes_revision_entries_lineage_and_cursor_together,
    a_run_may_write_many_entries_of_the_longest_text,
    a_write_applied_again_is_refused_and_changes_nothing,
    a_plan_on_a_head_that_moved_leaves_cursor_and_memory_alone,
    of_two_runs_over_one_window_one_commits,
    a_run_that_learned_nothing_moves_only_the_cursor,
    a_cursor_moves_neither_back_nor_past_the_journal,
    a_plan_that_contradicts_itself_is_refused,
    a_revised_entry_keeps_its_id_and_its_history,
}

type Lineage = (Vec<SourceRef>, Vec<ArtifactRef>);

async fn lineage(db: &Db, scope: &ScopeId, at: Revision) -> Result<Lineage, TxError> {
    let key = ArtifactKey::memory(scope);
    db.read(TxName::Load, move |tx| {
        let key = key.clone();
        Box::pin(async move { artifacts::lineage(tx, &key, at).await })
    })
    .await
}

fn cursor(sequence: usize, generation: u64) -> Cursor {
    Cursor {
        sequence: position(sequence),
        generation: Some(generation),
    }
}

/// Everything that a commit could have changed.
async fn everything(db: &Db, scope: &ScopeId) -> anyhow::Result<impl PartialEq + std::fmt::Debug> {
    let loaded = load::load(db, scope, ALL).await?;
    let entries = read::entries(db, scope, true).await?;
    Ok((loaded, entries, read::changes(db, scope, 0).await?))
}

async fn a_run_may_write_many_entries_of_the_longest_text(db: TestDb) -> anyhow::Result<()> {
    const ENTRIES: usize = 70;
    let (scope, db) = (db.scope("a scope with a long name")?, &db.db);
    let words = |n| (0..).map(move |word| format!("{:03x} ", (word * 7 + n) % 4096));
    let texts: Vec<String> = (0..ENTRIES)
        .map(|n| {
            words(n)
                .take(ENTRY_TEXT_BYTES_MAX / 4)
                .collect::<String>()
                .trim_end()
                .to_owned()
        })
        .collect();
    know(db, &scope, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let entries = read::entries(db, &scope, false).await?.entries;
    let stored: BTreeSet<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
    assert!(stored == texts.iter().map(String::as_str).collect(), "other entries");
    Ok(())
}

async fn a_run_writes_revision_entries_lineage_and_cursor_together(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let sources = capture_more(db, &scope, 3).await?;
    let loaded = load::load(db, &scope, ALL).await?;
    assert_eq!((loaded.cursor, loaded.journal_head), (Cursor::START, position(3)));
    assert_eq!(loaded.memory, None);
    let candidates = vec![
        candidate(None, "deploys run on Friday", &sources[..1])?,
        candidate(None, "会議は毎週金曜日", &sources[1..])?,
    ];
    let applied = commit(db, &planned(&scope, &loaded, candidates)?).await?;
    assert_eq!(applied.cursor, Some(cursor(3, 1)));
    assert_eq!(applied.revision, Some(revision(1)?));

    assert_eq!(lineage(db, &scope, revision(1)?).await?, (sources.clone(), Vec::new()));
    let friday = stating(db, &scope, "deploys run on Friday").await?;
    assert_eq!(
        (friday.version, &friday.previous, friday.state),
        (1, &None, EntryState::Active)
    );
    assert_eq!(friday.source_refs, sources[..1]);
    assert!(friday.is_intact());
    let loaded = load::load(db, &scope, ALL).await?;
    assert_eq!((loaded.cursor, loaded.sources.len()), (cursor(3, 1), 0));
    assert_eq!(
        loaded.memory.map(|m| (m.revision, m.manifest.len())),
        Some((revision(1)?, 2))
    );
    Ok(())
}

async fn a_write_applied_again_is_refused_and_changes_nothing(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let sources = capture_more(db, &scope, 2).await?;
    let loaded = load::load(db, &scope, ALL).await?;
    let write = planned(&scope, &loaded, vec![candidate(None, "a", &sources)?])?;
    commit(db, &write).await?;
    let before = everything(db, &scope).await?;
    let again = commit(db, &write).await;
    assert_eq!(again, Err(TxError::Refused(FailCode::CursorChanged)));
    assert_eq!(everything(db, &scope).await?, before);
    Ok(())
}

async fn a_plan_on_a_head_that_moved_leaves_cursor_and_memory_alone(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    for _ in 0..2 {
        let sources = capture_more(db, &scope, 1).await?;
        let loaded = load::load(db, &scope, ALL).await?;
        let late = planned(&scope, &loaded, vec![candidate(None, "late", &sources)?])?;
        // Another writer of the Memory that does not touch the cursor.
        let early = MemoryWrite {
            cursor: None,
            ..planned(
                &scope,
                &loaded,
                vec![candidate(None, &format!("early {:?}", loaded.cursor), &sources)?],
            )?
        };
        commit(db, &early).await?;
        let before = everything(db, &scope).await?;
        assert_eq!(commit(db, &late).await, Err(TxError::Refused(FailCode::HeadChanged)));
        assert_eq!(everything(db, &scope).await?, before);
        let loaded = load::load(db, &scope, ALL).await?;
        commit(db, &planned(&scope, &loaded, Vec::new())?).await?;
    }
    Ok(())
}

async fn of_two_runs_over_one_window_one_commits(db: TestDb) -> anyhow::Result<()> {
    for round in 0..5 {
        let (scope, db) = (db.scope(&format!("{round}"))?, &db.db);
        let sources = capture_more(db, &scope, 1).await?;
        let loaded = load::load(db, &scope, ALL).await?;
        let one = planned(&scope, &loaded, vec![candidate(None, "one", &sources)?])?;
        let two = planned(&scope, &loaded, vec![candidate(None, "two", &sources)?])?;
        let (one, two) = tokio::join!(commit(db, &one), commit(db, &two));
        let mut results = [one.map(|a| a.cursor), two.map(|a| a.cursor)];
        results.sort_by_key(Result::is_err);
        assert_eq!(results[0], Ok(Some(cursor(1, 1))));
        assert!(
            matches!(
                results[1],
                Err(TxError::Refused(FailCode::CursorChanged | FailCode::HeadChanged))
            ),
            "{results:?}"
        );
        assert_eq!(read::entries(db, &scope, true).await?.entries.len(), 1);
        assert_eq!(read::head(db, &scope).await?, Some(revision(1)?));
    }
    Ok(())
}

async fn a_run_that_learned_nothing_moves_only_the_cursor(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    capture_more(db, &scope, 2).await?;
    let loaded = load::load(db, &scope, ALL).await?;
    let applied = commit(db, &planned(&scope, &loaded, Vec::new())?).await?;
    assert_eq!((applied.cursor, applied.revision), (Some(cursor(2, 1)), None));
    assert_eq!(read::head(db, &scope).await?, None);
    assert_eq!(load::load(db, &scope, ALL).await?.cursor, cursor(2, 1));
    Ok(())
}

async fn a_cursor_moves_neither_back_nor_past_the_journal(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    capture_more(db, &scope, 3).await?;
    let step = |from, through| MemoryWrite {
        scope: scope.clone(),
        cursor: Some(CursorStep {
            from,
            through: position(through),
        }),
        plan: None,
    };
    commit(db, &step(Cursor::START, 2)).await?;
    for through in [1, 4] {
        let refused = commit(db, &step(cursor(2, 1), through)).await;
        assert_eq!(refused, Err(TxError::Refused(FailCode::Unhandled)), "to {through}");
    }
    assert_eq!(commit(db, &step(cursor(2, 1), 3)).await?.cursor, Some(cursor(3, 2)));
    Ok(())
}

async fn a_plan_that_contradicts_itself_is_refused(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let sources = capture_more(db, &scope, 1).await?;
    let loaded = load::load(db, &scope, ALL).await?;
    let good = planned(&scope, &loaded, vec![candidate(None, "a", &sources)?])?;
    let mut forged = good.clone();
    for version in forged.plan.iter_mut().flat_map(|plan| &mut plan.new_versions) {
        version.content_hash = ContentHash::parse("0".repeat(64))?;
    }
    assert_eq!(commit(db, &forged).await, Err(TxError::Refused(FailCode::Unhandled)));
    commit(db, &good).await?;
    Ok(())
}

async fn a_revised_entry_keeps_its_id_and_its_history(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    know(db, &scope, &["red", "blue"]).await?;
    let red = stating(db, &scope, "red").await?;
    let sources = capture_more(db, &scope, 1).await?;
    let loaded = load::load(db, &scope, ALL).await?;
    let revised = candidate(Some(&red.entry_id), "green", &sources)?;
    commit(db, &planned(&scope, &loaded, vec![revised])?).await?;
    let green = stating(db, &scope, "green").await?;
    assert_eq!((&green.entry_id, green.version), (&red.entry_id, 2));
    assert_eq!(green.previous, Some(red.version_id));
    assert_eq!(read::entries(db, &scope, true).await?.entries.len(), 2);
    Ok(())
}
