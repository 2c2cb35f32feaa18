//! Clients that go on whatever happens, at a steady pace, and remember what they were told and what they should not have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use powercontext::rt;
use powercontext_cluster_tests::wait::until;
use powercontext_tests::client::{Answer, Client};
use powercontext_tests::facts;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::SOON;
use crate::tenant::Tenant;

/// Requests of all clients together.
const PER_SECOND: u32 = 20;
const CLIENTS: u32 = 10;
/// One in so many captures is followed by a flush; the schedule finds the others.
const FLUSH_EVERY: u32 = 4;

/// Clients at work, each in a scope of its own.
pub(crate) struct Traffic {
    stop: CancellationToken,
    clients: JoinSet<Told>,
    accepted: Arc<AtomicU64>,
}

/// What a client was told.
#[derive(Default)]
struct Told {
    scope: String,
    sources: Vec<String>,
    operations: Vec<String>,
    seen: Seen,
}

/// What clients saw beside acceptance.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// 503 with `Retry-After`: the client comes again.
    pub(crate) put_off: u64,
    /// Nobody listened.
    pub(crate) refused: Vec<String>,
    /// A connection was closed before the answer.
    pub(crate) broken: Vec<String>,
    /// An answer that no client should see.
    pub(crate) faults: Vec<String>,
}

/// What all clients were told.
pub(crate) struct Acknowledged {
    told: Vec<Told>,
    /// What they saw beside acceptance.
    pub(crate) seen: Seen,
}

impl Traffic {
    /// Starts clients of the Service; half of them keep their connection, half make a new one for each request.
    ///
    /// # Errors
    /// When there is no Service.
    pub(crate) async fn start(tenant: &Tenant) -> anyhow::Result<Self> {
        let service = tenant.service().await?;
        let stop = CancellationToken::new();
        let accepted = Arc::new(AtomicU64::new(0));
        let mut clients = JoinSet::new();
        for n in 0..CLIENTS {
            let client = Client::new(service)?;
            let client = if n % 2 == 0 {
                client.bearing(&tenant.token)?
            } else {
                client.reconnecting(&tenant.token)?
            };
            let (stop, accepted) = (stop.clone(), Arc::clone(&accepted));
            clients.spawn(run(client, format!("load-{n:02}"), stop, accepted));
        }
        Ok(Self {
            stop,
            clients,
            accepted,
        })
    }

    /// Requests accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Waits until so many more requests were accepted.
    ///
    /// # Errors
    /// When they are not in time.
    pub(crate) async fn flows(&self, more: u64) -> anyhow::Result<()> {
        let before = self.accepted();
        until(&format!("{more} more requests are accepted"), SOON, async || {
            Ok((self.accepted() >= before + more).then_some(()))
        })
        .await
    }

    /// Ends the clients.
    pub(crate) async fn stop(self) -> Acknowledged {
        self.stop.cancel();
        let mut told = self.clients.join_all().await;
        let mut seen = Seen::default();
        for one in &mut told {
            seen.put_off += one.seen.put_off;
            seen.refused.append(&mut one.seen.refused);
            seen.broken.append(&mut one.seen.broken);
            seen.faults.append(&mut one.seen.faults);
        }
        Acknowledged { told, seen }
    }
}

async fn run(client: Client, scope: String, stop: CancellationToken, accepted: Arc<AtomicU64>) -> Told {
    let mut told = Told {
        scope,
        ..Told::default()
    };
    let began = rt::now();
    let pace = Duration::from_secs(1) * CLIENTS / PER_SECOND;
    for n in 1.. {
        let id = format!("s{n}");
        let content = format!("user: I prefer lamp number {n} in {}.", told.scope);
        let captured = client.capture(&told.scope, &id, &content).await;
        if told.seen.accepted("capture", captured, &accepted).is_some() {
            told.sources.push(id);
        }
        if n % FLUSH_EVERY == 0 {
            let flushed = client.flush(&told.scope, "respond-async").await;
            let answer = told.seen.accepted("flush", flushed, &accepted);
            told.operations
                .extend(answer.and_then(|answer| answer.operation_id().ok()));
        }
        let next = began + pace * n;
        tokio::select! { biased; () = stop.cancelled() => break, () = rt::sleep_until(next) => {} }
    }
    told
}

impl Seen {
    /// The answer, if it accepts; what else there was is remembered.
    fn accepted(&mut self, what: &str, answer: anyhow::Result<Answer>, accepted: &AtomicU64) -> Option<Answer> {
        match answer {
            Ok(answer) if matches!(answer.status, 200 | 202) => {
                accepted.fetch_add(1, Ordering::SeqCst);
                return Some(answer);
            }
            Ok(answer) if answer.status == 503 && answer.retry_after.is_some() => self.put_off += 1,
            Ok(answer) => self.faults.push(format!("{what}: {} {}", answer.status, answer.text)),
            Err(error) => {
                let text = format!("{what}: {error:#}");
                let is_refused = error
                    .downcast_ref::<reqwest::Error>()
                    .is_some_and(reqwest::Error::is_connect);
                if is_refused {
                    &mut self.refused
                } else {
                    &mut self.broken
                }
                .push(text);
            }
        }
        None
    }

    /// Nobody saw anything but acceptance and 503 with `Retry-After`.
    ///
    /// # Errors
    /// With what was seen.
    pub(crate) fn nothing_else(&self) -> anyhow::Result<()> {
        let (faults, broken, refused) = (self.faults.len(), self.broken.len(), self.refused.len());
        let all = self.faults.iter().chain(&self.broken).chain(&self.refused);
        ensure!(
            faults + broken + refused == 0,
            "{faults} faults, {broken} broken, {refused} refused: {:?}",
            all.take(5).collect::<Vec<_>>()
        );
        Ok(())
    }
}

impl Acknowledged {
    /// Waits until everything is read, and proves that nothing that was acknowledged is lost or came twice.
    ///
    /// # Errors
    /// With what is not so.
    pub(crate) async fn kept(&self, tenant: &Tenant) -> anyhow::Result<()> {
        let database = &tenant.database;
        let unread = "select count(*) from pc_source_journal_heads h left join pc_source_cursors c
                      on c.scope_id = h.scope_id and c.binding_name = 'memory-source-window'
                      where coalesce(c.sequence, 0) < h.position";
        let live = "select count(*) from pc_work_items where status not in ('succeeded', 'cancelled')";
        let settled = until("everything is read and done", SOON, async || {
            let left = (
                facts::number(database, unread).await?,
                facts::number(database, live).await?,
            );
            ensure!(
                left == (0, 0),
                "{} scopes are not read, {} items are not done",
                left.0,
                left.1
            );
            Ok(Some(()))
        });
        tenant.explained(settled.await)?;
        let ended = succeeded(tenant).await?;
        for told in &self.told {
            let stored: BTreeSet<String> = facts::sources(database, &told.scope).await?.into_iter().collect();
            let lost: Vec<_> = told.sources.iter().filter(|id| !stored.contains(*id)).collect();
            ensure!(lost.is_empty(), "{}: acknowledged and lost: {lost:?}", told.scope);
            for operation in &told.operations {
                let state = ended.get(operation).context("an accepted operation is gone")?;
                ensure!(state == "succeeded", "operation {operation} is {state}");
            }
        }
        facts::hold(database).await
    }
}

/// The state of every operation.
async fn succeeded(tenant: &Tenant) -> anyhow::Result<BTreeMap<String, String>> {
    let mut states = BTreeMap::new();
    for row in tenant
        .database
        .raw()
        .await?
        .rows("select work_id, status from pc_work_items")
        .await?
    {
        states.insert(row.text(0)?, row.text(1)?);
    }
    Ok(states)
}
