//! Every statement is known to its engine against the migrated schema, and has a name of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;

use powercontext::ledger::KindSpec;
use powercontext::store::{DbLimits, Dialect, sql};
use powercontext_core::work::retry::RetryPolicy;
use powercontext_tests::db::TestDb;
use powercontext_tests::raw::Raw;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, Row, SqlSafeStr, SqliteConnection, Statement as _};

powercontext_tests::on_both_engines! {
    every_statement_can_be_prepared,
    a_statement_with_an_unknown_column_cannot_be_prepared,
    every_plan_is_the_golden_one,
}

/// What asks for the items of a state, and reads no more than it answers or counts.
const BY_STATE: &[&str] = &[
    "upkeep.find",
    "upkeep.long",
    "upkeep.payload_depths",
    "works.depths",
    "works.expired",
    "works.next_lapse",
    "works.owned",
];
/// What reads a table that stays small: members, and the slots of families with a cap.
const SCANS: &[&str] = &["members.live", "members.purge", "slots.of"];

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

/// The steps by which SQLite finds a text's rows in our tables.
async fn plan(conn: &mut SqliteConnection, text: &str) -> anyhow::Result<Vec<String>> {
    // There are no statistics, so the plan is the same however much is in the tables.
    let explain = format!("EXPLAIN QUERY PLAN {text}");
    let statement = (&mut *conn)
        .prepare(sqlx::AssertSqlSafe(explain.clone()).into_sql_str())
        .await?;
    let arguments = match statement.parameters() {
        Some(sqlx::Either::Right(count)) => count,
        _ => 0,
    };
    let mut query = sqlx::query(sqlx::AssertSqlSafe(explain));
    for _ in 0..arguments {
        query = query.bind("");
    }
    let mut steps = Vec::new();
    for row in query.fetch_all(conn).await? {
        steps.push(row.try_get("detail")?);
    }
    Ok(steps)
}

/// What a wrong plan would cost shows only once a table is large: `tests/golden/plans/sqlite.txt` holds every plan, so that
/// a change of one is seen. `UPDATE=1` writes it again.
async fn every_plan_is_the_golden_one(db: TestDb) -> anyhow::Result<()> {
    if db.dialect() == Dialect::OceanBase {
        return a_claims_plan_is_the_golden_one(&db).await;
    }
    let mut conn = SqliteConnection::connect(db.url()).await?;
    let mut plans = BTreeMap::new();
    for text in sql::all(Dialect::Sqlite) {
        let name = text.lines().next().unwrap_or_default().trim_start_matches("-- ");
        plans.insert(name, plan(&mut conn, text).await?);
    }
    for (name, plan) in &plans {
        // A state names any number of items; only what ends leases and counts depths may ask by it.
        let by_state = plan
            .iter()
            .any(|step| step.contains("ix_pc_work_items_lease (status=?)"));
        assert!(
            !by_state || BY_STATE.contains(name),
            "{name} finds items by their state: {plan:#?}"
        );
        let scans = plan
            .iter()
            .any(|step| step.starts_with("SCAN pc_") && !step.contains("VIRTUAL"));
        assert!(!scans || SCANS.contains(name), "{name} reads a whole table: {plan:#?}");
    }
    let mut written = String::new();
    for (name, plan) in &plans {
        writeln!(written, "{name}")?;
        for step in plan {
            writeln!(written, "  {step}")?;
        }
    }
    is_golden("sqlite.txt", &written)
}

fn is_golden(file: &str, written: &str) -> anyhow::Result<()> {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden/plans")
        .join(file);
    if std::env::vars().any(|(name, value)| name == "UPDATE" && value == "1") {
        std::fs::create_dir_all(golden.parent().expect("a folder"))?;
        std::fs::write(&golden, written)?;
    }
    assert!(
        std::fs::read_to_string(&golden).unwrap_or_default() == written,
        "a plan has changed; UPDATE=1 writes {} again:\n{written}",
        golden.display()
    );
    Ok(())
}

/// There statistics decide, apart from what every idle Worker asks: which operators, over which indexes, in
/// `tests/golden/plans/oceanbase.txt`.
async fn a_claims_plan_is_the_golden_one(db: &TestDb) -> anyhow::Result<()> {
    let kinds = [KindSpec::memory(RetryPolicy::UNBOUNDED), KindSpec::maintenance()];
    let look = sql::claim_look(&kinds.map(|spec| (spec.kind, spec.binding)));
    let mut raw = Raw::connect(db.url()).await?;
    let mut written = String::from("works.ready_many\n");
    for row in raw.rows(&format!("EXPLAIN {look}")).await? {
        let line = row.text(0)?;
        // `|ID|OPERATOR|NAME|EST.ROWS|EST.TIME(us)|`: what is estimated is no part of the plan.
        if let ["", id, operator, name, ..] = line.split('|').collect::<Vec<_>>()[..]
            && id.trim().parse::<u32>().is_ok()
        {
            let step = format!("  {} {name}", operator.trim_end());
            writeln!(written, "{}", step.trim_end())?;
        }
    }
    is_golden("oceanbase.txt", &written)
}
