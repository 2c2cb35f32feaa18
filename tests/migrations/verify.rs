//! What the check at start names, and that the engines enforce what the schema says.

use powercontext::store::Dialect;
use powercontext::store::schema::verify;

use crate::database::Database;

async fn difference(db: Database, change: &str) -> anyhow::Result<String> {
    let db = db.migrated().await?;
    db.run(change).await?;
    match verify(&db.url).await {
        Ok(verified) => anyhow::bail!("{change} went unnoticed: {verified:?}"),
        Err(fault) => Ok(fault.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_difference_is_named_on_oceanbase() -> anyhow::Result<()> {
    for (change, named) in [
        ("DROP TABLE pc_work_attempts", "pc_work_attempts is missing"),
        (
            "ALTER TABLE pc_work_items DROP COLUMN result_payload",
            "pc_work_items.result_payload is missing",
        ),
        (
            "ALTER TABLE pc_work_items MODIFY result_code VARBINARY(1000) NULL",
            "pc_work_items.result_code is `varbinary(1000)` and should be `varbinary(512)`",
        ),
        (
            "ALTER TABLE pc_sources ADD COLUMN mine INT NULL",
            "pc_sources.mine is not part of it",
        ),
        (
            "ALTER TABLE pc_work_items DROP CONSTRAINT ck_pc_work_items_status",
            "pc_work_items.ck_pc_work_items_status is missing",
        ),
        (
            "DROP INDEX ft_pc_memory_entry_heads_text ON pc_memory_entry_heads",
            "pc_memory_entry_heads.ft_pc_memory_entry_heads_text is missing",
        ),
        (
            "DROP INDEX ix_pc_work_items_ready ON pc_work_items",
            "pc_work_items.ix_pc_work_items_ready is missing",
        ),
    ] {
        let fault = difference(Database::oceanbase().await?, change).await?;
        assert!(fault.ends_with(named), "{change}: {fault}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_difference_is_named_on_sqlite() -> anyhow::Result<()> {
    for (change, named) in [
        ("DROP TABLE pc_work_attempts", "pc_work_attempts is missing"),
        (
            "ALTER TABLE pc_work_items DROP COLUMN result_payload",
            "pc_work_items.result_payload is missing",
        ),
        (
            "ALTER TABLE pc_sources ADD COLUMN mine INTEGER NULL",
            "pc_sources.mine is not part of it",
        ),
        ("DROP TABLE pc_memory_entry_search", "pc_memory_entry_search is missing"),
        (
            "DROP TRIGGER tr_pc_memory_entry_heads_update",
            "tr_pc_memory_entry_heads_update is missing",
        ),
        (
            "DROP INDEX ix_pc_work_items_ready",
            "pc_work_items.ix_pc_work_items_ready is missing",
        ),
    ] {
        let fault = difference(Database::sqlite()?, change).await?;
        assert!(fault.ends_with(named), "{change}: {fault}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_others_are_no_difference() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let db = db.migrated().await?;
        db.run("CREATE TABLE other_people_s (id INTEGER NOT NULL)").await?;
        verify(&db.url).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_is_enforced() -> anyhow::Result<()> {
    for db in Database::both().await? {
        let db = db.migrated().await?;
        let time = match db.dialect {
            Dialect::OceanBase => "UTC_TIMESTAMP(6)",
            Dialect::Sqlite => "1",
        };
        let item = format!(
            "INSERT INTO pc_work_items (work_id, logical_key, lane_key, lane_sequence, kind, payload_version, scope_id,
             payload, status, available_at, created_at, updated_at)
             VALUES ('w', 'k', 'l', 1, 'kind', 1, 's', '{{}}', 'queued', {time}, {time}, {time})"
        );
        db.run(&item.replace("'{}'", "x'7b7d'")).await?;
        for broken in [
            "status = 'unheard_of'",
            "status = 'running'",
            "status = 'succeeded'",
            "lane_sequence = 0",
            "attempt_count = -1",
            "max_attempts = 0",
            "error_code = 'alone'",
        ] {
            assert!(
                db.run(&format!("UPDATE pc_work_items SET {broken}")).await.is_err(),
                "{broken}"
            );
        }
        db.run("UPDATE pc_work_items SET status = 'running', lease_owner = 'm', lease_fence = 1")
            .await?;
        assert!(
            db.run(&format!("UPDATE pc_work_items SET ready_at = {time}"))
                .await
                .is_err()
        );

        let intents =
            "INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, dirty_generation, clean_generation)";
        db.run(&format!("{intents} VALUES ('b', 's', 2, 1), ('b', 't', 1, 1)"))
            .await?;
        assert!(db.run(&format!("{intents} VALUES ('b', 'u', 1, 2)")).await.is_err());
        let dirty = "SELECT COUNT(*) FROM pc_artifact_processing_intents WHERE is_dirty = 1 AND is_owed = 0";
        assert_eq!(db.number(dirty).await?, 1);
    }
    Ok(())
}
