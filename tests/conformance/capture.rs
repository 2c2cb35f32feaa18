//! Capture: kept once it was acknowledged, the same thing twice is one thing, and the families hear of it once.

use powercontext::ledger::{CaptureError, Captured, NewSource, capture};
use powercontext::rt;
use powercontext::store::{Db, TxError, TxName, intents, sources};
use powercontext_core::ids::{BindingName, ScopeId, SourceId, SourceType};
use powercontext_core::refs::{Position, SourceRef};
use powercontext_core::window::Window;
use powercontext_tests::db::TestDb;
use serde_json::{Value, json};

powercontext_tests::on_both_engines! {
    a_source_captured_again_keeps_its_position_and_marks_nothing,
    the_same_id_with_anything_else_is_a_conflict_and_changes_nothing,
    scopes_and_ids_that_differ_in_one_byte_are_captured_apart,
    one_source_captured_by_many_at_once_is_stored_once,
    every_new_source_marks_all_four_bindings,
    a_dropped_capture_loses_no_acknowledged_write,
}

const BINDINGS: [&str; 4] = [
    "memory-source-window",
    "topic-memory-source-window",
    "experience-incubation",
    "profile-source-window",
];

fn new(scope: &ScopeId, id: &str, content: &str, metadata: Option<Value>) -> anyhow::Result<NewSource> {
    let source = SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(id)?,
    };
    let metadata = metadata.and_then(|m| m.as_object().cloned());
    Ok(NewSource::native(scope.clone(), source, content.to_owned(), metadata))
}

fn captured(position: u64, replayed: bool) -> Captured {
    Captured {
        position: Position::new(position),
        replayed,
    }
}

/// Dirty generation of each binding.
async fn dirty(db: &Db, scope: &ScopeId) -> anyhow::Result<[u64; 4]> {
    let mut generations = [0; 4];
    for (n, binding) in BINDINGS.into_iter().enumerate() {
        let key = (BindingName::parse(binding)?, scope.clone());
        let intent = db.read(TxName::Gauges, move |tx| {
            let key = key.clone();
            Box::pin(async move { intents::get(tx, &key.0, &key.1).await })
        });
        generations[n] = intent.await?.dirty().get();
    }
    Ok(generations)
}

/// The journal's head and the ids of its sources in order.
async fn journal(db: &Db, scope: &ScopeId) -> Result<(u64, Vec<String>), TxError> {
    let scope = scope.clone();
    db.read(TxName::Load, move |tx| {
        let scope = scope.clone();
        Box::pin(async move {
            let through = sources::head(tx, &scope).await?;
            let after = Position::START;
            let rows = sources::window(tx, &scope, Window { after, through }).await?;
            let ids = rows.into_iter().map(|row| row.source.source_id.as_str().to_owned());
            Ok((through.get(), ids.collect()))
        })
    })
    .await
}

async fn a_source_captured_again_keeps_its_position_and_marks_nothing(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let metadata = [
        None,
        Some(json!({})),
        Some(json!({"b": [1, 0.1, null], "a": {"é": "猫"}})),
    ];
    for (n, metadata) in (1..).zip(&metadata) {
        let id = n.to_string();
        assert_eq!(
            capture(&db.db, new(&scope, &id, "text", metadata.clone())?).await?,
            captured(n, false)
        );
    }
    let before = dirty(&db.db, &scope).await?;
    for (n, metadata) in (1..).zip(&metadata) {
        let id = n.to_string();
        assert_eq!(
            capture(&db.db, new(&scope, &id, "text", metadata.clone())?).await?,
            captured(n, true)
        );
    }
    assert_eq!(dirty(&db.db, &scope).await?, before);
    assert_eq!(journal(&db.db, &scope).await?.0, 3);
    Ok(())
}

async fn the_same_id_with_anything_else_is_a_conflict_and_changes_nothing(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    capture(&db.db, new(&scope, "id", "text", Some(json!({"a": 1})))?).await?;
    capture(&db.db, new(&scope, "bare", "text", None)?).await?;
    let before = (dirty(&db.db, &scope).await?, journal(&db.db, &scope).await?);
    for (id, content, metadata) in [
        ("id", "Text", Some(json!({"a": 1}))),
        ("id", "text ", Some(json!({"a": 1}))),
        ("id", "text", Some(json!({"a": 2}))),
        ("id", "text", Some(json!({"a": "1"}))),
        ("id", "text", Some(json!({}))),
        ("id", "text", None),
        ("bare", "text", Some(json!({}))),
    ] {
        let again = capture(&db.db, new(&scope, id, content, metadata.clone())?).await;
        assert_eq!(again, Err(CaptureError::Conflict), "{id} {content} {metadata:?}");
    }
    assert_eq!((dirty(&db.db, &scope).await?, journal(&db.db, &scope).await?), before);
    Ok(())
}

async fn scopes_and_ids_that_differ_in_one_byte_are_captured_apart(db: TestDb) -> anyhow::Result<()> {
    let names = ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"];
    for scope in names {
        let scope = db.scope(scope)?;
        for (n, id) in (1..).zip(names) {
            assert_eq!(capture(&db.db, new(&scope, id, id, None)?).await?, captured(n, false));
        }
    }
    for scope in names {
        let scope = db.scope(scope)?;
        assert_eq!(journal(&db.db, &scope).await?, (5, names.map(str::to_owned).to_vec()));
        assert_eq!(dirty(&db.db, &scope).await?, [5; 4]);
    }
    Ok(())
}

async fn one_source_captured_by_many_at_once_is_stored_once(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (db, source) = (db.db.clone(), new(&scope, "id", "text", None)?);
        tasks.spawn(async move { capture(&db, source).await });
    }
    let all: Vec<_> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
    assert!(all.iter().all(|one| one.position == Position::new(1)), "{all:?}");
    assert_eq!(all.iter().filter(|one| !one.replayed).count(), 1);
    assert_eq!(dirty(&db.db, &scope).await?, [1; 4]);
    Ok(())
}

async fn every_new_source_marks_all_four_bindings(db: TestDb) -> anyhow::Result<()> {
    let (scope, other) = (db.scope("s")?, db.scope("other")?);
    for n in 1..=3 {
        capture(&db.db, new(&scope, &n.to_string(), "text", None)?).await?;
        assert_eq!(dirty(&db.db, &scope).await?, [n; 4]);
    }
    assert_eq!(dirty(&db.db, &other).await?, [0; 4]);
    Ok(())
}

/// Polls a capture a few times and drops it; answers what it said if it was done by then.
async fn dropped_after(polls: u32, db: &Db, source: NewSource) -> Option<Result<Captured, CaptureError>> {
    let mut capture = Box::pin(capture(db, source));
    for _ in 0..polls {
        let step = futures_step(capture.as_mut()).await;
        if step.is_some() {
            return step;
        }
    }
    None
}

/// One poll of a future, then one turn of the scheduler.
async fn futures_step<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context))).await;
    tokio::task::yield_now().await;
    match polled {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

async fn a_dropped_capture_loses_no_acknowledged_write(db: TestDb) -> anyhow::Result<()> {
    const DROPPED: u32 = 200;
    let scope = db.scope("s")?;
    let small = db.reopened(2).await?;
    let mut acknowledged = Vec::new();
    for n in 0..DROPPED {
        // Between drops at every stage, a request whose client waits.
        let polls = rt::random() % 60;
        if let Some(done) = dropped_after(polls, &small, new(&scope, &format!("dropped {n}"), "text", None)?).await {
            acknowledged.push((format!("dropped {n}"), done?.position));
        }
        if n % 10 == 0 {
            let waited = capture(&small, new(&scope, &format!("waited {n}"), "text", None)?).await?;
            acknowledged.push((format!("waited {n}"), waited.position));
        }
    }
    // Locks behind every dropped capture that is still under way.
    let last = capture(&small, new(&scope, "last", "text", None)?).await?;
    acknowledged.push(("last".to_owned(), last.position));
    small.close().await;

    let (head, ids) = journal(&db.db, &scope).await?;
    assert_eq!(head, ids.len() as u64, "positions have no hole");
    assert_eq!(
        dirty(&db.db, &scope).await?,
        [head; 4],
        "each source was marked with it"
    );
    for (id, position) in acknowledged {
        let at = usize::try_from(position.get())? - 1;
        assert_eq!(ids.get(at), Some(&id), "an acknowledged source is missing");
    }
    for n in 0..DROPPED {
        capture(&db.db, new(&scope, &format!("dropped {n}"), "text", None)?).await?;
    }
    Ok(())
}
