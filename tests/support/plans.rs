//! The plans that OceanBase keeps of the statements that were run: a key that is bound in a way that the engine does not
//! compare with an index reads the whole table, and small tables hide it.

use std::collections::BTreeSet;

use anyhow::Context;

use crate::raw::Raw;

/// Tables with a row for each process, lease or slot.
const SMALL: [&str; 4] = [
    "pc_artifact_processing_slots",
    "pc_runtime_members",
    "pc_scheduler_leases",
    "pc_schema_revisions",
];

/// Texts with parameters, run on this schema, by which the engine reads the whole of a table that grows.
///
/// # Errors
/// When the server does not answer, or tells no plans.
pub async fn whole_tables(url: &str) -> anyhow::Result<BTreeSet<String>> {
    let (_, schema) = url.rsplit_once('/').context("a URL with a schema")?;
    let schema = schema.split('?').next().unwrap_or(schema);
    let mut raw = Raw::connect(url).await?;
    // One server tells of itself alone, a cluster of all of them.
    let mut rows = Err(anyhow::anyhow!("no view"));
    for view in ["V$OB_PLAN_CACHE_PLAN_STAT", "GV$OB_PLAN_CACHE_PLAN_STAT"] {
        if rows.is_err() {
            let sql = format!(
                "SELECT query_sql, outline_data FROM oceanbase.{view} WHERE outline_data LIKE '%\"{schema}\".%'"
            );
            rows = raw.rows(&sql).await;
        }
    }
    let mut found = BTreeSet::new();
    for row in rows.context("plans cannot be read")? {
        let (text, plan) = (row.text(0)?, row.text(1)?);
        // `FULL(@"SEL$1" "schema"."table"@"SEL$1")`, once for each table that is read so.
        let mut read = plan
            .split("FULL(")
            .skip(1)
            .filter_map(|step| step.split('"').find(|word| word.starts_with("pc_") && *word != schema));
        // What tests ask for themselves is written in lower case.
        let is_ours = text.contains('?') && !text.starts_with("select ");
        if is_ours && read.any(|table| !SMALL.contains(&table)) {
            found.insert(text);
        }
    }
    Ok(found)
}
