//! The request limit: one count for all handles of a database, windows by its clock, exactly the quota in each.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext::store::rates::{self, Charge};
use powercontext::store::{Db, Dialect, TxError, TxName};
use powercontext_core::digest::PrincipalKey;
use powercontext_core::rate::{Decision, HTTP_POLICY, Quota};
use powercontext_tests::db::TestDb;
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Row, SqliteConnection};

powercontext_tests::on_both_engines! {
    two_handles_share_one_window_and_exactly_the_quota_fits,
    principals_and_policies_are_counted_apart,
    every_window_of_the_databases_clock_takes_exactly_the_quota_and_goes_when_it_is_over,
    a_database_that_is_away_counts_nothing_and_says_so,
}

/// A window that began in 2001 and ends in 2033, so that no test meets its edge.
const LONG_SECONDS: u32 = 1_000_000_000;
const DEADLINE: Duration = Duration::from_mins(1);

fn charge(principal: &str, requests: u32, seconds: u32) -> anyhow::Result<Charge> {
    let nonzero = |n| NonZeroU32::new(n).context("not zero");
    Ok(Charge {
        // The schema of OceanBase is shared by the tests of this process, so a principal is of this test alone.
        principal: PrincipalKey::of("test", &format!("{principal}/{}", rt::hex_id())),
        policy: HTTP_POLICY,
        quota: Quota::new(nonzero(requests)?, nonzero(seconds)?),
    })
}

/// The counts of a principal's windows, oldest first.
async fn counts(db: &TestDb, principal: &PrincipalKey) -> anyhow::Result<Vec<i64>> {
    const SQL: &str =
        "SELECT request_count FROM pc_rate_limit_windows WHERE principal_key = ? ORDER BY window_started_at";
    let key = principal.as_str();
    Ok(match db.dialect() {
        Dialect::OceanBase => {
            let mut conn = MySqlConnection::connect(db.url()).await?;
            let rows = sqlx::query(SQL).bind(key.as_bytes()).fetch_all(&mut conn).await?;
            rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?
        }
        Dialect::Sqlite => {
            let mut conn = SqliteConnection::connect(db.url()).await?;
            let rows = sqlx::query(SQL).bind(key).fetch_all(&mut conn).await?;
            rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?
        }
    })
}

async fn two_handles_share_one_window_and_exactly_the_quota_fits(db: TestDb) -> anyhow::Result<()> {
    const QUOTA: u32 = 20;
    let other = db.reopened(4).await?;
    let charge = charge("shared", QUOTA, LONG_SECONDS)?;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (db, charge) = (if n % 2 == 0 { &db.db } else { &other }.clone(), charge.clone());
            rt::spawn(async move {
                let mut said = Vec::new();
                for _ in 0..5 {
                    said.push(rates::charge(&db, charge.clone()).await?);
                }
                anyhow::Ok(said)
            })
        })
        .collect();
    let mut said = Vec::new();
    for task in tasks {
        said.extend(task.await??);
    }
    let allowed = said.iter().filter(|decision| **decision == Decision::Allowed).count();
    assert_eq!((allowed, said.len()), (20, 40));
    for decision in said {
        if let Decision::Denied { retry_after_seconds } = decision {
            assert!(
                (1..=LONG_SECONDS).contains(&retry_after_seconds),
                "{retry_after_seconds}"
            );
        }
    }
    assert_eq!(counts(&db, &charge.principal).await?, [i64::from(QUOTA)]);
    // A replica with a larger quota goes on where the count stands; one with a smaller one is over it.
    let requests = |n| NonZeroU32::new(n).context("not zero");
    let seconds = requests(LONG_SECONDS)?;
    for (n, allows) in [(QUOTA + 1, true), (QUOTA + 1, false), (QUOTA - 1, false)] {
        let quota = Quota::new(requests(n)?, seconds);
        let decision = rates::charge(
            &other,
            Charge {
                quota,
                ..charge.clone()
            },
        )
        .await?;
        assert_eq!(decision == Decision::Allowed, allows, "{n}");
    }
    Ok(())
}

async fn principals_and_policies_are_counted_apart(db: TestDb) -> anyhow::Result<()> {
    let first = charge("first", 1, LONG_SECONDS)?;
    let other_policy = Charge {
        policy: "another.v1",
        ..first.clone()
    };
    for charge in [first.clone(), charge("second", 1, LONG_SECONDS)?, other_policy] {
        assert_eq!(rates::charge(&db.db, charge.clone()).await?, Decision::Allowed);
        let again = rates::charge(&db.db, charge).await?;
        assert!(matches!(again, Decision::Denied { .. }), "{again:?}");
    }
    assert_eq!(counts(&db, &first.principal).await?, [1, 1]);
    Ok(())
}

/// Takes until some windows have said that they are full, and answers how many requests were allowed.
async fn hammer(db: Db, charge: Charge) -> anyhow::Result<i64> {
    let (mut allowed, mut full, mut was_full) = (0, 0, false);
    while full < 3 {
        match rates::charge(&db, charge.clone()).await? {
            Decision::Allowed => {
                allowed += 1;
                was_full = false;
            }
            Decision::Denied { retry_after_seconds } => {
                ensure!(retry_after_seconds == 1, "a second has no {retry_after_seconds} s");
                full += u32::from(!was_full);
                was_full = true;
            }
        }
    }
    Ok(allowed)
}

async fn every_window_of_the_databases_clock_takes_exactly_the_quota_and_goes_when_it_is_over(
    db: TestDb,
) -> anyhow::Result<()> {
    const QUOTA: i64 = 5;
    let charge = charge("edge", 5, 1)?;
    let lasting = Charge {
        quota: Quota::new(NonZeroU32::MIN, NonZeroU32::new(LONG_SECONDS).context("not zero")?),
        ..charge.clone()
    };
    assert_eq!(rates::charge(&db.db, lasting).await?, Decision::Allowed);
    let tasks: Vec<_> = (0..8)
        .map(|_| rt::spawn(hammer(db.db.clone(), charge.clone())))
        .collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += rt::within(DEADLINE, task).await???;
    }
    let counted = counts(&db, &charge.principal).await?;
    let (first, windows) = counted.split_first().context("a window that lasts")?;
    assert_eq!(*first, 1);
    assert_eq!(windows.iter().sum::<i64>(), allowed, "{counted:?}");
    assert!(windows.len() >= 3, "{counted:?}");
    assert!(windows.iter().all(|count| *count <= QUOTA), "{counted:?}");
    assert!(
        windows.iter().filter(|count| **count == QUOTA).count() >= 3,
        "{counted:?}"
    );

    let over = async || -> anyhow::Result<Vec<i64>> {
        while db.db.tx(TxName::RateLimit, |tx| Box::pin(rates::purge(tx, 2))).await? > 0 {}
        counts(&db, &charge.principal).await
    };
    let gone = rt::within(DEADLINE, async {
        loop {
            // The last second may still be running.
            if over().await? == [1] {
                return anyhow::Ok(());
            }
        }
    });
    gone.await?
}

async fn a_database_that_is_away_counts_nothing_and_says_so(db: TestDb) -> anyhow::Result<()> {
    let charge = charge("away", 5, LONG_SECONDS)?;
    assert_eq!(rates::charge(&db.db, charge.clone()).await?, Decision::Allowed);
    db.db.close().await;
    let refused = rates::charge(&db.db, charge.clone()).await;
    assert!(matches!(refused, Err(TxError::Down(_))), "{refused:?}");
    assert_eq!(counts(&db, &charge.principal).await?, [1]);
    Ok(())
}
