//! Cursors move from exactly where their reader saw them, or not at all.

use powercontext::store::{Db, TxError, TxName, cursors};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, ScopeId};
use powercontext_core::refs::{Cursor, Position};
use powercontext_tests::db::TestDb;

powercontext_tests::on_both_engines! {
    a_cursor_moves_only_from_exactly_where_it_was_seen,
    of_two_first_saves_at_once_one_wins,
    of_two_saves_at_once_one_wins,
    bindings_and_scopes_have_cursors_of_their_own,
}

const CHANGED: TxError = TxError::Refused(FailCode::CursorChanged);

fn binding(name: &str) -> anyhow::Result<BindingName> {
    Ok(BindingName::parse(name)?)
}

fn at(sequence: u64, generation: u64) -> Cursor {
    Cursor {
        sequence: Position::new(sequence),
        generation: Some(generation),
    }
}

async fn get(db: &Db, scope: &ScopeId, binding: &BindingName) -> Result<Cursor, TxError> {
    let key = (scope.clone(), binding.clone());
    db.read(TxName::Load, move |tx| {
        let key = key.clone();
        Box::pin(async move { cursors::get(tx, &key.0, &key.1).await })
    })
    .await
}

/// Locks and saves, as every writer of a cursor does.
async fn save(db: &Db, scope: &ScopeId, binding: &BindingName, from: Cursor, to: u64) -> Result<Cursor, TxError> {
    let key = (scope.clone(), binding.clone());
    db.tx(TxName::Finish, move |tx| {
        let key = key.clone();
        Box::pin(async move {
            cursors::lock(tx, &key.0, &key.1).await?;
            cursors::save(tx, &key.0, &key.1, from, Position::new(to)).await
        })
    })
    .await
}

async fn a_cursor_moves_only_from_exactly_where_it_was_seen(db: TestDb) -> anyhow::Result<()> {
    let (scope, binding) = (db.scope("s")?, binding("memory-source-window")?);
    let db = &db.db;
    assert_eq!(get(db, &scope, &binding).await?, Cursor::START);
    assert_eq!(save(db, &scope, &binding, at(0, 1), 3).await, Err(CHANGED));
    assert_eq!(save(db, &scope, &binding, Cursor::START, 3).await?, at(3, 1));
    assert_eq!(save(db, &scope, &binding, Cursor::START, 4).await, Err(CHANGED));
    for stale in [at(3, 2), at(2, 1), at(4, 1)] {
        assert_eq!(save(db, &scope, &binding, stale, 9).await, Err(CHANGED), "{stale:?}");
    }
    assert_eq!(save(db, &scope, &binding, at(3, 1), 5).await?, at(5, 2));
    assert_eq!(
        save(db, &scope, &binding, at(5, 2), 5).await?,
        at(5, 3),
        "the same position is a save too"
    );
    assert_eq!(get(db, &scope, &binding).await?, at(5, 3));
    Ok(())
}

async fn race(db: &TestDb, scope: &ScopeId, from: Cursor) -> anyhow::Result<()> {
    let binding = binding("memory-source-window")?;
    let (one, two) = tokio::join!(
        save(&db.db, scope, &binding, from, 7),
        save(&db.db, scope, &binding, from, 8)
    );
    let mut results = [one, two];
    results.sort_by_key(Result::is_err);
    let [won, lost] = results;
    assert_eq!(lost, Err(CHANGED));
    assert_eq!(get(&db.db, scope, &binding).await?, won?);
    Ok(())
}

async fn of_two_first_saves_at_once_one_wins(db: TestDb) -> anyhow::Result<()> {
    for round in 0..5 {
        race(&db, &db.scope(&format!("{round}"))?, Cursor::START).await?;
    }
    Ok(())
}

async fn of_two_saves_at_once_one_wins(db: TestDb) -> anyhow::Result<()> {
    for round in 0..5 {
        let scope = db.scope(&format!("{round}"))?;
        let from = save(&db.db, &scope, &binding("memory-source-window")?, Cursor::START, 1).await?;
        race(&db, &scope, from).await?;
    }
    Ok(())
}

async fn bindings_and_scopes_have_cursors_of_their_own(db: TestDb) -> anyhow::Result<()> {
    let mut expected = Vec::new();
    for scope in ["Team", "team", "team ", "caf\u{e9}", "cafe\u{301}"] {
        for name in ["a", "A"] {
            let (scope, binding) = (db.scope(scope)?, binding(name)?);
            let to = expected.len() as u64 + 1;
            expected.push((
                scope.clone(),
                binding.clone(),
                save(&db.db, &scope, &binding, Cursor::START, to).await?,
            ));
        }
    }
    for (scope, binding, cursor) in expected {
        assert_eq!(get(&db.db, &scope, &binding).await?, cursor);
    }
    Ok(())
}
