//! What maintenance deletes and what it leaves; members; and work as an operator on the host sees it.

use std::sync::Arc;
use std::time::Duration;

use powercontext::ledger::{Claimed, Cleaned, Ended, OperatorError, Upkeep, maintain};
use powercontext::rt;
use powercontext::store::upkeep::{self, ATTEMPTS_KEPT, Filter};
use powercontext::store::{TxName, members as rows};
use powercontext::supervisor::members::{Fit, Membership, live, present};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::WorkId;
use powercontext_core::supervise::member::{Member, Odd, Role};
use powercontext_core::time::{DbTime, Span};

use crate::ledger_kit::{Kit, claim_one, on_both_engines_alone};

on_both_engines_alone! {
    ended_items_go_after_their_retention_with_their_attempts_and_acts_and_failed_ones_stay,
    a_live_item_keeps_its_newest_attempts,
    members_announce_themselves_expire_and_are_forgotten,
    the_odd_member_says_so_itself,
    an_operator_on_the_host_finds_failed_work_by_its_code,
}

const MONTH: Upkeep = Upkeep {
    retention: Span::seconds(30 * 86_400),
    batch: 500,
};

/// Empties the ledger: its checker wants every place and attempt that was given out, and maintenance takes them.
async fn forget(kit: &Kit) -> anyhow::Result<()> {
    let mut raw = kit.raw().await?;
    for table in ["items", "attempts", "keys", "lanes"] {
        raw.execute(&format!("delete from pc_work_{table}")).await?;
    }
    raw.execute("delete from pc_artifact_processing_intents").await?;
    Ok(())
}

async fn count(kit: &Kit, table: &str) -> anyhow::Result<i64> {
    let rows = kit.raw().await?.rows(&format!("select count(*) from {table}")).await?;
    rows[0].int(0)
}

/// Revives a failed item and claims it again.
async fn revived(kit: &Kit, id: WorkId) -> anyhow::Result<Claimed> {
    let version = kit.row(id).await?.item.version;
    let revived = kit.a.retry_on_host(id, version).await;
    revived.map_err(anyhow::Error::from)?;
    claim_one(&kit.a).await
}

async fn ended_items_go_after_their_retention_with_their_attempts_and_acts_and_failed_ones_stay(
    kit: &Kit,
) -> anyhow::Result<()> {
    let (_, helped) = kit.failed("helped").await?;
    let claimed = revived(kit, helped).await?;
    assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    let (_, failed) = kit.failed("failed").await?;
    let claimed = revived(kit, failed).await?;
    assert_eq!(kit.a.fail(&claimed, FailCode::InvalidPayload).await?, Ended::Failed);
    for n in 0..20 {
        let (_, claimed) = kit.running(&format!("s{n}")).await?;
        assert_eq!(kit.finish(&kit.a, &claimed).await?, Ended::Succeeded);
    }
    assert_eq!(
        maintain(kit.db(), MONTH, &mut None).await?,
        Cleaned::default(),
        "nothing is old"
    );
    assert_eq!(count(kit, "pc_work_acts").await?, 2);
    let mut raw = kit.raw().await?;
    let long_ago = raw.ago(31 * 86_400);
    let sql = format!("update pc_work_items set completed_at = {long_ago} where status = 'succeeded'");
    raw.execute(&sql).await?;
    let (mut cleaned, mut place) = (Cleaned::default(), None);
    loop {
        let batch = maintain(kit.db(), MONTH, &mut place).await?;
        if batch.is_nothing() {
            break;
        }
        // None takes so many that others wait long.
        assert!(batch.operations <= 32, "{batch:?}");
        cleaned = cleaned.and(batch);
    }
    assert_eq!(cleaned.operations, 21);
    for (table, left) in [("items", 1), ("attempts", 2), ("acts", 1)] {
        assert_eq!(count(kit, &format!("pc_work_{table}")).await?, left, "{table}");
    }
    assert_eq!(kit.status(failed).await?, "failed");
    forget(kit).await?;
    Ok(())
}

async fn a_live_item_keeps_its_newest_attempts(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope_with_source("s").await?;
    kit.accepted(&scope).await?;
    let attempts = i64::from(ATTEMPTS_KEPT) + 7;
    for _ in 0..attempts {
        let claimed = claim_one(&kit.a).await?;
        kit.a.release(&claimed).await?;
    }
    let cleaned = maintain(kit.db(), MONTH, &mut None).await?;
    assert_eq!(cleaned.attempts, 7);
    let rows = kit
        .raw()
        .await?
        .rows("select min(attempt_no), max(attempt_no) from pc_work_attempts")
        .await?;
    assert_eq!((rows[0].int(0)?, rows[0].int(1)?), (8, attempts));
    assert_eq!(maintain(kit.db(), MONTH, &mut None).await?, Cleaned::default());
    forget(kit).await?;
    Ok(())
}

fn member(role: Role, contract: &str) -> Member {
    Member {
        id: rt::member_id(),
        role,
        build: "1.0".to_owned(),
        schema: 3..=6,
        payload: 1..=1,
        revision: "default".to_owned(),
        contract: contract.to_owned(),
        execution: role.works().then(|| "e".to_owned()),
        started_at: DbTime::from_micros(0),
    }
}

async fn join(kit: &Kit, member: Member) -> anyhow::Result<(Membership, Result<(), Odd>)> {
    let (ttl, every) = (Span::seconds(30), Duration::from_secs(10));
    Ok(Membership::join(kit.db().clone(), member, ttl, every).await?)
}

async fn members_announce_themselves_expire_and_are_forgotten(kit: &Kit) -> anyhow::Result<()> {
    assert_eq!(present(&live(kit.db()).await?), (false, false));
    let (api, fits) = join(kit, member(Role::Api, "c")).await?;
    assert_eq!(fits, Ok(()));
    let (_, fits) = join(kit, member(Role::Worker, "c")).await?;
    assert_eq!(fits, Ok(()));
    let members = live(kit.db()).await?;
    assert_eq!(members.len(), 2);
    assert_eq!(present(&members), (false, true));
    assert_eq!(members[1].execution.as_deref(), Some("e"));
    api.leave().await;
    assert_eq!(live(kit.db()).await?.len(), 1);
    let mut raw = kit.raw().await?;
    let (ago, long_ago) = (raw.ago(1), raw.ago(2 * 86_400));
    raw.execute(&format!("update pc_runtime_members set expires_at = {ago}"))
        .await?;
    assert!(live(kit.db()).await?.is_empty());
    assert_eq!(
        maintain(kit.db(), MONTH, &mut None).await?.members,
        0,
        "somebody may look for the cause of its death"
    );
    raw.execute(&format!("update pc_runtime_members set expires_at = {long_ago}"))
        .await?;
    assert_eq!(maintain(kit.db(), MONTH, &mut None).await?.members, 1);
    Ok(())
}

async fn the_odd_member_says_so_itself(kit: &Kit) -> anyhow::Result<()> {
    let (first, fits) = join(kit, member(Role::Worker, "c")).await?;
    assert_eq!(fits, Ok(()));
    let (odd, fits) = join(kit, member(Role::Worker, "other")).await?;
    assert_eq!(fits, Err(Odd::Contract));
    assert_eq!(
        (odd.standing().fit(), odd.standing().may_act()),
        (Fit::Odd(Odd::Contract), false)
    );
    assert_eq!((first.standing().fit(), first.standing().may_act()), (Fit::Ready, true));
    let nobody = Arc::new(rt::member_id());
    let beat = kit.db().tx_with(TxName::Heartbeat, &nobody, |tx, id| {
        Box::pin(rows::beat(tx, id, Span::seconds(30)))
    });
    assert!(!beat.await?, "nobody of that name");
    Ok(())
}

async fn an_operator_on_the_host_finds_failed_work_by_its_code(kit: &Kit) -> anyhow::Result<()> {
    let (_, failed) = kit.failed("failed").await?;
    kit.running("running").await?;
    let find = async |filter: Filter| {
        let filter = Arc::new(filter);
        let found = kit.db().read_with(TxName::Operations, &filter, |tx, filter| {
            Box::pin(upkeep::find(tx, filter, 10))
        });
        anyhow::Ok(found.await?)
    };
    assert_eq!(find(Filter::default()).await?.len(), 2);
    let by_code = find(Filter {
        status: Some("failed"),
        code: Some(FailCode::InvalidPayload.code().to_owned()),
        ..Filter::default()
    });
    let by_code = by_code.await?;
    assert_eq!(by_code.len(), 1);
    assert_eq!(by_code[0].item.id, failed);
    let none = find(Filter {
        code: Some(FailCode::WorkerTimeout.code().to_owned()),
        ..Filter::default()
    });
    assert!(none.await?.is_empty());
    let version = by_code[0].item.version;
    assert!(matches!(
        kit.b.retry_on_host(failed, version + 1).await,
        Err(OperatorError::Conflict { .. })
    ));
    let retried = kit
        .b
        .retry_on_host(failed, version)
        .await
        .map_err(anyhow::Error::from)?;
    assert_eq!(retried.item.state.name(), "queued");
    Ok(())
}
