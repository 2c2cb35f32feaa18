//! Artifact revisions are written once, and a head moves from exactly the revision that its writer saw.

use powercontext::store::artifacts::{self, ArtifactKey};
use powercontext::store::{Db, TxError, TxName};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ArtifactId, FamilyName, SourceId, SourceType};
use powercontext_core::memory::manifest::CONTENT_BYTES_MAX;
use powercontext_core::refs::{ArtifactRef, Position, Revision, SourceRef};
use powercontext_tests::db::TestDb;

powercontext_tests::on_both_engines! {
    the_largest_content_is_stored_whole,
    a_head_moves_only_from_exactly_the_revision_that_was_seen,
    of_two_first_revisions_at_once_one_wins,
    of_two_next_revisions_at_once_one_wins,
    a_refused_revision_leaves_nothing_behind,
    lineage_keeps_its_order,
    revisions_are_answered_in_pages,
}

const CHANGED: TxError = TxError::Refused(FailCode::HeadChanged);

fn revision(n: u32) -> Revision {
    Revision::after(n.checked_sub(1).and_then(|n| Revision::new(n).ok()))
}

fn key(db: &TestDb, scope: &str) -> anyhow::Result<ArtifactKey> {
    Ok(ArtifactKey::memory(&db.scope(scope)?))
}

/// Locks the head, writes the revision after `seen` and makes it current, as every writer does.
async fn write(db: &Db, key: &ArtifactKey, seen: Option<Revision>, content: &str) -> Result<Revision, TxError> {
    let input = (key.clone(), content.to_owned());
    db.tx(TxName::Finish, move |tx| {
        let (key, content) = input.clone();
        Box::pin(async move {
            artifacts::lock_head(tx, &key).await?;
            let next = Revision::after(seen);
            artifacts::insert(tx, &key, next, content.as_bytes()).await?;
            artifacts::move_head(tx, &key, seen, next).await?;
            Ok(next)
        })
    })
    .await
}

async fn head(db: &Db, key: &ArtifactKey) -> Result<Option<(Revision, String)>, TxError> {
    let key = key.clone();
    db.read(TxName::Load, move |tx| {
        let key = key.clone();
        Box::pin(async move {
            let Some(head) = artifacts::head(tx, &key).await? else {
                return Ok(None);
            };
            let content = artifacts::content(tx, &key, head).await?.unwrap_or_default();
            Ok(Some((head, String::from_utf8_lossy(&content).into_owned())))
        })
    })
    .await
}

async fn the_largest_content_is_stored_whole(db: TestDb) -> anyhow::Result<()> {
    let key = key(&db, "s")?;
    let content = "0123456789abcdef".repeat(CONTENT_BYTES_MAX / 16);
    let first = write(&db.db, &key, None, &content).await?;
    assert!(head(&db.db, &key).await? == Some((first, content)), "another content");
    Ok(())
}

async fn a_head_moves_only_from_exactly_the_revision_that_was_seen(db: TestDb) -> anyhow::Result<()> {
    let key = key(&db, "s")?;
    assert_eq!(head(&db.db, &key).await?, None);
    assert_eq!(write(&db.db, &key, Some(revision(1)), "?").await, Err(CHANGED));
    assert_eq!(write(&db.db, &key, None, "one").await?, revision(1));
    for stale in [None, Some(revision(2)), Some(revision(7))] {
        assert_eq!(write(&db.db, &key, stale, "?").await, Err(CHANGED), "{stale:?}");
    }
    assert_eq!(write(&db.db, &key, Some(revision(1)), "two").await?, revision(2));
    assert_eq!(write(&db.db, &key, Some(revision(1)), "?").await, Err(CHANGED));
    assert_eq!(head(&db.db, &key).await?, Some((revision(2), "two".to_owned())));
    Ok(())
}

async fn race(db: &TestDb, key: &ArtifactKey, seen: Option<Revision>) -> anyhow::Result<()> {
    let (one, two) = tokio::join!(write(&db.db, key, seen, "one"), write(&db.db, key, seen, "two"));
    let winner = if one.is_ok() { "one" } else { "two" };
    let mut results = [one, two];
    results.sort_by_key(Result::is_err);
    assert_eq!(results, [Ok(Revision::after(seen)), Err(CHANGED)]);
    assert_eq!(
        head(&db.db, key).await?,
        Some((Revision::after(seen), winner.to_owned()))
    );
    Ok(())
}

async fn of_two_first_revisions_at_once_one_wins(db: TestDb) -> anyhow::Result<()> {
    for round in 0..5 {
        race(&db, &key(&db, &format!("{round}"))?, None).await?;
    }
    Ok(())
}

async fn of_two_next_revisions_at_once_one_wins(db: TestDb) -> anyhow::Result<()> {
    for round in 0..5 {
        let key = key(&db, &format!("{round}"))?;
        write(&db.db, &key, None, "zero").await?;
        race(&db, &key, Some(revision(1))).await?;
    }
    Ok(())
}

async fn a_refused_revision_leaves_nothing_behind(db: TestDb) -> anyhow::Result<()> {
    let key = key(&db, "s")?;
    write(&db.db, &key, None, "one").await?;
    assert_eq!(write(&db.db, &key, Some(revision(2)), "three").await, Err(CHANGED));
    let read = key.clone();
    let third = db.db.read(TxName::Load, move |tx| {
        let key = read.clone();
        Box::pin(async move { artifacts::content(tx, &key, revision(3)).await })
    });
    assert_eq!(third.await?, None);
    Ok(())
}

async fn lineage_keeps_its_order(db: TestDb) -> anyhow::Result<()> {
    let key = key(&db, "s")?;
    let sources: Vec<_> = ["b", "a", "A", "a ", "caf\u{e9}", "cafe\u{301}"]
        .into_iter()
        .map(|id| {
            let source_id = SourceId::parse(id)?;
            let name = SourceType::content();
            Ok(SourceRef { name, source_id })
        })
        .collect::<anyhow::Result<_>>()?;
    let upstream = ArtifactKey {
        family: FamilyName::parse("experience")?,
        id: ArtifactId::parse("e1")?,
        ..key.clone()
    };
    let artifacts_made = vec![ArtifactRef {
        family: upstream.family.clone(),
        artifact_id: upstream.id.clone(),
        revision: revision(1),
    }];
    let input = (key.clone(), upstream, sources.clone(), artifacts_made.clone());
    let stored = db.db.tx(TxName::Finish, move |tx| {
        let (key, upstream, sources, artifacts_made) = input.clone();
        Box::pin(async move {
            let mut head = Position::START;
            for source in &sources {
                let payload = powercontext::store::sources::Payload::native("x".to_owned(), None);
                if head == Position::START {
                    head = powercontext::store::sources::lock_head(tx, &key.scope).await?;
                }
                head = powercontext::store::sources::append(tx, &key.scope, source, &payload, head).await?;
            }
            artifacts::insert(tx, &upstream, revision(1), b"{}").await?;
            artifacts::insert(tx, &key, revision(1), b"{}").await?;
            artifacts::add_lineage(tx, &key, revision(1), &sources, &artifacts_made).await?;
            artifacts::lineage(tx, &key, revision(1)).await
        })
    });
    assert_eq!(stored.await?, (sources, artifacts_made));
    Ok(())
}

async fn revisions_are_answered_in_pages(db: TestDb) -> anyhow::Result<()> {
    let key = key(&db, "s")?;
    let mut seen = None;
    for n in 1..=5 {
        seen = Some(write(&db.db, &key, seen, &n.to_string()).await?);
    }
    for (since, through, limit, expected) in [
        (0, 5, 10, "12345"),
        (0, 5, 2, "12"),
        (2, 5, 2, "34"),
        (2, 3, 9, "3"),
        (5, 5, 2, ""),
    ] {
        let read = key.clone();
        let page = db.db.read(TxName::Load, move |tx| {
            let key = read.clone();
            let since = Revision::new(since).ok();
            Box::pin(async move { artifacts::page(tx, &key, since, revision(through), limit).await })
        });
        let page = page.await?;
        let contents: Vec<u8> = page.iter().flat_map(|(_, content)| content.clone()).collect();
        assert_eq!(
            String::from_utf8(contents)?,
            expected,
            "({since}, {through}] limit {limit}"
        );
    }
    Ok(())
}
