//! `Db::tx` under everything that callers and databases do to it (ADR 0004).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use powercontext::rt;
use powercontext::store::{Busy, DatabaseUrl, Db, DbLimits, Down, TxError, TxName, intents, lanes};
use powercontext_core::digest::LaneKey;
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{FamilyName, ScopeId};
use powercontext_core::time::Span;
use powercontext_tests::db::TestDb;

use crate::ledger_kit::{Kit, binding, on_both_engines_alone};

on_both_engines_alone! {
    a_busy_transaction_is_run_again_and_what_it_wrote_before_is_gone,
    a_transaction_that_stays_busy_is_given_up,
    a_refused_transaction_is_run_once_and_leaves_nothing,
    a_lock_that_is_held_longer_than_the_limit_is_waited_for_in_another_run,
    a_panic_inside_leaves_no_open_transaction,
    two_hundred_dropped_callers_on_two_connections_lose_no_acknowledged_write,
    a_read_sees_what_is_committed_and_nothing_else,
}

/// Counts one change of the scope's input, and tells how it ended.
async fn write_then(
    db: &Db,
    scope: &ScopeId,
    runs: &Arc<AtomicU32>,
    then: fn(u32) -> Result<(), TxError>,
) -> Result<(), TxError> {
    let (scope, runs) = (scope.clone(), Arc::clone(runs));
    db.tx(TxName::Capture, move |tx| {
        let (scope, runs) = (scope.clone(), Arc::clone(&runs));
        Box::pin(async move {
            intents::mark_dirty(tx, &binding(), &scope).await?;
            then(runs.fetch_add(1, Ordering::SeqCst) + 1)
        })
    })
    .await
}

async fn dirty(kit: &Kit, scope: &ScopeId) -> anyhow::Result<u64> {
    Ok(kit.intent(scope).await?.dirty().get())
}

async fn a_busy_transaction_is_run_again_and_what_it_wrote_before_is_gone(kit: &Kit) -> anyhow::Result<()> {
    let (scope, runs) = (kit.scope("s")?, Arc::default());
    let busy = |run| {
        if run < 3 {
            Err(TxError::Busy(Busy::Lock))
        } else {
            Ok(())
        }
    };
    assert_eq!(write_then(kit.db(), &scope, &runs, busy).await, Ok(()));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(dirty(kit, &scope).await?, 1);
    Ok(())
}

async fn a_transaction_that_stays_busy_is_given_up(kit: &Kit) -> anyhow::Result<()> {
    let (scope, runs) = (kit.scope("s")?, Arc::default());
    let busy = Err(TxError::Busy(Busy::Limit));
    assert_eq!(
        write_then(kit.db(), &scope, &runs, |_| Err(TxError::Busy(Busy::Limit))).await,
        busy
    );
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    assert_eq!(dirty(kit, &scope).await?, 0);
    Ok(())
}

async fn a_refused_transaction_is_run_once_and_leaves_nothing(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope("s")?;
    let refusals: [fn(u32) -> Result<(), TxError>; 3] = [
        |_| Err(TxError::Refused(FailCode::CursorChanged)),
        |_| Err(TxError::Constraint),
        |_| Err(TxError::Unknown),
    ];
    for refuse in refusals {
        let runs = Arc::default();
        assert_eq!(write_then(kit.db(), &scope, &runs, refuse).await, refuse(1));
        assert_eq!((runs.load(Ordering::SeqCst), dirty(kit, &scope).await?), (1, 0));
    }
    Ok(())
}

async fn a_lock_that_is_held_longer_than_the_limit_is_waited_for_in_another_run(kit: &Kit) -> anyhow::Result<()> {
    if kit.is_sqlite() {
        return Ok(()); // There a writer waits before its transaction begins.
    }
    let scope = kit.scope_with_source("s").await?;
    kit.accepted(&scope).await?;
    let lane = LaneKey::of(&FamilyName::memory(), &scope);
    let mut raw = kit.raw().await?;
    raw.execute("start transaction").await?;
    raw.execute(&format!(
        "select * from pc_work_lanes where lane_key = '{lane}' for update"
    ))
    .await?;
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let db = kit.db().clone();
    let waiting = rt::spawn(async move {
        db.tx(TxName::Flush, move |tx| {
            let (lane, told) = (lane.clone(), told.clone());
            Box::pin(async move {
                told.send(()).map_err(|_| TxError::Down(Down::Connection))?;
                lanes::lock(tx, &lane).await.map(|_| ())
            })
        })
        .await
    });
    let both_runs = async {
        for _ in 0..2 {
            hears.recv().await.context("it was not run again")?;
        }
        anyhow::Ok(())
    };
    rt::within(Duration::from_secs(10), both_runs).await??;
    raw.execute("rollback").await?;
    waiting.await??;
    Ok(())
}

async fn a_panic_inside_leaves_no_open_transaction(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope("s")?;
    let db = kit.test.reopened(2).await?;
    for _ in 0..5 {
        let (db, scope) = (db.clone(), scope.clone());
        let panics =
            rt::spawn(
                async move { write_then(&db, &scope, &Arc::default(), |_| panic!("a fault of the closure")).await },
            );
        assert!(panics.await.err().context("no panic")?.is_panic());
    }
    for n in 1..=5 {
        write_then(&db, &scope, &Arc::default(), |_| Ok(())).await?;
        assert_eq!(dirty(kit, &scope).await?, n);
    }
    Ok(())
}

async fn two_hundred_dropped_callers_on_two_connections_lose_no_acknowledged_write(kit: &Kit) -> anyhow::Result<()> {
    const CALLERS: u32 = 200;
    let db = kit.test.reopened(2).await?;
    let mut tasks = Vec::new();
    for n in 0..CALLERS {
        let (db, scope) = (db.clone(), kit.scope(&format!("{}", n % 10))?);
        let task = rt::spawn({
            let scope = scope.clone();
            async move { write_then(&db, &scope, &Arc::default(), |_| Ok(())).await }
        });
        tasks.push((scope, task));
        // Callers are dropped at every stage, as the clients of an API drop their requests.
        for _ in 0..rt::random() % 8 {
            tokio::task::yield_now().await;
        }
        let (_, task) = &tasks[rt::random() as usize % tasks.len()];
        if n % 3 > 0 {
            task.abort();
        }
    }
    let mut acknowledged = std::collections::BTreeMap::<ScopeId, u64>::new();
    for (scope, task) in tasks {
        let count = acknowledged.entry(scope).or_default();
        match task.await {
            Ok(result) => {
                result?;
                *count += 1;
            }
            Err(dropped) => assert!(dropped.is_cancelled()),
        }
    }
    // Dropped callers leave their transactions running; the pool is closed once all have given back their connection.
    write_then(&db, &kit.scope("last")?, &Arc::default(), |_| Ok(())).await?;
    db.close().await;
    let mut written = 0;
    let all: u64 = acknowledged.values().sum();
    for (scope, count) in acknowledged {
        let stored = dirty(kit, &scope).await?;
        assert!(
            stored >= count,
            "{count} writes were acknowledged and {stored} are there"
        );
        written += stored;
    }
    assert!(
        all > 0 && all < u64::from(CALLERS),
        "{all} of {CALLERS} were acknowledged: nobody was dropped"
    );
    assert!(written <= u64::from(CALLERS));
    Ok(())
}

async fn a_read_sees_what_is_committed_and_nothing_else(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope("s")?;
    let (reading, read) = (kit.db().clone(), scope.clone());
    let seen = kit
        .db()
        .tx(TxName::Capture, move |tx| {
            let (reading, scope) = (reading.clone(), read.clone());
            Box::pin(async move {
                intents::mark_dirty(tx, &binding(), &scope).await?;
                let scope = Arc::new(scope);
                let get = reading.read_with(TxName::Load, &scope, |tx, scope| {
                    Box::pin(async move { intents::get(tx, &binding(), scope).await })
                });
                Ok(get.await?.dirty().get())
            })
        })
        .await?;
    assert_eq!((seen, dirty(kit, &scope).await?), (0, 1));
    Ok(())
}

/// Never ends, and gives its connection up all the same.
async fn hangs(kit: &Kit) -> anyhow::Result<()> {
    let scope = kit.scope("s")?;
    let limits = DbLimits::for_lease(Span::seconds(6), 2);
    let db = Db::open(&DatabaseUrl::parse(kit.test.url())?, limits).await?;
    for _ in 0..3 {
        write_then(&db, &scope, &Arc::default(), |_| Ok(())).await?;
    }
    let input = Arc::new(scope.clone());
    let hung = db.tx_with(TxName::Capture, &input, |tx, scope| {
        Box::pin(async move {
            intents::mark_dirty(tx, &binding(), scope).await?;
            std::future::pending::<Result<(), TxError>>().await
        })
    });
    assert_eq!(hung.await, Err(TxError::Down(Down::Deadline)));
    // The row is free again, nothing was written, and the pool still has its connections.
    for n in 4..=6 {
        write_then(&db, &scope, &Arc::default(), |_| Ok(())).await?;
        assert_eq!(dirty(kit, &scope).await?, n);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_hangs_is_destroyed_with_its_connection_on_both_engines() -> anyhow::Result<()> {
    let [sqlite, oceanbase] = [
        Kit::new(TestDb::sqlite().await?),
        Kit::new(TestDb::oceanbase_alone().await?),
    ];
    tokio::try_join!(hangs(&sqlite), hangs(&oceanbase))?;
    Ok(())
}
