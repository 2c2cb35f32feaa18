//! What model calls cost, added up per scope, day, purpose and operation.

use powercontext::store::Dialect;
use powercontext::store::usage::{Spent, add};
use powercontext_core::ids::ScopeId;
use powercontext_core::usage::{ModelOperation, Purpose};
use powercontext_tests::db::TestDb;
use powercontext_tests::raw::Raw;

powercontext_tests::on_both_engines! {
    calls_of_one_day_add_up_and_what_is_incomplete_stays_so,
    scopes_purposes_and_operations_are_added_up_apart,
    calls_at_once_all_count,
}

fn spent(scope: &ScopeId, input_tokens: u64) -> Spent {
    Spent {
        scope: scope.clone(),
        purpose: Purpose::MemoryExtraction,
        operation: ModelOperation::Generation,
        requests: 1,
        input_tokens,
        output_tokens: 2,
        input_complete: true,
        output_complete: true,
    }
}

/// `(purpose, operation, requests, input, output, input complete, output complete, is today's)` of a scope.
async fn rows(db: &TestDb, scope: &ScopeId) -> anyhow::Result<Vec<String>> {
    let today = match db.dialect() {
        Dialect::OceanBase => "usage_date = utc_date()",
        Dialect::Sqlite => "usage_date = date('now')",
    };
    let sql = format!(
        "SELECT purpose, operation, requests, input_tokens, output_tokens, input_complete, output_complete, {today}
         FROM pc_model_usage_daily WHERE scope_id = '{}' ORDER BY purpose, operation",
        scope.as_str()
    );
    let mut found = Vec::new();
    for row in Raw::connect(db.url()).await?.rows(&sql).await? {
        let numbers: Vec<_> = (2..8).map(|column| row.int(column)).collect::<Result<_, _>>()?;
        found.push(format!("{} {} {numbers:?}", row.text(0)?, row.text(1)?));
    }
    Ok(found)
}

async fn calls_of_one_day_add_up_and_what_is_incomplete_stays_so(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    add(&db.db, spent(&scope, 10)).await?;
    assert_eq!(
        rows(&db, &scope).await?,
        ["memory_extraction generation [1, 10, 2, 1, 1, 1]"]
    );
    let incomplete = Spent {
        requests: 2,
        output_complete: false,
        ..spent(&scope, 5)
    };
    add(&db.db, incomplete).await?;
    add(&db.db, spent(&scope, 1)).await?;
    assert_eq!(
        rows(&db, &scope).await?,
        ["memory_extraction generation [4, 16, 6, 1, 0, 1]"]
    );
    Ok(())
}

async fn scopes_purposes_and_operations_are_added_up_apart(db: TestDb) -> anyhow::Result<()> {
    let (scope, other) = (db.scope("team")?, db.scope("team ")?);
    add(&db.db, spent(&scope, 1)).await?;
    add(&db.db, spent(&other, 2)).await?;
    let skill = Spent {
        purpose: Purpose::SkillGeneration,
        ..spent(&scope, 3)
    };
    add(&db.db, skill).await?;
    let vectors = Spent {
        operation: ModelOperation::Embedding,
        ..spent(&scope, 4)
    };
    add(&db.db, vectors).await?;
    assert_eq!(
        rows(&db, &scope).await?,
        [
            "memory_extraction embedding [1, 4, 2, 1, 1, 1]",
            "memory_extraction generation [1, 1, 2, 1, 1, 1]",
            "skill_generation generation [1, 3, 2, 1, 1, 1]",
        ]
    );
    assert_eq!(
        rows(&db, &other).await?,
        ["memory_extraction generation [1, 2, 2, 1, 1, 1]"]
    );
    Ok(())
}

async fn calls_at_once_all_count(db: TestDb) -> anyhow::Result<()> {
    let scope = db.scope("s")?;
    let adding = (0..20).map(|_| {
        let (db, spent) = (db.db.clone(), spent(&scope, 1));
        powercontext::rt::spawn(async move { add(&db, spent).await })
    });
    for added in adding.collect::<Vec<_>>() {
        added.await??;
    }
    assert_eq!(
        rows(&db, &scope).await?,
        ["memory_extraction generation [20, 20, 40, 1, 1, 1]"]
    );
    Ok(())
}
