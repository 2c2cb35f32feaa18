//! Every column of every row of every table, as bytes.

use std::collections::BTreeMap;

use crate::database::Database;

/// The rows by `table.column`, as hexadecimal digits.
///
/// # Errors
/// When the database does not answer.
pub async fn all(database: &Database) -> anyhow::Result<BTreeMap<String, String>> {
    let mut raw = database.raw().await?;
    let (columns, bytes) = if database.is_sqlite() {
        let columns =
            "select m.name, c.name from sqlite_schema m join pragma_table_xinfo(m.name) c where m.type = 'table'";
        (columns, "blob")
    } else {
        let columns = "select table_name, column_name from information_schema.columns where table_schema = database()";
        (columns, "binary")
    };
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in raw.rows(columns).await? {
        tables.entry(row.text(0)?).or_default().push(row.text(1)?);
    }
    anyhow::ensure!(tables.contains_key("pc_work_items"), "the tables are {tables:?}");
    let mut all = BTreeMap::new();
    for (table, columns) in tables {
        let read: Vec<_> = columns
            .iter()
            .map(|column| format!("hex(cast({column} as {bytes}))"))
            .collect();
        let rows = raw.rows(&format!("select {} from {table}", read.join(", "))).await?;
        for (at, column) in columns.iter().enumerate() {
            let mut digits = String::new();
            for row in &rows {
                digits += &row.opt_text(at)?.unwrap_or_default();
                digits.push('/');
            }
            all.insert(format!("{table}.{column}"), digits);
        }
    }
    Ok(all)
}
