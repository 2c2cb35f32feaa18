//! A real Worker on both engines, and a model provider over HTTP that is out of order: an outage costs three items an
//! attempt at most, and a poisoned scope ends failed all the same.

mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use powercontext::dev::model::{Fail, ModelOptions};
use powercontext::inference::readiness::ProviderStatus;
use powercontext_core::fail::FailCode;
use powercontext_core::work::WorkState;
use powercontext_tests::db::TestDb;

use crate::rig::{Rig, answered, count, router};

/// Each test looks at all rows of its database.
macro_rules! on_both_engines_alone {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name(powercontext_tests::db::TestDb::sqlite().await?).await
            })*
        }

        mod oceanbase {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() -> anyhow::Result<()> {
                super::$name(powercontext_tests::db::TestDb::oceanbase_alone().await?).await
            })*
        }
    };
}

on_both_engines_alone! {
    an_outage_over_200_scopes_costs_three_items_an_attempt_and_all_succeed_afterwards,
    one_poisoned_scope_ends_failed_and_the_others_succeed,
    a_refused_key_fails_three_items_and_not_all_of_them,
}

/// Three minutes of the real thing, in seconds of the test.
const OUTAGE: Duration = Duration::from_secs(3);

async fn an_outage_over_200_scopes_costs_three_items_an_attempt_and_all_succeed_afterwards(
    db: TestDb,
) -> anyhow::Result<()> {
    let rig = Rig::new(db).await?;
    let items = rig.flush_all(200).await?;
    // Slow enough that all slots are in flight when the first failure arrives.
    let model = rig.model(ModelOptions {
        delay: Duration::from_millis(30),
        fail: Some(Fail::ServerError),
        fail_for: Some(OUTAGE),
        ..ModelOptions::default()
    });
    let worker = rig.start();
    rig.until("the outage shows", async || {
        // Not before a run was failed: the first status of all is a probe's.
        let is_known = rig.in_state(&items, "retry_wait").await? >= 3;
        Ok(is_known && rig.readiness.status().await == ProviderStatus::Unavailable)
    })
    .await?;
    rig.until("all items succeed", async || {
        Ok(rig.in_state(&items, "succeeded").await? == 200)
    })
    .await?;
    worker.stop().await?;

    let works = rig.works(&items).await?;
    let spent = count(&works, |work| work.item.counters.budget_used > 1);
    assert!((1..=3).contains(&spent), "{spent} items spent an attempt");
    let mut released = 0;
    for work in works.iter().filter(|work| work.item.counters.attempts > 1) {
        let attempts = rig.ledger.attempts(work.item.id).await?;
        let outcome = |name: &str| attempts.iter().filter(|a| a.outcome.as_deref() == Some(name)).count();
        released += outcome("released");
        assert_eq!(
            outcome("released") + outcome("retry_wait") + outcome("succeeded"),
            attempts.len()
        );
    }
    assert!(released > 0, "no failure arrived behind the closed gate");
    assert_eq!(rig.readiness.status().await, ProviderStatus::Ready);
    assert_eq!(rig.scopes_with_usage().await?, 200, "what the answers cost is added up");
    let asked = model.asked().await?;
    assert!(
        asked <= 200 + u64::from(rig::CONCURRENCY) + 3,
        "the provider was asked {asked} times"
    );
    rig.check().await
}

async fn one_poisoned_scope_ends_failed_and_the_others_succeed(db: TestDb) -> anyhow::Result<()> {
    let rig = Rig::new(db).await?;
    let healthy = rig.flush_all(20).await?;
    let poisoned = rig.flush("poison", "poisoned text").await?;
    rig.serve(router(|body| {
        if body.contains("poisoned text") {
            // However long it asks to wait, the retry policy alone decides.
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1000000000")], "no").into_response()
        } else {
            answered()
        }
    }));
    let worker = rig.start();
    rig.until("the poisoned item fails and the others succeed", async || {
        let failed = rig.in_state(&[poisoned], "failed").await?;
        Ok(failed == 1 && rig.in_state(&healthy, "succeeded").await? == 20)
    })
    .await?;
    worker.stop().await?;
    let [work] = &rig.works(&[poisoned]).await?[..] else {
        anyhow::bail!("the poisoned item is gone");
    };
    let last = FailCode::ProviderUnavailable;
    assert_eq!(work.item.state, WorkState::Failed { last });
    assert_eq!((work.item.counters.attempts, work.item.counters.budget_used), (5, 5));
    assert_eq!(rig.readiness.status().await, ProviderStatus::Ready);
    rig.check().await
}

async fn a_refused_key_fails_three_items_and_not_all_of_them(db: TestDb) -> anyhow::Result<()> {
    let rig = Rig::new(db).await?;
    let items = rig.flush_all(30).await?;
    let is_right = Arc::new(AtomicBool::new(false));
    let key = is_right.clone();
    rig.serve(router(move |_| {
        if key.load(Ordering::SeqCst) {
            answered()
        } else {
            (StatusCode::UNAUTHORIZED, "a body with a secret").into_response()
        }
    }));
    let worker = rig.start();
    rig.until("three items fail", async || {
        Ok(rig.in_state(&items, "failed").await? == 3)
    })
    .await?;
    rig.until("the refusal shows", async || {
        Ok(rig.readiness.status().await == ProviderStatus::Misconfigured)
    })
    .await?;
    is_right.store(true, Ordering::SeqCst);
    rig.until("what is not failed succeeds", async || {
        Ok(rig.in_state(&items, "succeeded").await? == 27)
    })
    .await?;
    worker.stop().await?;
    let last = FailCode::ProviderRejected;
    let works = rig.works(&items).await?;
    assert_eq!(count(&works, |work| work.item.state == WorkState::Failed { last }), 3);
    rig.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_succeeds_although_its_cost_cannot_be_added_up() -> anyhow::Result<()> {
    let rig = Rig::new(TestDb::sqlite().await?).await?;
    rig.execute("DROP TABLE pc_model_usage_daily").await?;
    let items = rig.flush_all(3).await?;
    rig.model(ModelOptions::default());
    let worker = rig.start();
    rig.until("all items succeed", async || {
        Ok(rig.in_state(&items, "succeeded").await? == 3)
    })
    .await?;
    worker.stop().await?;
    rig.check().await
}
