//! Groups of transactions on a file of their own: who shares a commit, who is told what, and who is harmed by whom.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use powercontext_core::fail::FailCode;
use powercontext_core::time::Span;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::rt;
use crate::store::conn::values;
use crate::store::error::{Down, FenceLost, TxError, sqlite};
use crate::store::local::session::Session;
use crate::store::{DatabaseUrl, Db, DbLimits, Tx, TxName};

const SOON: Duration = Duration::from_secs(20);

/// A file with a table of numbers, and one whose rows must point at a number by the time of the commit.
struct File {
    db: Db,
    directory: TempDir,
}

/// What a body does after it has written its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Succeeds,
    Fails,
    /// Finds that somebody else holds what it writes for.
    IsFencedOut,
    Panics,
    /// Runs a statement that makes SQLite roll back everything that is open.
    RollsBackAll,
    /// Leaves a row that COMMIT must refuse.
    CannotCommit,
    /// Waits for something that is not the database.
    Sleeps,
}

impl File {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = DatabaseUrl::Sqlite(directory.path().join("group.db"));
        let db = Db::open(&url, DbLimits::for_lease(Span::seconds(6), 2))
            .await
            .expect("a new file");
        let made = db.tx(TxName::Migrate, |tx| {
            Box::pin(async move {
                let numbers = "CREATE TABLE numbers (n INTEGER NOT NULL PRIMARY KEY) STRICT";
                tx.execute(numbers, &[]).await?;
                let pointers = "CREATE TABLE pointers
                  (n INTEGER NOT NULL REFERENCES numbers (n) DEFERRABLE INITIALLY DEFERRED) STRICT";
                tx.execute(pointers, &[]).await.map(drop)
            })
        });
        made.await.expect("two tables");
        Self { db, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("group.db")
    }

    async fn until_waiting(&self, count: usize) {
        let (until, queue) = (rt::now() + SOON, &self.db.local().expect("a file").writes);
        while queue.len() < count {
            assert!(rt::now() < until, "{} of {count} wait", queue.len());
            tokio::task::yield_now().await;
        }
    }

    async fn numbers(&self) -> Vec<i64> {
        self.db
            .read(TxName::Load, |tx| Box::pin(numbers(tx)))
            .await
            .expect("a read")
    }

    /// Holds the writer until the answer is cancelled, so that everything that comes meanwhile waits. It may be run again.
    async fn hold(&self) -> (CancellationToken, JoinHandle<Result<(), TxError>>) {
        let (holds, go_on) = (Arc::new(Notify::new()), CancellationToken::new());
        let (db, told, waits) = (self.db.clone(), Arc::clone(&holds), go_on.clone());
        let held = rt::spawn(async move {
            db.tx(TxName::Ping, move |_| {
                let (told, waits) = (Arc::clone(&told), waits.clone());
                Box::pin(async move {
                    told.notify_one();
                    waits.cancelled().await;
                    Ok(())
                })
            })
            .await
        });
        rt::within(SOON, holds.notified()).await.expect("the writer was free");
        (go_on, held)
    }

    /// Lets bodies wait for the writer together, each with its number, and answers what each was told and how often each
    /// body ran.
    async fn together(&self, bodies: &[Then]) -> Vec<(Result<(), TxError>, u32)> {
        let (go_on, held) = self.hold().await;
        let mut tasks = Vec::new();
        for (n, then) in (1..).zip(bodies) {
            let runs = Arc::new(AtomicU32::new(0));
            tasks.push((rt::spawn(write(self.db.clone(), n, *then, Arc::clone(&runs))), runs));
            // One after the other, so that their order is known.
            self.until_waiting(tasks.len()).await;
        }
        go_on.cancel();
        held.await.expect("no panic").expect("nothing to fail");
        let mut told = Vec::new();
        for (task, runs) in tasks {
            let answer = match task.await {
                Ok(answer) => answer,
                Err(error) => {
                    assert!(error.is_panic());
                    Err(TxError::Refused(FailCode::Unhandled))
                }
            };
            told.push((answer, runs.load(Ordering::SeqCst)));
        }
        told
    }
}

async fn numbers(tx: &mut Tx) -> Result<Vec<i64>, TxError> {
    let rows = tx.fetch("SELECT n FROM numbers ORDER BY n", &[]).await?;
    rows.iter().map(|row| row.int("n")).collect()
}

async fn write(db: Db, n: i64, then: Then, runs: Arc<AtomicU32>) -> Result<(), TxError> {
    db.tx(TxName::Edit, move |tx| {
        let runs = Arc::clone(&runs);
        Box::pin(async move {
            runs.fetch_add(1, Ordering::SeqCst);
            tx.execute_one("INSERT INTO numbers (n) VALUES (?)", values![n]).await?;
            match then {
                Then::Succeeds => Ok(()),
                Then::Fails => Err(TxError::Refused(FailCode::HeadChanged)),
                Then::IsFencedOut => Err(TxError::Fenced(FenceLost::Item)),
                Then::Panics => panic!("a fault of the body"),
                Then::RollsBackAll => tx
                    .execute("INSERT OR ROLLBACK INTO numbers (n) VALUES (?)", values![n])
                    .await
                    .map(drop),
                Then::CannotCommit => {
                    tx.execute_one("INSERT INTO pointers (n) VALUES (?)", values![n + 1000])
                        .await
                }
                Then::Sleeps => {
                    rt::sleep(Duration::from_millis(1)).await;
                    Ok(())
                }
            }
        })
    })
    .await
}

fn well(told: &[(Result<(), TxError>, u32)]) -> Vec<bool> {
    told.iter().map(|(answer, _)| answer.is_ok()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_wait_share_a_commit_and_are_told_after_it() {
    let file = File::new().await;
    let (go_on, held) = file.hold().await;
    let first = rt::spawn(write(file.db.clone(), 1, Then::Succeeds, Arc::default()));
    file.until_waiting(1).await;
    // It sees the first one's row, which nobody else does: that one has ended and is not committed.
    let (db, path) = (file.db.clone(), file.path());
    let second = rt::spawn(async move {
        db.tx(TxName::Load, move |tx| {
            let path = path.clone();
            Box::pin(async move {
                let inside = numbers(tx).await?;
                let mut beside = Session::reading(&path)?;
                let outside = beside
                    .fetch("SELECT n FROM numbers", &[])
                    .map_err(|error| sqlite(&error))?;
                Ok((inside, outside.len()))
            })
        })
        .await
    });
    file.until_waiting(2).await;
    go_on.cancel();
    held.await.expect("no panic").expect("nothing to fail");
    first.await.expect("no panic").expect("a number");
    assert_eq!(second.await.expect("no panic"), Ok((vec![1], 0)));
    assert_eq!(file.numbers().await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_panics_or_is_fenced_out_harms_no_neighbour() {
    let file = File::new().await;
    let bodies = [
        Then::Succeeds,
        Then::Fails,
        Then::Succeeds,
        Then::Panics,
        Then::Succeeds,
        Then::IsFencedOut,
        Then::Succeeds,
    ];
    let told = file.together(&bodies).await;
    assert_eq!(well(&told), [true, false, true, false, true, false, true]);
    assert_eq!(told[5].0, Err(TxError::Fenced(FenceLost::Item)));
    assert!(told.iter().all(|(_, runs)| *runs == 1), "{told:?}");
    assert_eq!(file.numbers().await, [1, 3, 5, 7]);
    // The first of a group has no savepoint.
    let told = file.together(&[Then::Fails, Then::Panics, Then::IsFencedOut]).await;
    assert_eq!(well(&told), [false, false, false]);
    assert_eq!(file.numbers().await, [1, 3, 5, 7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_the_engine_rolls_back_comes_apart_and_each_keeps_its_own_fate() {
    let file = File::new().await;
    let bodies = [Then::Succeeds, Then::Succeeds, Then::RollsBackAll, Then::Succeeds];
    let told = file.together(&bodies).await;
    assert_eq!(well(&told), [true, true, false, true]);
    assert_eq!(told[2].0, Err(TxError::Constraint));
    assert_eq!((told[0].1, told[1].1), (2, 2), "they were run again");
    assert_eq!(file.numbers().await, [1, 2, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_refused_costs_only_the_one_that_caused_it() {
    let file = File::new().await;
    let bodies = [Then::Succeeds, Then::CannotCommit, Then::Succeeds];
    let told = file.together(&bodies).await;
    assert_eq!(well(&told), [true, false, true]);
    assert!(told.iter().all(|(_, runs)| *runs == 2), "{told:?}");
    assert_eq!(file.numbers().await, [1, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_for_something_else_leaves_the_group_and_is_run_after_it() {
    let file = File::new().await;
    let told = file.together(&[Then::Succeeds, Then::Sleeps, Then::Succeeds]).await;
    assert_eq!(well(&told), [true, true, true]);
    assert_eq!(told.iter().map(|(_, runs)| *runs).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(file.numbers().await, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_went_away_takes_nothing_back_and_harms_nobody() {
    let file = File::new().await;
    let (go_on, held) = file.hold().await;
    let tasks: Vec<_> = (1..=3)
        .map(|n| rt::spawn(write(file.db.clone(), n, Then::Succeeds, Arc::default())))
        .collect();
    file.until_waiting(3).await;
    tasks[1].abort();
    go_on.cancel();
    held.await.expect("no panic").expect("nothing to fail");
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.is_ok(), n != 1);
    }
    // Whoever comes after it is told after it.
    write(file.db.clone(), 4, Then::Succeeds, Arc::default())
        .await
        .expect("a number");
    assert_eq!(file.numbers().await, [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_file_finishes_what_waits_and_takes_nothing_more() {
    let file = File::new().await;
    let (go_on, held) = file.hold().await;
    let task = rt::spawn(write(file.db.clone(), 1, Then::Succeeds, Arc::default()));
    file.until_waiting(1).await;
    go_on.cancel();
    file.db.close().await;
    held.await.expect("no panic").expect("nothing to fail");
    task.await.expect("no panic").expect("a number");
    let late = write(file.db.clone(), 2, Then::Succeeds, Arc::default()).await;
    assert_eq!(late, Err(TxError::Down(Down::Connection)));
}
