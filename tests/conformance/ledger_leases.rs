//! Named leases, whose fence survives everything, and the term of the process that owns a SQLite file (I2, I10).

use std::sync::Arc;

use powercontext::rt;
use powercontext::store::leases::{self, LeaseName};
use powercontext::store::{Db, FenceLost, TxError, TxName, intents};
use powercontext_core::ids::MemberId;
use powercontext_core::lease::{Acquire, Expiry, Held};
use powercontext_core::time::Span;

use crate::ledger_kit::{Kit, binding, on_both_engines_alone};

on_both_engines_alone! {
    a_lease_is_held_by_one_process_and_extended_by_it_alone,
    a_released_lease_is_free_at_once_and_keeps_its_fence,
    an_expired_lease_is_taken_over_with_the_next_fence_even_by_its_last_holder,
    renewing_or_releasing_a_lost_lease_changes_nothing,
    of_many_processes_that_acquire_at_once_one_wins,
    two_names_are_two_leases,
    a_database_with_an_old_term_cannot_write,
}

const NAME: LeaseName = LeaseName::SingleNodeRuntime;
const TERM: Span = Span::seconds(60);

async fn acquire(db: &Db, name: LeaseName, member: &MemberId) -> Result<Acquire<LeaseName>, TxError> {
    let input = Arc::new((name, member.clone()));
    db.tx_with(TxName::Lease, &input, |tx, (name, member)| {
        Box::pin(leases::acquire(tx, name.clone(), member, TERM))
    })
    .await
}

async fn won(db: &Db, member: &MemberId) -> anyhow::Result<Held<LeaseName>> {
    match acquire(db, NAME, member).await? {
        Acquire::Won(held) => Ok(held),
        Acquire::Lost(seen) => anyhow::bail!("lost: {seen:?}"),
    }
}

async fn renew(db: &Db, held: &Held<LeaseName>) -> Result<Held<LeaseName>, TxError> {
    db.tx_with(TxName::Lease, &Arc::new(held.clone()), |tx, held| {
        Box::pin(leases::renew(tx, held, TERM))
    })
    .await
}

async fn release(db: &Db, held: &Held<LeaseName>) -> Result<(), TxError> {
    db.tx_with(TxName::Lease, &Arc::new(held.clone()), |tx, held| {
        Box::pin(leases::release(tx, held))
    })
    .await
}

/// Owner and fence as stored.
async fn stored(kit: &Kit) -> anyhow::Result<(Option<String>, i64)> {
    let sql = format!(
        "select owner_id, fence from pc_scheduler_leases where lease_name = '{}'",
        NAME.as_str()
    );
    let row = &kit.raw().await?.rows(&sql).await?[0];
    Ok((row.opt_text(0)?, row.int(1)?))
}

async fn lapse(kit: &Kit) -> anyhow::Result<()> {
    let mut raw = kit.raw().await?;
    let ago = raw.ago(1);
    let name = NAME.as_str();
    raw.execute(&format!(
        "update pc_scheduler_leases set lease_expires_at = {ago} where lease_name = '{name}'"
    ))
    .await?;
    Ok(())
}

fn expiry(held: &Held<LeaseName>) -> Option<powercontext_core::time::DbTime> {
    match held.holder().expiry {
        Expiry::At(at) => Some(at),
        Expiry::Term => None,
    }
}

async fn a_lease_is_held_by_one_process_and_extended_by_it_alone(kit: &Kit) -> anyhow::Result<()> {
    let (db, one, two) = (kit.db(), rt::member_id(), rt::member_id());
    let first = won(db, &one).await?;
    assert_eq!(first.fence().to_row(), 1);
    let Acquire::Lost(seen) = acquire(db, NAME, &two).await? else {
        anyhow::bail!("two hold it");
    };
    assert_eq!(seen.holder.as_ref(), Some(first.holder()));
    let again = won(db, &one).await?;
    assert_eq!(again.fence(), first.fence());
    let renewed = renew(db, &again).await?;
    assert_eq!(renewed.fence(), first.fence());
    assert!(expiry(&renewed) >= expiry(&again) && expiry(&again) >= expiry(&first));
    assert_eq!(stored(kit).await?, (Some(one.as_str().to_owned()), 1));
    Ok(())
}

async fn a_released_lease_is_free_at_once_and_keeps_its_fence(kit: &Kit) -> anyhow::Result<()> {
    let (db, one, two) = (kit.db(), rt::member_id(), rt::member_id());
    let first = won(db, &one).await?;
    release(db, &first).await?;
    assert_eq!(stored(kit).await?, (None, 1));
    assert_eq!(renew(db, &first).await, Err(TxError::Fenced(FenceLost::Lease)));
    let second = won(db, &two).await?;
    assert_eq!(second.fence().to_row(), 2);
    release(db, &second).await?;
    assert_eq!(
        won(db, &two).await?.fence().to_row(),
        3,
        "its last holder is no exception"
    );
    Ok(())
}

async fn an_expired_lease_is_taken_over_with_the_next_fence_even_by_its_last_holder(kit: &Kit) -> anyhow::Result<()> {
    let (db, one, two) = (kit.db(), rt::member_id(), rt::member_id());
    won(db, &one).await?;
    lapse(kit).await?;
    assert_eq!(won(db, &two).await?.fence().to_row(), 2);
    lapse(kit).await?;
    assert_eq!(won(db, &two).await?.fence().to_row(), 3);
    Ok(())
}

async fn renewing_or_releasing_a_lost_lease_changes_nothing(kit: &Kit) -> anyhow::Result<()> {
    let (db, one, two) = (kit.db(), rt::member_id(), rt::member_id());
    let lost = Err(TxError::Fenced(FenceLost::Lease));
    let first = won(db, &one).await?;
    lapse(kit).await?;
    assert_eq!(
        renew(db, &first).await,
        lost,
        "its time is over, even if nobody took it"
    );
    let second = won(db, &two).await?;
    assert_eq!(renew(db, &first).await, lost);
    release(db, &first).await?;
    assert_eq!(stored(kit).await?, (Some(two.as_str().to_owned()), 2));
    renew(db, &second).await?;
    Ok(())
}

async fn of_many_processes_that_acquire_at_once_one_wins(kit: &Kit) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let db = kit.db().clone();
        tasks.push(rt::spawn(async move { acquire(&db, NAME, &rt::member_id()).await }));
    }
    let mut winners = 0;
    for task in tasks {
        winners += usize::from(matches!(task.await??, Acquire::Won(_)));
    }
    assert_eq!(winners, 1);
    assert_eq!(stored(kit).await?.1, 1);
    Ok(())
}

async fn two_names_are_two_leases(kit: &Kit) -> anyhow::Result<()> {
    let one = won(kit.db(), &rt::member_id()).await?;
    let other = acquire(kit.db(), LeaseName::SchemaMigration, &rt::member_id()).await?;
    assert!(matches!(other, Acquire::Won(_)));
    renew(kit.db(), &one).await?;
    Ok(())
}

/// Becomes the owner of a SQLite file.
async fn raise_term(db: &Db) -> Result<(), TxError> {
    let member = Arc::new(rt::member_id());
    let raised = db.tx_with(TxName::Lease, &member, |tx, member| {
        Box::pin(leases::raise_term(tx, NAME, member))
    });
    db.set_term(raised.await?.fence());
    Ok(())
}

async fn a_database_with_an_old_term_cannot_write(kit: &Kit) -> anyhow::Result<()> {
    if !kit.is_sqlite() {
        return Ok(()); // Terms are SQLite's; a server of OceanBase renews its lease.
    }
    let scope = Arc::new(kit.scope("s")?);
    let write = |db: Db| {
        let scope = Arc::clone(&scope);
        async move {
            db.tx_with(TxName::Capture, &scope, |tx, scope| {
                Box::pin(async move { intents::mark_dirty(tx, &binding(), scope).await })
            })
            .await
        }
    };
    let [old, new] = [kit.test.reopened(1).await?, kit.test.reopened(1).await?];
    raise_term(&old).await?;
    write(old.clone()).await?;
    raise_term(&new).await?;
    assert_eq!(write(old.clone()).await, Err(TxError::Fenced(FenceLost::Term)));
    write(new).await?;
    let dirty = old.read_with(TxName::Load, &scope, |tx, scope| {
        Box::pin(async move { Ok(intents::get(tx, &binding(), scope).await?.dirty().get()) })
    });
    assert_eq!(dirty.await?, 2, "it may still read, and its refused write left nothing");
    Ok(())
}
