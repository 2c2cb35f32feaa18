//! Many invocations over many lanes while Workers are killed at random: each has one effect.
//!
//! `POWERCONTEXT_TEST_INVOCATIONS` makes it more than the 2,000 of an ordinary run; `POWERCONTEXT_TEST_SEED` repeats the kills.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::{join, try_join_all};
use powercontext::rt;
use powercontext_tests::client::Client;
use powercontext_tests::server::Server;
use powercontext_tests::wait::until;
use powercontext_tests::{facts, plans};
use tokio_util::sync::CancellationToken;

use crate::rig::Deployment;

const LANES: u32 = 64;
const INVOCATIONS: u32 = 2000;
/// Beside each other; one of them is dead most of the time.
const WORKERS: usize = 3;
/// Between two kills, in milliseconds: at least, and at most so much more. A lease is 8 s.
const KILLS_MIN: u64 = 4000;
const KILLS_MORE: u64 = 4000;
/// Of each Worker. More would be more processes than two cores can run.
const SLOTS: &str = "8";
/// Longest that an invocation may take, whatever is killed and however busy the machine is.
const ENDED_WITHIN: Duration = Duration::from_mins(3);

fn scope(lane: u32) -> String {
    format!("lane-{lane:02}")
}

/// Feeds one lane, one Source and one flush after the other. What a busy server does not take is sent again.
async fn feed(client: &Client, lane: u32, rounds: u32) -> anyhow::Result<()> {
    let scope = scope(lane);
    for n in 1..=rounds {
        let (id, content) = (format!("s{n}"), format!("user: I prefer lamp number {n} in {scope}."));
        until("the Source is captured", ENDED_WITHIN, async || {
            client.capture(&scope, &id, &content).await?.expect(202).map(Some)
        })
        .await?;
        until("the flush is done", ENDED_WITHIN, async || {
            let flushed = client.flush(&scope, "wait=25").await?;
            ensure!(flushed.status == 200, "{flushed:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// Kills one Worker after the other and starts another in its place, until `stop`; answers how many.
async fn kill(
    deployment: &Deployment,
    workers: &mut Vec<Server>,
    seed: u64,
    stop: &CancellationToken,
) -> anyhow::Result<u32> {
    let mut random = seed | 1;
    let mut next = |below: u64| {
        // Xorshift: no more is asked of it than that a seed repeats it.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut kills = 0;
    loop {
        let pause = Duration::from_millis(KILLS_MIN + next(KILLS_MORE));
        if rt::within(pause, stop.cancelled()).await.is_ok() {
            return Ok(kills);
        }
        let victim = usize::try_from(next(workers.len() as u64))?;
        workers.swap_remove(victim).kill().await?;
        kills += 1;
        // Nobody waits until it is ready: the next kill may meet it at its start.
        workers.push(deployment.role("worker").spawn().await?);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_invocations_over_64_lanes_with_killed_workers_make_no_revision_twice() -> anyhow::Result<()> {
    let wanted = powercontext_tests::number("POWERCONTEXT_TEST_INVOCATIONS")?;
    let invocations = wanted.map_or(Ok(INVOCATIONS), u32::try_from)?;
    let seed = powercontext_tests::seed()?;
    println!("POWERCONTEXT_TEST_SEED={seed}");
    let rounds = invocations.div_ceil(LANES);
    let deployment = Deployment::new().await?;
    // A run is killed as often as its Worker happens to be; that is no reason to give it up here.
    let deployment = deployment
        .with("WORKER_CONCURRENCY", SLOTS)
        .with("WORKER_LEASE_SECONDS", "8")
        .with("WORKER_HEARTBEAT_SECONDS", "2")
        .with("WORKER_MAX_ATTEMPTS", "100");
    let apis = [deployment.start("api").await?, deployment.start("api").await?];
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(deployment.start("worker").await?);
    }
    let began = rt::now();
    let stop = CancellationToken::new();
    let lanes = (0..LANES).map(|lane| feed(&apis[lane as usize % apis.len()].client, lane, rounds));
    let feeding = async {
        let fed = try_join_all(lanes).await;
        stop.cancel();
        fed
    };
    let (fed, kills) = join(feeding, kill(&deployment, &mut workers, seed, &stop)).await;
    fed?;
    let kills = kills?;
    println!(
        "{} invocations, {kills} killed Workers, {:.1?}",
        rounds * LANES,
        began.elapsed()
    );
    ensure!(kills > 0, "nobody was killed");
    once_each(&deployment, rounds).await?;
    serial_lanes_that_overlap(&deployment).await?;
    deployment.holds().await?;
    let whole = plans::whole_tables(deployment.database.url()).await?;
    ensure!(whole.is_empty(), "a whole table is read for a key: {whole:#?}");
    // The Workers end as they lived, by a kill.
    for api in apis {
        api.stop().await?;
    }
    Ok(())
}

/// Each operation succeeded once, and each made one revision and one entry of the Source that it was for.
async fn once_each(deployment: &Deployment, rounds: u32) -> anyhow::Result<()> {
    let (lanes, rounds) = (i64::from(LANES), i64::from(rounds));
    let database = &deployment.database;
    for (what, sql) in [
        ("items", "select count(*) from pc_work_items where status = 'succeeded'"),
        (
            "successes",
            "select count(*) from pc_work_attempts where outcome = 'succeeded'",
        ),
        ("revisions", "select count(*) from pc_artifacts"),
        (
            "Sources that a revision came from",
            "select count(*) from pc_artifact_lineage_sources",
        ),
    ] {
        let found = facts::number(database, sql).await?;
        ensure!(found == lanes * rounds, "{found} {what} of {}", lanes * rounds);
    }
    let uneven = format!(
        "select count(*) from (select scope_id, count(*) as n, max(revision) as newest from pc_artifacts group by scope_id) s
         where n <> {rounds} or newest <> {rounds}"
    );
    ensure!(
        facts::number(database, &uneven).await? == 0,
        "a lane with too many or too few revisions"
    );
    for lane in 0..LANES {
        let read = facts::cursor_and_head(database, &scope(lane)).await?;
        ensure!(read == (rounds, rounds), "{lane}: {read:?}");
    }
    Ok(())
}

/// No lane ran two attempts at once; lanes did.
async fn serial_lanes_that_overlap(deployment: &Deployment) -> anyhow::Result<()> {
    let sql = "select i.lane_key, cast(unix_timestamp(a.started_at) * 1000000 as signed),
                      cast(unix_timestamp(a.finished_at) * 1000000 as signed)
               from pc_work_attempts a join pc_work_items i on i.work_id = a.work_id
               order by i.lane_key, a.started_at, a.finished_at";
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    let mut moments = Vec::new();
    for row in deployment.database.raw().await?.rows(sql).await? {
        let (lane, began, ended) = (row.text(0)?, row.int(1)?, row.int(2)?);
        let before = last.insert(lane.clone(), ended);
        ensure!(
            before.is_none_or(|before| before <= began),
            "two attempts at once in {lane}"
        );
        moments.extend([(began, 1), (ended, -1)]);
    }
    moments.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in moments {
        now += change;
        most = most.max(now);
    }
    ensure!(most >= 8, "at most {most} lanes ran at once");
    Ok(())
}
