//! A kind of work that does nothing, and a ledger with a worker for it: what is left is the cost of the protocol.
//!
//! The kind exists in this program alone. Its runs go through the same claim, run and finish as any other kind's; they
//! read nothing and hand back no domain write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use async_trait::async_trait;
use futures_util::future::try_join_all;
use powercontext::families::{Cancel, Done, Family, FamilySpec, ProcessorHost, Reached, ResultCode, RunResult};
use powercontext::inference::Usage;
use powercontext::ledger::{FlushRequest, Flushed, KindSpec, Kinds, LeaseTerm, Ledger};
use powercontext::rt;
use powercontext::store::leases::LeaseName;
use powercontext::store::migrate::{Code, Mode, migrate};
use powercontext::store::{DatabaseUrl, Db, DbLimits, Dialect, TxName, leases};
use powercontext::worker::{Inline, KindSettings, LeaseSettings, Worker, WorkerSettings};
use powercontext_core::fail::FailCode;
use powercontext_core::ids::{BindingName, FamilyName, ScopeId, WorkKind};
use powercontext_core::refs::Position;
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fill::Raw;

/// Its binding.
pub(crate) const BINDING: &str = "bench-noop";
/// Its kind.
pub(crate) const KIND: &str = "bench_noop";
/// Rows of one insert while scopes are made.
const SEED_ROWS: usize = 500;
/// Longest measurement.
const PATIENCE: Duration = Duration::from_mins(5);
const VALID: &str = "a constant of the right form";

/// The kind.
pub(crate) fn spec() -> FamilySpec {
    FamilySpec {
        work: KindSpec {
            kind: WorkKind::parse(KIND).expect(VALID),
            family: FamilyName::parse("bench").expect(VALID),
            binding: BindingName::parse(BINDING).expect(VALID),
            payload_version: 1,
            retry: RetryPolicy::Bounded {
                attempts_max: 5,
                base: Span::seconds(2),
                max: Span::seconds(300),
            },
            slots_max: None,
        },
        workers_max: None,
        timeout: Span::seconds(60),
        needs_model: false,
    }
}

struct Noop {
    spec: FamilySpec,
    ran: AtomicUsize,
}

#[async_trait]
impl Family for Noop {
    fn spec(&self) -> &FamilySpec {
        &self.spec
    }

    async fn run(&self, _host: &dyn ProcessorHost, _scope: &ScopeId, _cancel: &Cancel) -> Result<Done, FailCode> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        // Each scope has one source, which this run would have consumed.
        let head = Position::START.next();
        Ok(Done {
            write: None,
            result: RunResult {
                code: ResultCode::Processed,
                payload: json!({}),
            },
            reached: Reached {
                cursor: head,
                journal_head: head,
            },
            usage: Usage::default(),
        })
    }
}

/// A migrated database with a ledger on it.
pub(crate) struct Rig {
    pub(crate) ledger: Ledger,
    /// Where its rows are, without a proxy.
    pub(crate) url: String,
    seeded: usize,
}

impl Rig {
    /// Migrates and opens a database; on SQLite it is owned as a server owns it.
    pub(crate) async fn open(url: &str, connections: u32) -> anyhow::Result<Self> {
        let parsed = DatabaseUrl::parse(url)?;
        let mode = Mode::Apply {
            wait: Span::seconds(30),
        };
        let report = migrate(&parsed, mode, &mut |_| {}).await;
        ensure!(report.code == Code::Done, "the schema was not made: {report:?}");
        Self::attach(url, url, connections).await
    }

    /// Opens a migrated database by way of `url`; rows are seeded by way of `direct`.
    pub(crate) async fn attach(url: &str, direct: &str, connections: u32) -> anyhow::Result<Self> {
        let lease = Span::seconds(30);
        let db = Db::open(&DatabaseUrl::parse(url)?, DbLimits::for_lease(lease, connections)).await?;
        let me = rt::member_id();
        let term = match db.dialect() {
            Dialect::Sqlite => {
                let member = Arc::new(me.clone());
                let raise = db.tx_with(TxName::Lease, &member, |tx, me| {
                    Box::pin(leases::raise_term(tx, LeaseName::SingleNodeRuntime, me))
                });
                db.set_term(raise.await?.fence());
                LeaseTerm::Process
            }
            Dialect::OceanBase => LeaseTerm::Timed(lease),
        };
        Ok(Self {
            ledger: Ledger::new(db, Kinds::new([spec().work]), me, term),
            url: direct.to_owned(),
            seeded: 0,
        })
    }

    /// Makes scopes with one pending source each, as far as an enqueue looks.
    pub(crate) async fn scopes(&mut self, count: usize) -> anyhow::Result<Vec<ScopeId>> {
        let prefix = &rt::hex_id()[..8];
        let names: Vec<String> = (self.seeded..self.seeded + count)
            .map(|n| format!("bench/{prefix}/{n}"))
            .collect();
        self.seeded += count;
        let mut raw = Raw::connect(&self.url).await?;
        for names in names.chunks(SEED_ROWS) {
            let rows = |row: &dyn Fn(&String) -> String| names.iter().map(row).collect::<Vec<_>>().join(", ");
            let heads = rows(&|name| format!("('{name}', 1)"));
            let intents = rows(&|name| format!("('{BINDING}', '{name}', 1)"));
            raw.execute(format!(
                "INSERT INTO pc_source_journal_heads (scope_id, position) VALUES {heads}"
            ))
            .await?;
            raw.execute(format!(
                "INSERT INTO pc_artifact_processing_intents (binding_name, scope_id, dirty_generation) VALUES {intents}"
            ))
            .await?;
        }
        names.into_iter().map(|name| Ok(ScopeId::parse(name)?)).collect()
    }

    /// Enqueues one item for each scope, one a call, by so many callers; answers how long that took.
    pub(crate) async fn enqueue(&self, scopes: &[ScopeId], callers: usize) -> anyhow::Result<Duration> {
        let (start, kind) = (rt::now(), spec().work.kind);
        let callers = scopes.chunks(scopes.len().div_ceil(callers).max(1)).map(|scopes| {
            let (ledger, scopes, kind) = (self.ledger.clone(), scopes.to_vec(), kind.clone());
            rt::spawn(async move {
                for scope in scopes {
                    let request = FlushRequest {
                        kind: kind.clone(),
                        scope,
                        payload: json!({}),
                    };
                    match ledger.flush(request).await? {
                        Flushed::Accepted { created: true, .. } => {}
                        other => bail!("not accepted: {other:?}"),
                    }
                }
                Ok(())
            })
        });
        for ended in try_join_all(callers).await? {
            ended?;
        }
        Ok(start.elapsed())
    }

    /// Enqueues one item for each scope, one after the other; answers how long each took, in milliseconds.
    pub(crate) async fn enqueue_each(&self, scopes: &[ScopeId]) -> anyhow::Result<Vec<f64>> {
        let mut took = Vec::with_capacity(scopes.len());
        for scope in scopes {
            took.push(self.enqueue(std::slice::from_ref(scope), 1).await?.as_secs_f64() * 1e3);
        }
        Ok(took)
    }

    /// Enqueues one item for each scope, so many a call; answers how long that took.
    pub(crate) async fn enqueue_together(&self, scopes: &[ScopeId], together: usize) -> anyhow::Result<Duration> {
        let (start, kind) = (rt::now(), spec().work.kind);
        for scopes in scopes.chunks(together) {
            let requests = scopes.iter().map(|scope| (scope.clone(), json!({}))).collect();
            for answer in self.ledger.flush_many(&kind, requests).await? {
                let answer = answer?;
                ensure!(
                    matches!(answer, Flushed::Accepted { created: true, .. }),
                    "not accepted: {answer:?}"
                );
            }
        }
        Ok(start.elapsed())
    }

    /// Claims and completes everything that waits with a worker of so many slots; answers how long that took.
    pub(crate) async fn drain(&self, items: usize, slots: u32) -> anyhow::Result<Duration> {
        let noop = Arc::new(Noop {
            spec: spec(),
            ran: AtomicUsize::new(0),
        });
        let family: Arc<dyn Family> = noop.clone();
        let worker = Worker::new(
            self.ledger.clone(),
            Arc::new(Inline::new([family])),
            self.settings(slots),
        );
        let (stop, start) = (CancellationToken::new(), rt::now());
        let working = rt::spawn({
            let (worker, stop) = (worker.clone(), stop.clone());
            async move { worker.run(stop).await }
        });
        while noop.ran.load(Ordering::Relaxed) < items || worker.in_flight() > 0 {
            ensure!(
                start.elapsed() < PATIENCE,
                "the worker did not complete {items} items in time"
            );
            rt::sleep(Duration::from_millis(1)).await;
        }
        let took = start.elapsed();
        stop.cancel();
        working.await?;
        ensure!(noop.ran.load(Ordering::Relaxed) == items, "an item ran twice");
        Ok(took)
    }

    fn settings(&self, slots: u32) -> WorkerSettings {
        let lease = match self.ledger.lease() {
            LeaseTerm::Process => None,
            LeaseTerm::Timed(length) => Some(LeaseSettings {
                length: length.as_std(),
                heartbeat: length.as_std() / 4,
            }),
        };
        let FamilySpec { work, timeout, .. } = spec();
        WorkerSettings {
            concurrency: slots,
            kinds: vec![KindSettings {
                kind: work.kind,
                cap: None,
                timeout: timeout.as_std(),
                needs_model: false,
            }],
            poll_max: Duration::from_secs(1),
            lease,
            grace: Duration::from_secs(10),
            provider: None,
        }
    }

    /// Closes the database.
    pub(crate) async fn close(self) {
        self.ledger.db().close().await;
    }
}
