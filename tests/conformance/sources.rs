//! The journal of a scope: byte-exact names, one order, no hole.

use powercontext::store::sources::{self, Payload, SourceRow};
use powercontext::store::{Db, TxError, TxName};
use powercontext_core::ids::{ScopeId, SourceId, SourceType};
use powercontext_core::refs::{Position, SourceRef};
use powercontext_core::window::Window;
use powercontext_tests::db::TestDb;

powercontext_tests::on_both_engines! {
    a_journal_has_one_order_and_no_hole,
    scopes_that_differ_in_one_byte_stay_apart,
    source_ids_that_differ_in_one_byte_stay_apart,
    a_payload_comes_back_as_it_was_whatever_its_script_and_size,
}

fn source(id: &str) -> anyhow::Result<SourceRef> {
    Ok(SourceRef {
        name: SourceType::content(),
        source_id: SourceId::parse(id)?,
    })
}

async fn append(db: &Db, scope: &ScopeId, source: SourceRef, content: &str) -> Result<Position, TxError> {
    let input = (scope.clone(), source, Payload::native(content.to_owned(), None));
    db.tx(TxName::Capture, move |tx| {
        let (scope, source, payload) = input.clone();
        Box::pin(async move {
            let head = sources::lock_head(tx, &scope).await?;
            sources::append(tx, &scope, &source, &payload, head).await
        })
    })
    .await
}

async fn window(db: &Db, scope: &ScopeId, after: u64, through: u64) -> Result<Vec<SourceRow>, TxError> {
    let scope = scope.clone();
    let window = Window {
        after: Position::new(after),
        through: Position::new(through),
    };
    db.read(TxName::Load, move |tx| {
        let scope = scope.clone();
        Box::pin(async move { sources::window(tx, &scope, window).await })
    })
    .await
}

async fn head(db: &Db, scope: &ScopeId) -> Result<u64, TxError> {
    let scope = scope.clone();
    db.read(TxName::Load, move |tx| {
        let scope = scope.clone();
        Box::pin(async move { sources::head(tx, &scope).await.map(Position::get) })
    })
    .await
}

async fn a_journal_has_one_order_and_no_hole(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    assert_eq!(head(&db.db, &scope).await?, 0);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (db, scope, source) = (db.db.clone(), scope.clone(), source(&format!("id {n}"))?);
        tasks.spawn(async move { append(&db, &scope, source, "x").await });
    }
    let mut taken: Vec<_> = tasks.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    taken.sort();
    assert_eq!(taken, (1..=20).map(Position::new).collect::<Vec<_>>());
    assert_eq!(head(&db.db, &scope).await?, 20);
    let rows = window(&db.db, &scope, 3, 7).await?;
    assert_eq!(
        rows.iter().map(|row| row.position.get()).collect::<Vec<_>>(),
        [4, 5, 6, 7]
    );
    assert_eq!(window(&db.db, &scope, 18, 25).await?.len(), 2);
    Ok(())
}

async fn scopes_that_differ_in_one_byte_stay_apart(db: TestDb) -> anyhow::Result<()> {
    let names = ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}", &"記".repeat(240)];
    for (n, name) in (1..).zip(names) {
        for _ in 0..n {
            let id = source(&format!("{}", head(&db.db, &db.scope(name)?).await?))?;
            append(&db.db, &db.scope(name)?, id, name).await?;
        }
    }
    for (n, name) in (1..).zip(names) {
        let scope = db.scope(name)?;
        assert_eq!(head(&db.db, &scope).await?, n, "{name:?}");
        let rows = window(&db.db, &scope, 0, 100).await?;
        assert_eq!(rows.len() as u64, n);
        assert!(rows.iter().all(|row| row.payload.content() == name), "{name:?}");
    }
    Ok(())
}

async fn source_ids_that_differ_in_one_byte_stay_apart(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let ids = ["Id", "id", "id ", " id", "caf\u{e9}", "cafe\u{301}"];
    for (n, id) in (1..).zip(ids) {
        assert_eq!(append(&db.db, &scope, source(id)?, id).await?, Position::new(n));
    }
    for row in window(&db.db, &scope, 0, 10).await? {
        assert_eq!(row.payload.content(), row.source.source_id.as_str());
    }
    assert_eq!(
        append(&db.db, &scope, source("id")?, "again").await,
        Err(TxError::Constraint)
    );
    assert_eq!(head(&db.db, &scope).await?, ids.len() as u64);
    Ok(())
}

async fn a_payload_comes_back_as_it_was_whatever_its_script_and_size(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let texts = ["\0\u{1}\n\"\\", "𠀋 猫 é e\u{301} 👩‍👩‍👧", "  ", &"記".repeat(200_000)];
    let mut bytes = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        append(&db.db, &scope, source(&n.to_string())?, text).await?;
        bytes.push(Payload::native((*text).to_owned(), None).encode().len() as u64);
    }
    let rows = window(&db.db, &scope, 0, 10).await?;
    assert_eq!(rows.iter().map(|row| row.payload.content()).collect::<Vec<_>>(), texts);
    let sizes = db.db.read(TxName::Load, move |tx| {
        let scope = scope.clone();
        let window = Window {
            after: Position::START,
            through: Position::new(10),
        };
        Box::pin(async move { sources::sizes(tx, &scope, window).await })
    });
    assert_eq!(sizes.await?.into_iter().map(|(_, n)| n).collect::<Vec<_>>(), bytes);
    Ok(())
}
