//! What the rows say once the dust has settled: attempts, revisions, sources; and that no rule of the ledger is broken.

use std::collections::BTreeMap;

use crate::checker;
use crate::database::Database;

/// The binding whose work these suites enqueue.
pub const BINDING: &str = "memory-source-window";

/// Outcomes of an operation's attempts in their order; an open one is `open`. Their numbers are 1..n without a hole.
///
/// # Errors
/// When the database does not answer, or a number is missing or twice there.
pub async fn outcomes(database: &Database, operation: &str) -> anyhow::Result<Vec<String>> {
    let sql = format!(
        "select attempt_no, coalesce(outcome, 'open') from pc_work_attempts where work_id = '{operation}' order by attempt_no"
    );
    let mut outcomes = Vec::new();
    for (at, row) in database.raw().await?.rows(&sql).await?.iter().enumerate() {
        anyhow::ensure!(
            row.int(0)? == i64::try_from(at)? + 1,
            "attempts of {operation} have a hole"
        );
        outcomes.push(row.text(1)?);
    }
    Ok(outcomes)
}

/// Error pairs (`category/code`) of an operation's attempts, in their order.
///
/// # Errors
/// When the database does not answer.
pub async fn errors(database: &Database, operation: &str) -> anyhow::Result<Vec<String>> {
    let sql = format!(
        "select error_category, error_code from pc_work_attempts where work_id = '{operation}' order by attempt_no"
    );
    let mut errors = Vec::new();
    for row in database.raw().await?.rows(&sql).await? {
        let (category, code) = (
            row.opt_text(0)?.unwrap_or_default(),
            row.opt_text(1)?.unwrap_or_default(),
        );
        errors.push(format!("{category}/{code}"));
    }
    Ok(errors)
}

/// Whole number that a query answers.
///
/// # Errors
/// When the database does not answer with one.
pub async fn number(database: &Database, sql: &str) -> anyhow::Result<i64> {
    let rows = database.raw().await?.rows(sql).await?;
    rows.first().map_or(Ok(0), |row| row.int(0))
}

/// Revisions of a scope's Memory.
///
/// # Errors
/// When the database does not answer.
pub async fn revisions(database: &Database, scope: &str) -> anyhow::Result<i64> {
    number(
        database,
        &format!("select count(*) from pc_artifacts where scope_id = '{scope}'"),
    )
    .await
}

/// Source ids of a scope in the order of its journal, whose positions are 1..n without a hole.
///
/// # Errors
/// When the database does not answer, or a position is missing or twice there.
pub async fn sources(database: &Database, scope: &str) -> anyhow::Result<Vec<String>> {
    let sql = format!(
        "select source_id, journal_position from pc_sources where scope_id = '{scope}' order by journal_position"
    );
    let mut ids = Vec::new();
    for (at, row) in database.raw().await?.rows(&sql).await?.iter().enumerate() {
        anyhow::ensure!(
            row.int(1)? == i64::try_from(at)? + 1,
            "the journal of {scope} has a hole"
        );
        ids.push(row.text(0)?);
    }
    Ok(ids)
}

/// How far a scope's cursor stands, and how far its journal goes.
///
/// # Errors
/// When the database does not answer.
pub async fn cursor_and_head(database: &Database, scope: &str) -> anyhow::Result<(i64, i64)> {
    let cursor =
        format!("select sequence from pc_source_cursors where scope_id = '{scope}' and binding_name = '{BINDING}'");
    let head = format!("select position from pc_source_journal_heads where scope_id = '{scope}'");
    Ok((number(database, &cursor).await?, number(database, &head).await?))
}

/// Checks every rule of the ledger's rows.
///
/// # Errors
/// With every broken rule.
pub async fn hold(database: &Database) -> anyhow::Result<()> {
    checker::check(database.url(), BINDING).await
}

/// The tables that hold this text in any column, as text or as bytes. The text needs no quoting.
///
/// # Errors
/// When the database does not answer.
pub async fn tables_with(database: &Database, text: &str) -> anyhow::Result<Vec<String>> {
    let mut raw = database.raw().await?;
    let columns = if database.is_sqlite() {
        "select m.name, c.name from sqlite_schema m join pragma_table_info(m.name) c where m.type = 'table'"
    } else {
        "select table_name, column_name from information_schema.columns where table_schema = database()"
    };
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in raw.rows(columns).await? {
        let (table, column) = (row.text(0)?, row.text(1)?);
        // Binary and text columns alike: what is asked for is ASCII.
        let holds = if database.is_sqlite() {
            format!("instr(cast({column} as blob), cast('{text}' as blob)) > 0")
        } else {
            format!("locate('{text}', cast({column} as binary)) > 0")
        };
        tables.entry(table).or_default().push(holds);
    }
    let mut found = Vec::new();
    for (table, holds) in tables {
        let sql = format!("select count(*) from {table} where {}", holds.join(" or "));
        if number(database, &sql).await? > 0 {
            found.push(table);
        }
    }
    Ok(found)
}
