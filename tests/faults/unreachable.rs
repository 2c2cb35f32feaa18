//! The database out of reach, in every way a network knows, while clients capture and flush and a Worker runs: the whole
//! recovers by itself, nothing that was acknowledged is lost, every call ends in time, and a run whose lease cannot be
//! renewed is stopped before somebody else may have it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use futures_util::future::join_all;
use powercontext::families::{Cancel, Done, Family, FamilySpec, ProcessorHost};
use powercontext::ledger::{Flushed, Ledger, capture};
use powercontext::rt;
use powercontext::store::Db;
use powercontext::worker::{Inline, Worker};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkId};
use powercontext_tests::proxy::Mode;
use powercontext_tests::wait::until;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kit::{LEASE, Rig, limits, request, source, worker_settings};

/// How long the database is out of reach: several leases, and several deadlines of a transaction.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long things run in peace before it.
const PEACE: Duration = Duration::from_secs(1);
/// How long all work may take to end once the network has healed: a lease, a retry's delay, the work itself.
const HEALING: Duration = Duration::from_mins(1);
/// What a busy machine may add to any limit.
const SLACK: Duration = Duration::from_secs(2);
const CLIENTS: usize = 3;
const SCOPES: usize = 4;
/// A scope whose first run never ends by itself.
const STUCK: &str = "stuck";

/// The ways, and what each is.
const WAYS: [(Mode, &str); 5] = [
    (Mode::Refuse, "a server that refuses connections"),
    (Mode::BlackHole, "a network that swallows everything"),
    (Mode::HalfOpen, "connections that only the server has closed"),
    (Mode::Reset, "connections that are reset again and again"),
    (Mode::Stall, "a network that delivers everything late"),
];

/// All at once, each with a schema, a proxy, clients and a Worker of its own: one after the other they would take minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_out_of_reach_for_30_s_in_any_way_costs_nothing_acknowledged() -> anyhow::Result<()> {
    let all = WAYS.map(|(mode, what)| async move { outage(mode).await.context(what) });
    let failed: Vec<_> = join_all(all).await.into_iter().filter_map(Result::err).collect();
    ensure!(failed.is_empty(), "{failed:#?}");
    Ok(())
}

/// What clients were told.
#[derive(Default)]
struct Told {
    /// Sources that were acknowledged, with their positions.
    captured: Vec<(ScopeId, String, u64)>,
    /// Items that were accepted.
    accepted: Vec<WorkId>,
    /// When the last capture was acknowledged.
    last: Option<Instant>,
    /// Calls that failed, by what they said.
    refused: BTreeMap<String, u32>,
    longest: Duration,
}

/// One client: captures, and flushes now and then, until it is told to stop.
async fn client(
    db: Db,
    ledger: Ledger,
    told: Arc<Mutex<Told>>,
    me: usize,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut n = 0;
    while !stop.is_cancelled() {
        let scope = ScopeId::parse(format!("client {me} scope {}", n % SCOPES))?;
        let id = n.to_string();
        let started = rt::now();
        let captured = capture(&db, source(&scope, &id)?).await;
        let capture_took = started.elapsed();
        let started = rt::now();
        let flushed = if n % 3 == 0 {
            Some(ledger.flush(request(&scope)).await)
        } else {
            None
        };
        let took = capture_took.max(started.elapsed());
        {
            let mut told = lock(&told);
            told.longest = told.longest.max(took);
            match captured {
                Ok(captured) => {
                    told.captured.push((scope, id, captured.position.get()));
                    told.last = Some(rt::now());
                }
                Err(error) => *told.refused.entry(error.to_string()).or_default() += 1,
            }
            match flushed {
                Some(Ok(Flushed::Accepted { id, .. })) => told.accepted.push(id),
                Some(Err(error)) => *told.refused.entry(error.to_string()).or_default() += 1,
                _ => {}
            }
        }
        n += 1;
        rt::sleep(Duration::from_millis(30)).await;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Memory family; its first run in the scope [`STUCK`] never ends by itself, and says when it is gone.
struct Stuck {
    family: Arc<dyn Family>,
    is_first: AtomicBool,
    gone: Arc<Mutex<Option<Instant>>>,
    began: Arc<AtomicBool>,
}

struct Gone(Arc<Mutex<Option<Instant>>>);

impl Drop for Gone {
    fn drop(&mut self) {
        *lock(&self.0) = Some(rt::now());
    }
}

#[async_trait]
impl Family for Stuck {
    fn spec(&self) -> &FamilySpec {
        self.family.spec()
    }

    async fn run(&self, host: &dyn ProcessorHost, scope: &ScopeId, cancel: &Cancel) -> Result<Done, FailCode> {
        if scope.as_str() == STUCK && self.is_first.swap(false, Ordering::SeqCst) {
            let _gone = Gone(Arc::clone(&self.gone));
            self.began.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        self.family.run(host, scope, cancel).await
    }
}

/// What runs while the network breaks.
struct Running {
    rig: Rig,
    told: Arc<Mutex<Told>>,
    stuck: (ScopeId, WorkId),
    gone: Arc<Mutex<Option<Instant>>>,
    worker: (CancellationToken, JoinHandle<()>),
    clients: (CancellationToken, JoinSet<anyhow::Result<()>>),
}

impl Running {
    /// Clients and a Worker at their work, one of whose runs is stuck.
    async fn start() -> anyhow::Result<Self> {
        let rig = Rig::new().await?;
        let (gone, began) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let family = Stuck {
            family: Arc::clone(&rig.family),
            is_first: AtomicBool::new(true),
            gone: Arc::clone(&gone),
            began: Arc::clone(&began),
        };
        let worker = Worker::new(
            rig.ledger.clone(),
            Arc::new(Inline::new([Arc::new(family) as _])),
            worker_settings(),
        );
        let work = CancellationToken::new();
        let working = rt::spawn({
            let work = work.clone();
            async move { worker.run(work).await }
        });
        let (load, mut clients) = (CancellationToken::new(), JoinSet::new());
        let told = Arc::new(Mutex::new(Told::default()));
        for me in 0..CLIENTS {
            let (db, ledger) = (rig.db.clone(), rig.ledger.clone());
            clients.spawn(client(db, ledger, Arc::clone(&told), me, load.clone()));
        }
        let stuck = rig.queued(STUCK).await?;
        until("the stuck run begins", HEALING, async || {
            Ok(began.load(Ordering::SeqCst).then_some(()))
        })
        .await?;
        Ok(Self {
            rig,
            told,
            stuck,
            gone,
            worker: (work, working),
            clients: (load, clients),
        })
    }
}

async fn outage(mode: Mode) -> anyhow::Result<()> {
    let all = Running::start().await?;
    let (rig, told) = (&all.rig, &all.told);
    rt::sleep(PEACE).await;

    let broken = rt::now();
    rig.proxy.set(mode).await?;
    rt::sleep(OUTAGE).await;
    let stopped = lock(&all.gone).context("a run went on without its lease")?;
    ensure!(
        stopped <= broken + LEASE.as_std() + Duration::from_millis(500),
        "a run was stopped {:?} after its lease could last be renewed",
        stopped - broken
    );
    rig.proxy.set(Mode::Pass).await?;
    let healed = rt::now();

    let heard = until("a capture is acknowledged again", HEALING, async || {
        Ok(lock(told).last.filter(|at| *at > healed))
    });
    let heard = heard.await?;
    let ran = until("work ends again", HEALING, async || ended_since(rig, healed).await).await?;
    rt::sleep(PEACE).await;
    all.clients.0.cancel();
    for client in all.clients.1.join_all().await {
        client?;
    }
    settle(rig, told).await?;
    let settled = rt::now();
    all.worker.0.cancel();
    all.worker.1.await?;

    report(
        mode,
        told,
        healed,
        &[("capture", heard), ("work", ran), ("all work", settled)],
    );
    kept(rig, told).await?;
    let (scope, id) = &all.stuck;
    ensure!(rig.state(*id).await? == "succeeded", "{}", rig.state(*id).await?);
    ensure!(rig.rows("pc_artifacts", scope).await? == 1);
    rig.check().await
}

/// Now, once an item ended well later than the network healed.
async fn ended_since(rig: &Rig, healed: Instant) -> anyhow::Result<Option<Instant>> {
    let since = healed.elapsed().as_micros();
    let sql = format!(
        "select count(*) from pc_work_items
         where status = 'succeeded' and completed_at > utc_timestamp(6) - interval {since} microsecond"
    );
    Ok((rig.number(sql).await? > 0).then(rt::now))
}

/// Flushes what is left and waits until nothing lives any more.
async fn settle(rig: &Rig, told: &Arc<Mutex<Told>>) -> anyhow::Result<()> {
    let scopes: Vec<ScopeId> = lock(told).captured.iter().map(|(scope, ..)| scope.clone()).collect();
    let scopes: std::collections::BTreeSet<ScopeId> = scopes.into_iter().collect();
    until("all work ends", HEALING, async || {
        let live = "select count(*) from pc_work_items where status not in ('succeeded', 'cancelled')";
        if rig.number(live.to_owned()).await? > 0 {
            return Ok(None);
        }
        for scope in &scopes {
            if let Flushed::Accepted { .. } = rig.direct.flush(request(scope)).await? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

/// Everything that was acknowledged is there, and every call ended in time.
async fn kept(rig: &Rig, told: &Arc<Mutex<Told>>) -> anyhow::Result<()> {
    let sources = rig.keys("select concat(scope_id, '#', source_id, '#', journal_position) from pc_sources");
    let sources = sources.await?;
    let succeeded = rig
        .keys("select work_id from pc_work_items where status = 'succeeded'")
        .await?;
    let told = lock(told);
    for (scope, id, position) in &told.captured {
        let is_kept = sources.contains(&format!("{scope}#{id}#{position}"));
        ensure!(is_kept, "source {id} of {scope} was acknowledged and is lost");
    }
    for id in &told.accepted {
        ensure!(
            succeeded.contains(&id.to_string()),
            "item {id} was accepted and did not succeed"
        );
    }
    // A capture is run twice at most, a flush three times, each within the deadline of a transaction.
    ensure!(
        told.longest <= 3 * limits().deadline() + SLACK,
        "a call took {:?}",
        told.longest
    );
    Ok(())
}

fn report(mode: Mode, told: &Arc<Mutex<Told>>, healed: Instant, when: &[(&str, Instant)]) {
    let told = lock(told);
    let when: Vec<String> = when
        .iter()
        .map(|(what, at)| format!("{what} {:.1?}", *at - healed))
        .collect();
    println!(
        "{mode:?}: after it healed {}; longest call {:.1?}; {} captured, {} accepted, refused {:?}",
        when.join(", "),
        told.longest,
        told.captured.len(),
        told.accepted.len(),
        told.refused
    );
}
