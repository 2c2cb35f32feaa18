//! Busy processes of a distributed deployment: from a claim to its child at work, one lane that never rests, and the memory of
//! a Worker whose children all wait for the model.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use futures_util::future::try_join_all;
use powercontext::config::{Sources, load};
use powercontext::families::memory::MemorySettings;
use powercontext::families::{
    Cancel, Committed, DomainWrite, Done, HostError, Load, Loaded, ProcessorHost, Reserve, Reserved, Search, SearchHit,
};
use powercontext::ledger::{KindSpec, Kinds, LeaseTerm, Ledger};
use powercontext::rt;
use powercontext::store::{DatabaseUrl, Db, DbLimits};
use powercontext::telemetry::log;
use powercontext::worker::{
    Child, ChildLog, ChildSettings, Executor, FamilyJob, KindSettings, LeaseSettings, ModelJob, Worker, WorkerSettings,
};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{ScopeId, WorkKind};
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::distributed::{Bench, PATIENCE, Rows, capture};
use crate::figure::{Figure, Raw, Table, Target, median};
use crate::machine::{Bare, resident_tree_mb};
use crate::server::{Model, program};

/// Slots of a Worker here.
const SLOTS: u32 = 16;
/// Slots where one run is measured after the other.
const SLOTS_ONE: u32 = 4;
/// Clients that keep one lane busy.
const FEEDERS: usize = 4;
/// How long they do.
const FED_FOR: Duration = Duration::from_secs(8);
/// How long children wait for the model before their memory is read.
const WAITED: Duration = Duration::from_secs(1);
const LEASE: Span = Span::seconds(30);

const STARTED: Figure = Figure {
    name: "distributed: claim to its child's first question, p50",
    unit: "ms",
    target: Target::AtMost(5.0),
};
const HOT: Figure = Figure {
    name: "distributed: one hot lane, p50 of a step",
    unit: "ms",
    target: Target::Shown,
};
const HOT_BEYOND: Figure = Figure {
    name: "distributed: the same less two bare commits (p50)",
    unit: "ms",
    target: Target::AtMost(15.0),
};
const RESIDENT: Figure = Figure {
    name: "distributed: resident memory, Worker and 16 busy children",
    unit: "MB",
    // The Worker's own 40 and 15 for each child; its spares are in it too.
    target: Target::AtMost(40.0 + 15.0 * 16.0),
};

impl Bench<'_> {
    /// All of it, once.
    pub(crate) async fn busy(&self, table: &mut Table, runs: usize, raw: Raw) -> anyhow::Result<()> {
        let api = self
            .role(
                "api",
                &[
                    ("DEPLOYMENT_BEHAVIOR_REVISION", "busy"),
                    ("OPERATIONS_POLL_SECONDS", "0.05"),
                ],
            )
            .await?;
        self.started(table, &api, runs, raw).await?;
        self.hot(table, &api, raw).await?;
        self.resident(table, &api, raw).await?;
        api.stop().await
    }

    /// One invocation after the other in a Worker of this process, which sees when a child first asks for something.
    async fn started(
        &self,
        table: &mut Table,
        api: &crate::server::Server,
        runs: usize,
        raw: Raw,
    ) -> anyhow::Result<()> {
        let asked = Asked::default();
        let worker = self.worker(asked.clone()).await?;
        let stop = CancellationToken::new();
        let working = rt::spawn({
            let stop = stop.clone();
            async move { worker.run(stop).await }
        });
        let mut connection = api.connections(1).await?.remove(0);
        for n in 0..runs {
            let scope = format!("bench/started/{n}");
            capture(&mut connection, &scope, n).await?;
            let flushed = connection.post("/v1/memory/flush", &json!({"scope_id": scope})).await?;
            flushed.json(200)?;
        }
        stop.cancel();
        working.await?;
        let sql = "SELECT i.scope_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', a.started_at)
             FROM pc_work_attempts a JOIN pc_work_items i ON i.work_id = a.work_id
             WHERE i.scope_id LIKE 'bench/started/%'";
        let claimed = Rows::open(&self.schema.url).await?.pairs(sql).await?;
        let asked = asked.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took = Vec::with_capacity(runs);
        for (scope, at) in claimed {
            let asked = *asked
                .get(&scope)
                .with_context(|| format!("no child asked for {scope}"))?;
            #[expect(
                clippy::cast_precision_loss,
                reason = "milliseconds of a benchmark are far below 2^52"
            )]
            took.push((asked - at) as f64 / 1e3);
        }
        ensure!(took.len() == runs, "{} of {runs} ran", took.len());
        table.add(STARTED, median(took.into_iter()), raw);
        Ok(())
    }

    async fn worker(&self, asked: Asked) -> anyhow::Result<Worker> {
        let settings = [
            ("DATABASE_URL", self.schema.url.as_str()),
            ("DEPLOYMENT_MODE", "distributed"),
            ("DEPLOYMENT_ROLE", "worker"),
            ("INFERENCE_GENERATION_MODEL", "openai-chat:deterministic"),
            ("INFERENCE_GENERATION_BASE_URL", &self.model.base_url()),
        ];
        let env = settings.map(|(key, value)| (format!("POWERCONTEXT_SERVER_{key}"), value.to_owned()));
        let settings = load(Sources {
            env: env.into(),
            ..Sources::default()
        });
        let settings = settings.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        let model = settings.generation.as_ref().map(ModelJob::from).context("no model")?;
        let spec = KindSpec::memory(RetryPolicy::UNBOUNDED);
        let job = FamilyJob::Memory {
            settings: MemorySettings::default(),
            model,
        };
        let children = ChildSettings {
            program: program()?,
            spares: SLOTS_ONE as usize,
            log: ChildLog {
                level: tracing::Level::WARN,
                format: log::Format::Console,
            },
        };
        let executor = Watched {
            inner: Child::new([(spec.kind.clone(), job)], children),
            asked,
        };
        let db = Db::open(&DatabaseUrl::parse(&self.schema.url)?, DbLimits::for_lease(LEASE, 8)).await?;
        let settings = WorkerSettings {
            concurrency: SLOTS_ONE,
            kinds: vec![KindSettings {
                kind: spec.kind.clone(),
                cap: None,
                timeout: PATIENCE,
                needs_model: false,
            }],
            poll_max: Duration::from_millis(50),
            lease: Some(LeaseSettings {
                length: LEASE.as_std(),
                heartbeat: LEASE.as_std() / 4,
            }),
            grace: Duration::from_secs(5),
            provider: None,
        };
        let ledger = Ledger::new(db, Kinds::new([spec]), rt::member_id(), LeaseTerm::Timed(LEASE));
        Ok(Worker::new(ledger, Arc::new(executor), settings))
    }

    /// One scope that several clients capture into and flush, each again when its flush has ended: whenever a run of it ends, the
    /// next is there.
    async fn hot(&self, table: &mut Table, api: &crate::server::Server, raw: Raw) -> anyhow::Result<()> {
        let settings = [("DEPLOYMENT_BEHAVIOR_REVISION", "busy")];
        let worker = self.role("worker", &settings).await?;
        let until = rt::now() + FED_FOR;
        let feeders = api.connections(FEEDERS).await?.into_iter().enumerate();
        let feeders = feeders.map(|(feeder, mut connection)| async move {
            let mut n = feeder;
            while rt::now() < until {
                capture(&mut connection, "bench/hot", n).await?;
                let body = json!({"scope_id": "bench/hot"});
                connection.post("/v1/memory/flush", &body).await?.json(200)?;
                n += FEEDERS;
            }
            anyhow::Ok(())
        });
        try_join_all(feeders).await?;
        // Only steps before which the next item was there already, and only runs that did something; the later half of them,
        // before which the server has made a plan for every statement.
        let sql = "SELECT CAST(i.lane_sequence AS CHAR), TIMESTAMPDIFF(MICROSECOND, p.completed_at, i.completed_at)
             FROM pc_work_items i
             JOIN pc_work_items p ON p.lane_key = i.lane_key AND p.lane_sequence = i.lane_sequence - 1
             WHERE i.scope_id = 'bench/hot' AND i.result_code = 'processed' AND p.result_code = 'processed'
               AND i.created_at < p.completed_at
             ORDER BY i.lane_sequence";
        let steps = Rows::open(&self.schema.url).await?.pairs(sql).await?;
        let steps = &steps[steps.len() / 2..];
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of a benchmark are far below 2^52"
        )]
        let step = median(steps.iter().map(|(_, micros)| *micros as f64 / 1e3));
        worker.stop().await?;
        if steps.is_empty() {
            eprintln!("no step of the hot lane found its successor waiting; nothing to measure");
            return Ok(());
        }
        let bare = Bare::new(&self.schema.url, 1, 0).await?.commit_ms().await?;
        table.add(HOT, step, raw);
        table.add(HOT_BEYOND, step - 2.0 * bare, raw);
        Ok(())
    }

    /// A Worker all of whose slots wait for a model that does not answer.
    async fn resident(&self, table: &mut Table, api: &crate::server::Server, raw: Raw) -> anyhow::Result<()> {
        let slow = Model::start(PATIENCE).await?;
        let slots = SLOTS.to_string();
        let settings = [
            ("DEPLOYMENT_BEHAVIOR_REVISION", "busy"),
            ("WORKER_CONCURRENCY", slots.as_str()),
        ];
        let worker = self.role_by(&self.schema.url, &slow, "worker", &settings).await?;
        let mut connection = api.connections(1).await?.remove(0);
        for n in 0..SLOTS {
            let scope = format!("bench/resident/{n}");
            capture(&mut connection, &scope, 1).await?;
            let body = json!({"scope_id": scope});
            let asked = connection
                .post_preferring("/v1/memory/flush", &body, "respond-async")
                .await?;
            asked.json(202)?;
        }
        let sql = format!(
            "SELECT COUNT(*) >= {SLOTS} FROM pc_work_items WHERE scope_id LIKE 'bench/resident/%' AND status = 'running'"
        );
        Rows::open(&self.schema.url).await?.until("all slots run", &sql).await?;
        rt::sleep(WAITED).await;
        table.add(RESIDENT, resident_tree_mb(worker.pid()?)?, raw);
        worker.stop().await
    }
}

/// When a child first asked for something, by scope, in microseconds since 1970.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<BTreeMap<String, i64>>>);

/// Children whose first questions are noted.
struct Watched {
    inner: Child,
    asked: Asked,
}

#[async_trait]
impl Executor for Watched {
    fn knows(&self, kind: &WorkKind) -> bool {
        self.inner.knows(kind)
    }

    fn is_elsewhere(&self, kind: &WorkKind) -> bool {
        self.inner.is_elsewhere(kind)
    }

    async fn run(
        &self,
        kind: &WorkKind,
        scope: &ScopeId,
        host: Arc<dyn ProcessorHost>,
        cancel: &Cancel,
    ) -> Result<Done, FailCode> {
        let host = Arc::new(Noting {
            inner: host,
            scope: scope.as_str().to_owned(),
            asked: self.asked.clone(),
            has_asked: AtomicBool::new(false),
        });
        self.inner.run(kind, scope, host, cancel).await
    }
}

struct Noting {
    inner: Arc<dyn ProcessorHost>,
    scope: String,
    asked: Asked,
    has_asked: AtomicBool,
}

impl Noting {
    fn note(&self) {
        if self.has_asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let since = rt::wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        let mut asked = self.asked.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(self.scope.clone(), at);
    }
}

#[async_trait]
impl ProcessorHost for Noting {
    async fn load(&self, request: Load) -> Result<Loaded, HostError> {
        self.note();
        self.inner.load(request).await
    }

    async fn search(&self, request: Search) -> Result<Vec<SearchHit>, HostError> {
        self.note();
        self.inner.search(request).await
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, HostError> {
        self.note();
        self.inner.reserve(request).await
    }

    async fn commit_window(&self, write: DomainWrite) -> Result<Committed, HostError> {
        self.note();
        self.inner.commit_window(write).await
    }
}
