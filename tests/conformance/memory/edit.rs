//! A person's edits, and what the Memory then shows of itself.

use powercontext::families::memory::edit::{Changed, EditError, edit};
use powercontext::families::memory::load;
use powercontext::families::memory::read::{self, ChangesError, EntryError};
use powercontext::store::Db;
use powercontext_core::ids::{EntryVersionId, FamilyName, ScopeId};
use powercontext_core::memory::{
    ChangeOp, Edit, EditRefused, EntryKind, EntryState, EntryText, MemoryCitation, Reason,
};
use powercontext_core::refs::Revision;
use powercontext_tests::db::TestDb;

use super::{ALL, capture_more, know, revision};

powercontext_tests::on_both_engines! {
    what_is_remembered_revised_and_retired_makes_a_revision_each,
    remembering_the_same_again_changes_nothing,
    statements_that_differ_in_one_byte_are_two_entries,
    an_expected_revision_that_is_not_the_head_is_refused,
    a_citation_of_an_older_revision_is_refused_even_if_the_entry_is_the_same,
    what_does_not_exist_cannot_be_edited,
    edits_made_at_once_all_happen,
    an_entry_is_answered_as_it_stood_at_the_cited_revision,
    history_is_answered_behind_an_exclusive_bound,
    history_longer_than_a_page_is_answered_whole,
    an_edit_leaves_the_cursor_alone,
}

fn remembering(text: &str) -> anyhow::Result<Edit> {
    Ok(Edit::Remember {
        kind: EntryKind::parse("fact")?,
        text: EntryText::parse(text)?,
        expected: None,
    })
}

async fn remember(db: &Db, scope: &ScopeId, text: &str) -> anyhow::Result<Changed> {
    Ok(edit(db, scope, remembering(text)?, None).await?)
}

fn revising(changed: &Changed, text: &str) -> anyhow::Result<Edit> {
    Ok(Edit::Revise {
        citation: MemoryCitation::of(changed.revision, &changed.entry),
        kind: EntryKind::parse("fact")?,
        text: EntryText::parse(text)?,
    })
}

fn retiring(changed: &Changed) -> Edit {
    Edit::Retire {
        citation: MemoryCitation::of(changed.revision, &changed.entry),
    }
}

async fn refusal(db: &Db, scope: &ScopeId, wrong: Edit) -> anyhow::Result<EditRefused> {
    match edit(db, scope, wrong, None).await {
        Err(EditError::Refused(refused)) => Ok(refused),
        other => anyhow::bail!("not refused: {other:?}"),
    }
}

async fn what_is_remembered_revised_and_retired_makes_a_revision_each(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let first = remember(db, &scope, "red").await?;
    assert_eq!((first.revision, first.entry.version), (revision(1)?, 1));
    let second = edit(db, &scope, revising(&first, "blue")?, Some(Reason::parse("it is")?)).await?;
    assert_eq!((second.revision, second.entry.version), (revision(2)?, 2));
    assert_eq!(second.entry.previous, Some(first.entry.version_id.clone()));
    assert_eq!(second.entry.entry_id, first.entry.entry_id);
    let third = edit(db, &scope, retiring(&second), None).await?;
    assert_eq!(
        (third.revision, third.entry.version),
        (revision(3)?, 2),
        "retiring states nothing new"
    );
    assert_ne!(third.entry.version_id, second.entry.version_id);
    assert_eq!(third.entry.state, EntryState::Inactive);

    let (active, all) = (
        read::entries(db, &scope, false).await?,
        read::entries(db, &scope, true).await?,
    );
    assert_eq!((active.revision, active.entries.len()), (Some(revision(3)?), 0));
    assert_eq!(all.entries, std::slice::from_ref(&third.entry));
    assert_eq!(refusal(db, &scope, retiring(&third)).await?, EditRefused::Inactive);
    Ok(())
}

async fn remembering_the_same_again_changes_nothing(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    know(db, &scope, &["learned"]).await?;
    for text in ["learned", "told"] {
        let one = remember(db, &scope, text).await?;
        let two = remember(db, &scope, text).await?;
        assert_eq!(one, two);
    }
    assert_eq!(read::head(db, &scope).await?, Some(revision(2)?));
    Ok(())
}

async fn statements_that_differ_in_one_byte_are_two_entries(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let texts = ["tea", "Tea", "tea ", " tea", "te\u{e1}"];
    for text in texts {
        remember(db, &scope, text).await?;
    }
    assert_eq!(read::entries(db, &scope, false).await?.entries.len(), texts.len());
    // Known already: the accent makes the letter, and a trailing space is not forgotten.
    for text in ["tea\u{301}", "tea ", "tea"] {
        remember(db, &scope, text).await?;
    }
    assert_eq!(read::head(db, &scope).await?, Some(revision(5)?));
    Ok(())
}

async fn an_expected_revision_that_is_not_the_head_is_refused(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let expecting = |text: &str, n: u32| -> anyhow::Result<Edit> {
        Ok(Edit::Remember {
            kind: EntryKind::parse("fact")?,
            text: EntryText::parse(text)?,
            expected: Some(revision(n)?),
        })
    };
    assert_eq!(
        refusal(db, &scope, expecting("a", 1)?).await?,
        EditRefused::RevisionConflict
    );
    remember(db, &scope, "a").await?;
    edit(db, &scope, expecting("b", 1)?, None).await?;
    for wrong in [1, 3] {
        assert_eq!(
            refusal(db, &scope, expecting("c", wrong)?).await?,
            EditRefused::RevisionConflict
        );
    }
    Ok(())
}

async fn a_citation_of_an_older_revision_is_refused_even_if_the_entry_is_the_same(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let first = remember(db, &scope, "a").await?;
    let second = remember(db, &scope, "b").await?;
    for stale in [revising(&first, "c")?, retiring(&first)] {
        assert_eq!(refusal(db, &scope, stale).await?, EditRefused::RevisionConflict);
    }
    let current = Changed {
        revision: second.revision,
        ..first
    };
    edit(db, &scope, revising(&current, "c")?, None).await?;
    Ok(())
}

async fn what_does_not_exist_cannot_be_edited(db: TestDb) -> anyhow::Result<()> {
    let (scope, other, db) = (db.scope("s")?, db.scope("other")?, &db.db);
    let known = remember(db, &scope, "a").await?;
    assert_eq!(refusal(db, &other, retiring(&known)).await?, EditRefused::NoMemory);
    let mut foreign = MemoryCitation::of(known.revision, &known.entry);
    foreign.memory_ref.family = FamilyName::parse("experience")?;
    let foreign = Edit::Retire { citation: foreign };
    assert_eq!(refusal(db, &scope, foreign).await?, EditRefused::NoMemory);
    let mut unknown = known.clone();
    unknown.entry.version_id = EntryVersionId::parse("mem_ver_unknown")?;
    assert_eq!(refusal(db, &scope, retiring(&unknown)).await?, EditRefused::NoEntry);
    Ok(())
}

async fn edits_made_at_once_all_happen(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (db, scope, edits) = (db.clone(), scope.clone(), remembering(&format!("entry {n}"))?);
        tasks.spawn(async move { edit(&db, &scope, edits, None).await });
    }
    let changed: Vec<_> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let mut revisions: Vec<_> = changed.iter().map(|c| c.revision.get()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(read::entries(db, &scope, false).await?.entries.len(), 8);
    Ok(())
}

async fn an_entry_is_answered_as_it_stood_at_the_cited_revision(db: TestDb) -> anyhow::Result<()> {
    let (scope, other, db) = (db.scope("s")?, db.scope("other")?, &db.db);
    let first = remember(db, &scope, "red").await?;
    let second = edit(db, &scope, revising(&first, "blue")?, None).await?;
    let third = edit(db, &scope, retiring(&second), None).await?;
    for changed in [&first, &second, &third] {
        let citation = MemoryCitation::of(changed.revision, &changed.entry);
        assert_eq!(read::entry(db, &scope, &citation).await?, changed.entry);
    }
    let cite = |at: &Changed, entry: &Changed| MemoryCitation::of(at.revision, &entry.entry);
    let beyond = Changed {
        revision: revision(4)?,
        ..third.clone()
    };
    for wrong in [cite(&second, &first), cite(&first, &second), cite(&beyond, &third)] {
        assert_eq!(read::entry(db, &scope, &wrong).await, Err(EntryError::NoEntry));
    }
    assert_eq!(
        read::entry(db, &other, &cite(&first, &first)).await,
        Err(EntryError::NoMemory)
    );
    Ok(())
}

async fn history_is_answered_behind_an_exclusive_bound(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    for bound in [0, 7] {
        let none = read::changes(db, &scope, bound).await?;
        assert_eq!((none.revision, none.revisions.len()), (None, 0));
    }
    let first = remember(db, &scope, "red").await?;
    let second = edit(db, &scope, revising(&first, "blue")?, Some(Reason::parse("repainted")?)).await?;
    edit(db, &scope, retiring(&second), None).await?;
    let all = read::changes(db, &scope, 0).await?;
    assert_eq!(all.revision, Some(revision(3)?));
    let ops: Vec<_> = all
        .revisions
        .iter()
        .map(|(n, changes)| (n.get(), changes[0].op))
        .collect();
    assert_eq!(
        ops,
        [(1, ChangeOp::Add), (2, ChangeOp::Revise), (3, ChangeOp::Deactivate)]
    );
    let revised = &all.revisions[1].1[0];
    assert_eq!(revised.reason.as_ref().map(Reason::as_str), Some("repainted"));
    assert_eq!(revised.from_entry_version_id, Some(first.entry.version_id));
    assert_eq!(revised.to_entry_version_id, Some(second.entry.version_id));
    assert_eq!(read::changes(db, &scope, 2).await?.revisions, all.revisions[2..]);
    assert_eq!(read::changes(db, &scope, 3).await?.revisions, []);
    for unknown in [4, u64::from(u32::MAX) + 1, u64::MAX] {
        assert_eq!(
            read::changes(db, &scope, unknown).await,
            Err(ChangesError::UnknownRevision)
        );
    }
    Ok(())
}

async fn history_longer_than_a_page_is_answered_whole(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    for n in 0..33 {
        remember(db, &scope, &format!("entry {n}")).await?;
    }
    for since in [0, 1, 16, 17, 32, 33] {
        let changes = read::changes(db, &scope, since).await?;
        let revisions: Vec<_> = changes
            .revisions
            .iter()
            .map(|(n, _)| u64::from(Revision::get(*n)))
            .collect();
        assert_eq!(revisions, (since + 1..=33).collect::<Vec<_>>());
    }
    Ok(())
}

async fn an_edit_leaves_the_cursor_alone(db: TestDb) -> anyhow::Result<()> {
    let (scope, db) = (db.scope("s")?, &db.db);
    capture_more(db, &scope, 2).await?;
    let before = load::load(db, &scope, ALL).await?;
    remember(db, &scope, "a").await?;
    let after = load::load(db, &scope, ALL).await?;
    assert_eq!((after.cursor, after.sources), (before.cursor, before.sources));
    Ok(())
}
