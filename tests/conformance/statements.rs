//! Every statement is known to its engine against the migrated schema, and has a name of its own.

use std::collections::BTreeSet;
use std::str::FromStr;

use powercontext::store::{DbLimits, Dialect, sql};
use powercontext_tests::db::TestDb;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, Row, SqlSafeStr, SqliteConnection};

powercontext_tests::on_both_engines! {
    every_statement_can_be_prepared,
    a_statement_with_an_unknown_column_cannot_be_prepared,
    a_statement_over_a_list_finds_its_rows_by_their_keys,
}

async fn prepare(db: &TestDb, texts: &[&'static str]) -> anyhow::Result<Vec<String>> {
    let mut refused = Vec::new();
    match db.dialect() {
        Dialect::OceanBase => {
            // As many as the store keeps: all of them at once would pass the server's limit.
            let options =
                MySqlConnectOptions::from_str(db.url())?.statement_cache_capacity(DbLimits::STATEMENTS_CACHED_MAX);
            let mut conn = options.connect().await?;
            for text in texts {
                if let Err(error) = (&mut conn).prepare(text.into_sql_str()).await {
                    refused.push(format!("{text}\n{error}"));
                }
            }
        }
        Dialect::Sqlite => {
            let mut conn = SqliteConnection::connect(db.url()).await?;
            for text in texts {
                if let Err(error) = (&mut conn).prepare(text.into_sql_str()).await {
                    refused.push(format!("{text}\n{error}"));
                }
            }
        }
    }
    Ok(refused)
}

async fn every_statement_can_be_prepared(db: TestDb) -> anyhow::Result<()> {
    let texts = sql::all(db.dialect());
    assert!(texts.len() > 60, "only {} statements", texts.len());
    let names: BTreeSet<_> = texts.iter().map(|text| text.lines().next()).collect();
    assert_eq!(names.len(), texts.len(), "two statements have one name");
    for name in names.into_iter().flatten() {
        let parts = name.strip_prefix("-- ").and_then(|name| name.split_once('.'));
        assert!(parts.is_some(), "the first line is not `-- aggregate.verb`: {name}");
    }
    let refused = prepare(&db, &texts).await?;
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
    Ok(())
}

async fn a_statement_with_an_unknown_column_cannot_be_prepared(db: TestDb) -> anyhow::Result<()> {
    let refused = prepare(&db, &["SELECT no_such_column FROM pc_sources"]).await?;
    assert_eq!(refused.len(), 1);
    Ok(())
}

/// What a wrong plan would cost shows only once a table is large.
async fn a_statement_over_a_list_finds_its_rows_by_their_keys(db: TestDb) -> anyhow::Result<()> {
    if db.dialect() == Dialect::OceanBase {
        return Ok(()); // There the lists are in the texts, by primary key.
    }
    let mut conn = SqliteConnection::connect(db.url()).await?;
    let mut lists = 0;
    for text in sql::all(Dialect::Sqlite)
        .into_iter()
        .filter(|text| text.contains("json_each"))
    {
        lists += 1;
        let explain = format!("EXPLAIN QUERY PLAN {}", text.replace("?1", "'[]'"));
        let mut plan = sqlx::query(sqlx::AssertSqlSafe(explain));
        for _ in 2..=4 {
            plan = plan.bind("");
        }
        for row in plan.fetch_all(&mut conn).await? {
            let step: String = row.try_get("detail")?;
            let is_good = !step.contains("pc_") || step.contains("sqlite_autoindex");
            assert!(is_good, "{step}\n{text}");
        }
    }
    assert!(lists > 10, "only {lists} statements over a list");
    Ok(())
}
