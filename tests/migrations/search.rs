//! What the search indexes find, on both engines alike (ADR 0008).

use powercontext::store::Dialect;
use powercontext::store::search_text::{self, oceanbase_query, sqlite_query, stored_form};
use powercontext_core::ids::ScopeId;

use crate::database::Database;

fn tokens(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

async fn put(db: &Database, scope: &str, entry: &str, words: &str, state: &str) -> anyhow::Result<()> {
    let text = stored_form(&ScopeId::parse(scope)?, &tokens(words));
    db.run(&format!(
        "INSERT INTO pc_memory_entry_heads (scope_id, memory_artifact_id, entry_id, family, head_revision,
         entry_version_id, entry_content_hash, state, searchable_text)
         VALUES ('{scope}', 'memory', '{entry}', 'memory', 1, 'v-{entry}', 'hash', '{state}', '{text}')"
    ))
    .await
}

async fn find(db: &Database, scope: &str, words: &str) -> anyhow::Result<Vec<String>> {
    let id = ScopeId::parse(scope)?;
    let (sql, query) = match db.dialect {
        Dialect::OceanBase => (search_text::OCEANBASE.search, oceanbase_query(&id, &tokens(words))),
        Dialect::Sqlite => (search_text::SQLITE.search, sqlite_query(&id, &tokens(words))),
    };
    let hits = db.search(sql, &query.unwrap_or_default(), scope, 10).await?;
    assert!(hits.iter().all(|(_, score)| score.is_finite()));
    assert!(hits.is_sorted_by(|a, b| a.1 >= b.1), "best first: {hits:?}");
    Ok(hits.into_iter().map(|(entry, _)| entry).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_token_is_found_as_a_whole_on_both_engines() -> anyhow::Result<()> {
    let long = "y".repeat(64);
    let longer = "z".repeat(300);
    for db in Database::both().await? {
        let db = db.migrated().await?;
        put(
            &db,
            "s",
            "plain",
            &format!("the a x 1 with or not near alpha_beta {long} {longer}"),
            "active",
        )
        .await?;
        put(&db, "s", "cjk", "東 京 都 東京 京都", "active").await?;
        put(&db, "s", "accent", "café", "active").await?;
        for word in [
            "the",
            "a",
            "x",
            "1",
            "with",
            "or",
            "not",
            "near",
            "alpha_beta",
            &long,
            &longer,
        ] {
            assert_eq!(find(&db, "s", word).await?, ["plain"], "{word} on {:?}", db.dialect);
        }
        for word in ["東", "都", "東京", "京都"] {
            assert_eq!(find(&db, "s", word).await?, ["cjk"], "{word} on {:?}", db.dialect);
        }
        assert_eq!(find(&db, "s", "café").await?, ["accent"]);
        for word in ["alpha", "beta", "cafe", "都東", "th", "b", "yy"] {
            assert_eq!(
                find(&db, "s", word).await?,
                Vec::<String>::new(),
                "{word} on {:?}",
                db.dialect
            );
        }
        let mut any = find(&db, "s", "nothing 東京 the").await?;
        any.sort();
        assert_eq!(any, ["cjk", "plain"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_sees_active_entries_of_its_scope_as_they_are_now() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let db = db.migrated().await?;
        put(&db, "s", "mine", "cat", "active").await?;
        put(&db, "s", "retired", "cat", "inactive").await?;
        put(&db, "other", "theirs", "cat", "active").await?;
        assert_eq!(find(&db, "s", "cat").await?, ["mine"]);

        let text = stored_form(&ScopeId::parse("s")?, &tokens("dog"));
        db.run(&format!(
            "UPDATE pc_memory_entry_heads SET searchable_text = '{text}' WHERE entry_id = 'mine'"
        ))
        .await?;
        assert_eq!(find(&db, "s", "cat").await?, Vec::<String>::new());
        assert_eq!(find(&db, "s", "dog").await?, ["mine"]);
        db.run("UPDATE pc_memory_entry_heads SET state = 'inactive' WHERE entry_id = 'mine'")
            .await?;
        assert_eq!(find(&db, "s", "dog").await?, Vec::<String>::new());
        db.run("DELETE FROM pc_memory_entry_heads WHERE entry_id = 'retired'")
            .await?;
        db.run("UPDATE pc_memory_entry_heads SET state = 'active'").await?;
        assert_eq!(find(&db, "s", "cat dog").await?, ["mine"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_holds_more_of_the_words_ranks_higher() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let db = db.migrated().await?;
        put(&db, "s", "one", "cat sat here today", "active").await?;
        put(&db, "s", "both", "cat mat here today", "active").await?;
        for filler in 0..8 {
            put(&db, "s", &format!("f{filler}"), "nothing of that kind", "active").await?;
        }
        assert_eq!(find(&db, "s", "cat mat").await?, ["both", "one"], "{:?}", db.dialect);
    }
    Ok(())
}
