//! Clients that go on whatever happens, and remember what they were told.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use powercontext::rt;
use powercontext_tests::client::Client;
use powercontext_tests::facts;
use powercontext_tests::wait::until;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::rig::Deployment;

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(150);
/// One in so many captures is followed by a flush; the schedule finds the others.
const FLUSH_EVERY: u32 = 4;
/// Longest until everything that was acknowledged is done.
const SETTLED_WITHIN: Duration = Duration::from_mins(1);

/// Clients at work, each in a scope of its own.
pub(crate) struct Load {
    stop: CancellationToken,
    clients: JoinSet<(String, Told)>,
}

/// What a client was told.
#[derive(Default)]
struct Told {
    sources: Vec<String>,
    operations: Vec<String>,
}

/// What all clients were told.
pub(crate) struct Acknowledged(BTreeMap<String, Told>);

impl Load {
    /// Starts so many clients of these APIs.
    pub(crate) fn start(apis: &[&Client], clients: u32) -> Self {
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        for n in 0..clients {
            let api = apis[n as usize % apis.len()].clone();
            running.spawn(client(api, format!("load-{n:02}"), stop.clone()));
        }
        Self { stop, clients: running }
    }

    /// Ends them.
    pub(crate) async fn stop(self) -> Acknowledged {
        self.stop.cancel();
        Acknowledged(self.clients.join_all().await.into_iter().collect())
    }
}

async fn client(api: Client, scope: String, stop: CancellationToken) -> (String, Told) {
    let mut told = Told::default();
    for n in 1.. {
        let id = format!("s{n}");
        let content = format!("user: I prefer lamp number {n} in {scope}.");
        // What was refused or not answered may be there or not; its id is not used again.
        if let Ok(answer) = api.capture(&scope, &id, &content).await
            && answer.status == 202
        {
            told.sources.push(id);
        }
        if n % FLUSH_EVERY == 0
            && let Ok(answer) = api.flush(&scope, "respond-async").await
            && answer.status == 202
        {
            told.operations.extend(answer.operation_id());
        }
        tokio::select! { biased; () = stop.cancelled() => break, () = rt::sleep(PAUSE) => {} }
    }
    (scope, told)
}

impl Acknowledged {
    /// How many Sources and operations.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let sum = |count: fn(&Told) -> usize| self.0.values().map(count).sum();
        (sum(|told| told.sources.len()), sum(|told| told.operations.len()))
    }

    /// Waits until everything is read, and proves that nothing is lost and nothing came twice.
    pub(crate) async fn kept(&self, deployment: &Deployment) -> anyhow::Result<()> {
        let database = &deployment.database;
        for scope in self.0.keys() {
            let read = until("everything is read", SETTLED_WITHIN, async || {
                let (cursor, head) = facts::cursor_and_head(database, scope).await?;
                ensure!(cursor == head, "{scope}: cursor {cursor}, head {head}");
                Ok(Some(()))
            });
            read.await?;
        }
        let live = "select count(*) from pc_work_items where status not in ('succeeded', 'cancelled')";
        until("nothing is left to do", SETTLED_WITHIN, async || {
            Ok((facts::number(database, live).await? == 0).then_some(()))
        })
        .await?;
        for (scope, told) in &self.0 {
            let stored = facts::sources(database, scope).await?;
            let lost: Vec<_> = told.sources.iter().filter(|id| !stored.contains(id)).collect();
            ensure!(lost.is_empty(), "{scope}: acknowledged and lost: {lost:?}");
            for operation in &told.operations {
                let outcomes = facts::outcomes(database, operation).await?;
                let end = outcomes.last().with_context(|| format!("no attempt of {operation}"))?;
                ensure!(end == "succeeded", "{operation}: {outcomes:?}");
            }
            // Every Source is one that some revision came from, and only one.
            let from = format!(
                "select count(*), count(distinct source_id) from pc_artifact_lineage_sources where scope_id = '{scope}'"
            );
            let rows = database.raw().await?.rows(&from).await?;
            let (all, distinct) = (rows[0].int(0)?, rows[0].int(1)?);
            let sources = i64::try_from(stored.len())?;
            ensure!(
                (all, distinct) == (sources, sources),
                "{scope}: {sources} Sources, {all} times in a revision, {distinct} of them"
            );
        }
        deployment.holds().await
    }
}
