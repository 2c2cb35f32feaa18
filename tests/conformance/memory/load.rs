//! What a run is given: the next sources without a hole, and the Memory, within its limits.

use powercontext::families::Load;
use powercontext::families::host::SourceUse;
use powercontext::families::memory::{load, read};
use powercontext::ledger::{NewSource, capture};
use powercontext::store::sources::Payload;
use powercontext::store::{Dialect, TxError};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, SourceId, SourceType};
use powercontext_core::refs::SourceRef;
use powercontext_tests::db::TestDb;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, SqliteConnection};

use super::{ALL, capture_more, commit, know, planned, position};

powercontext_tests::on_both_engines! {
    a_window_starts_behind_the_cursor_and_ends_at_its_limit_or_the_head,
    a_window_ends_before_the_source_that_would_pass_its_bytes,
    a_hole_in_the_journal_is_an_error_and_not_a_shorter_window,
    a_source_of_another_type_is_consumed_and_never_shown,
    metadata_reaches_the_model_only_when_there_is_some,
    the_most_recently_changed_entries_are_given_first_and_as_many_as_fit,
    a_memory_of_more_entries_than_a_page_is_read_whole,
}

async fn capture_one(db: &TestDb, scope: &ScopeId, kind: &str, content: &str, metadata: Value) -> anyhow::Result<()> {
    let source = SourceRef {
        name: SourceType::parse(kind)?,
        source_id: SourceId::parse(format!("{kind} {}", content.len()))?,
    };
    let metadata = metadata.as_object().cloned();
    capture(
        &db.db,
        NewSource::native(scope.clone(), source, content.to_owned(), metadata),
    )
    .await?;
    Ok(())
}

async fn positions(db: &TestDb, scope: &ScopeId, request: Load) -> Result<Vec<u64>, TxError> {
    let loaded = load::load(&db.db, scope, request).await?;
    Ok(loaded.sources.iter().map(|source| source.position.get()).collect())
}

async fn a_window_starts_behind_the_cursor_and_ends_at_its_limit_or_the_head(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let two = Load { sources_max: 2, ..ALL };
    assert_eq!(positions(&db, &scope, two).await?, Vec::<u64>::new());
    capture_more(&db.db, &scope, 5).await?;
    for expected in [&[1, 2][..], &[3, 4], &[5], &[]] {
        assert_eq!(positions(&db, &scope, two).await?, expected);
        let loaded = load::load(&db.db, &scope, two).await?;
        assert_eq!(loaded.journal_head, position(5));
        commit(&db.db, &planned(&scope, &loaded, Vec::new())?).await?;
    }
    Ok(())
}

async fn a_window_ends_before_the_source_that_would_pass_its_bytes(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let around = Payload::native(String::new(), None).encode().len();
    for content in [100, 101, 102].map(|bytes| "a".repeat(bytes - around)) {
        capture_one(&db, &scope, "content", &content, Value::Null).await?;
    }
    for (bytes, expected) in [
        (0, &[1][..]),
        (99, &[1]),
        (100, &[1]),
        (200, &[1]),
        (201, &[1, 2]),
        (302, &[1, 2]),
        (303, &[1, 2, 3]),
    ] {
        let request = Load {
            source_bytes_max: bytes,
            ..ALL
        };
        assert_eq!(positions(&db, &scope, request).await?, expected, "{bytes} bytes");
    }
    Ok(())
}

/// Deletes a row behind the store's back, as a wrong clean-up would.
async fn lose(db: &TestDb, scope: &ScopeId, at: u64) -> anyhow::Result<()> {
    let sql = AssertSqlSafe(format!(
        "DELETE FROM pc_sources WHERE scope_id = ? AND journal_position = {at}"
    ));
    let lost = match db.dialect() {
        Dialect::OceanBase => {
            let mut conn = MySqlConnection::connect(db.url()).await?;
            sqlx::query(sql)
                .bind(scope.as_str().as_bytes())
                .execute(&mut conn)
                .await?
                .rows_affected()
        }
        Dialect::Sqlite => {
            let mut conn = SqliteConnection::connect(db.url()).await?;
            sqlx::query(sql)
                .bind(scope.as_str().to_owned())
                .execute(&mut conn)
                .await?
                .rows_affected()
        }
    };
    anyhow::ensure!(lost == 1, "no source stands at {at}");
    Ok(())
}

async fn a_hole_in_the_journal_is_an_error_and_not_a_shorter_window(db: TestDb) -> anyhow::Result<()> {
    for lost in [1, 2, 4] {
        let scope = db.scope(&format!("{lost}"))?;
        capture_more(&db.db, &scope, 4).await?;
        lose(&db, &scope, lost).await?;
        let missing = Err(TxError::Refused(FailCode::SourceWindowUnavailable));
        assert_eq!(positions(&db, &scope, ALL).await, missing, "position {lost} of 4");
    }
    Ok(())
}

async fn a_source_of_another_type_is_consumed_and_never_shown(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    capture_one(&db, &scope, "content", "shown", Value::Null).await?;
    capture_one(&db, &scope, "code-query", "hidden", Value::Null).await?;
    let loaded = load::load(&db.db, &scope, ALL).await?;
    let seen: Vec<_> = loaded.sources.iter().map(|s| (s.usage, s.content.clone())).collect();
    assert_eq!(
        seen,
        [
            (SourceUse::Evidence, json!({"content": "shown"})),
            (SourceUse::LineageOnly, Value::Null)
        ]
    );
    Ok(())
}

async fn metadata_reaches_the_model_only_when_there_is_some(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    capture_one(&db, &scope, "content", "a", Value::Null).await?;
    capture_one(&db, &scope, "content", "bb", json!({"speaker": "猫"})).await?;
    let loaded = load::load(&db.db, &scope, ALL).await?;
    let seen: Vec<_> = loaded.sources.into_iter().map(|s| s.content).collect();
    assert_eq!(
        seen,
        [
            json!({"content": "a"}),
            json!({"content": "bb", "metadata": {"speaker": "猫"}})
        ]
    );
    Ok(())
}

async fn the_most_recently_changed_entries_are_given_first_and_as_many_as_fit(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    for text in ["old", "newer", "newest"] {
        know(&db.db, &scope, &[text]).await?;
    }
    capture_more(&db.db, &scope, 1).await?;
    for (bytes, expected) in [
        (5, &[][..]),
        (6, &["newest"]),
        (10, &["newest"]),
        (11, &["newest", "newer"]),
        (14, &["newest", "newer", "old"]),
    ] {
        let request = Load {
            entry_bytes_max: bytes,
            ..ALL
        };
        let memory = load::load(&db.db, &scope, request).await?.memory;
        let memory = memory.ok_or_else(|| anyhow::anyhow!("there is a Memory"))?;
        let texts: Vec<_> = memory.active.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(texts, expected, "{bytes} bytes");
        assert_eq!(memory.manifest.len(), 3, "the manifest is whole");
    }
    Ok(())
}

async fn a_memory_of_more_entries_than_a_page_is_read_whole(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let texts: Vec<_> = (0..1001).map(|n| format!("entry {n}")).collect();
    for texts in texts.chunks(400) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        know(&db.db, &scope, &texts).await?;
    }
    let entries = read::entries(&db.db, &scope, false).await?.entries;
    assert!(entries.windows(2).all(|pair| pair[0].entry_id < pair[1].entry_id));
    let mut found: Vec<_> = entries.iter().map(|entry| entry.text.as_str()).collect();
    found.sort_unstable();
    let mut expected: Vec<_> = texts.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    Ok(())
}
