//! A run that cannot read its input because the database is out of reach: that is not the item's doing, so it is given back
//! and costs it no attempt of its budget.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use powercontext::rt;
use powercontext::worker::{Inline, Worker};
use powercontext_tests::proxy::{Act, At, Rule};
use powercontext_tests::wait::until;
use tokio_util::sync::CancellationToken;

use crate::kit::{Rig, worker_settings};

/// Longest wait for the end of the work: some runs, each with the deadline of a transaction.
const SOON: Duration = Duration::from_mins(1);
/// How often the read is broken: more often than it is tried by one run, so that one fails.
const BROKEN: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_reads_meet_a_dead_database_is_given_back_and_costs_nothing() -> anyhow::Result<()> {
    let rig = Rig::new().await?;
    let (_, id) = rig.queued("s").await?;
    for _ in 0..BROKEN {
        rig.proxy.arm(Rule {
            at: At::Statement("sources.window"),
            act: Act::CutBefore,
            skip: 0,
        });
    }
    let executor = Arc::new(Inline::new([Arc::clone(&rig.family)]));
    let worker = Worker::new(rig.ledger.clone(), executor, worker_settings());
    let stop = CancellationToken::new();
    let working = rt::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    until("the item succeeds", SOON, async || {
        Ok((rig.state(id).await? == "succeeded").then_some(()))
    })
    .await?;
    stop.cancel();
    working.await?;
    let outcomes = rig.outcomes(id).await?;
    let (last, before) = outcomes
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    ensure!(last == "succeeded" && !before.is_empty(), "{outcomes:?}");
    ensure!(before.iter().all(|outcome| outcome == "released"), "{outcomes:?}");
    let row = rig.direct.work(id).await?;
    let spent = row.map(|row| row.item.counters.budget_used);
    ensure!(spent == Some(1), "{spent:?} attempts of the budget are spent");
    rig.check().await
}
