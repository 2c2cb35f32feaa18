//! A database, a Worker of one Memory family that asks a provider on loopback, and short words for what a test does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use powercontext::dev::model::{self, ModelOptions};
use powercontext::families::Family;
use powercontext::families::memory::{self, MemoryFamily, MemorySettings};
use powercontext::inference::ClientSettings;
use powercontext::inference::openai::OpenAiChat;
use powercontext::inference::readiness::Readiness;
use powercontext::ledger::{FlushRequest, Flushed, KindSpec, Kinds, LeaseTerm, Ledger, NewSource, capture};
use powercontext::rt;
use powercontext::store::works::WorkRow;
use powercontext::store::{Dialect, TxName, works};
use powercontext::worker::{Inline, KindSettings, LeaseSettings, ProviderSettings, Worker, WorkerSettings};
use powercontext_core::ids::{SourceId, SourceType, WorkId};
use powercontext_core::refs::SourceRef;
use powercontext_core::time::Span;
use powercontext_core::work::retry::RetryPolicy;
use powercontext_tests::checker;
use powercontext_tests::db::TestDb;
use powercontext_tests::raw::Raw;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Runs at once.
pub(crate) const CONCURRENCY: u32 = 8;
/// Longest wait for a fact.
const DEADLINE: Duration = Duration::from_mins(2);
/// Pause between two looks at the database.
const LOOK: Duration = Duration::from_millis(50);
/// Length of a lease on OceanBase, in seconds.
const LEASE_SECONDS: u64 = 30;

/// The five attempts of the default policy, with delays in proportion to the test's.
const RETRY: RetryPolicy = RetryPolicy::Bounded {
    attempts_max: 5,
    base: Span::millis(20),
    max: Span::millis(200),
};

/// A provider that a test may serve, a Worker that asks it.
pub(crate) struct Rig {
    test: TestDb,
    pub(crate) ledger: Ledger,
    pub(crate) readiness: Arc<Readiness>,
    worker: Worker,
    listener: Mutex<Option<TcpListener>>,
    address: std::net::SocketAddr,
    stop: CancellationToken,
}

/// A Worker at work.
pub(crate) struct Started(CancellationToken, JoinHandle<()>);

/// The deterministic model.
pub(crate) struct Model(std::net::SocketAddr);

impl Rig {
    pub(crate) async fn new(test: TestDb) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (term, lease) = match test.dialect() {
            Dialect::Sqlite => (LeaseTerm::Process, None),
            Dialect::OceanBase => {
                let length = Span::seconds(LEASE_SECONDS);
                let heartbeat = Span::seconds(LEASE_SECONDS / 4).as_std();
                let settings = LeaseSettings {
                    length: length.as_std(),
                    heartbeat,
                };
                (LeaseTerm::Timed(length), Some(settings))
            }
        };
        let spec = memory::spec();
        let work = KindSpec::memory(RETRY);
        let ledger = Ledger::new(test.db.clone(), Kinds::new([work.clone()]), rt::member_id(), term);
        let settings = ClientSettings::new("dev", format!("http://{address}/v1"));
        let generator = Arc::new(OpenAiChat::new(settings)?);
        let readiness = Arc::new(Readiness::new(generator.clone()));
        let kinds = vec![KindSettings {
            kind: work.kind.clone(),
            cap: None,
            timeout: spec.timeout.as_std(),
            needs_model: spec.needs_model,
        }];
        let family: Arc<dyn Family> = Arc::new(MemoryFamily::new(spec, MemorySettings::default(), generator));
        let settings = WorkerSettings {
            concurrency: CONCURRENCY,
            kinds,
            poll_max: Duration::from_millis(200),
            lease,
            grace: Duration::from_secs(10),
            provider: Some(ProviderSettings {
                readiness: readiness.clone(),
                probe_interval: Duration::from_millis(300),
            }),
        };
        let worker = Worker::new(ledger.clone(), Arc::new(Inline::new([family])), settings);
        Ok(Self {
            test,
            ledger,
            readiness,
            worker,
            listener: Mutex::new(Some(listener)),
            address,
            stop: CancellationToken::new(),
        })
    }

    /// Captures one source in a scope and flushes it.
    pub(crate) async fn flush(&self, name: &str, text: &str) -> anyhow::Result<WorkId> {
        let scope = self.test.scope(name)?;
        let source = SourceRef {
            name: SourceType::content(),
            source_id: SourceId::parse("1")?,
        };
        capture(
            &self.test.db,
            NewSource::native(scope.clone(), source, text.to_owned(), None),
        )
        .await?;
        let kind = KindSpec::memory(RETRY).kind;
        let payload = json!({});
        match self.ledger.flush(FlushRequest { kind, scope, payload }).await? {
            Flushed::Accepted { id, created: true } => Ok(id),
            other => bail!("not accepted: {other:?}"),
        }
    }

    /// So many scopes, one item each.
    pub(crate) async fn flush_all(&self, scopes: usize) -> anyhow::Result<Vec<WorkId>> {
        let mut items = Vec::with_capacity(scopes);
        for n in 0..scopes {
            items.push(self.flush(&n.to_string(), "We decided to use Rust.").await?);
        }
        Ok(items)
    }

    fn listener(&self) -> TcpListener {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.take().expect("a test serves one provider")
    }

    /// Serves the deterministic model.
    pub(crate) fn model(&self, options: ModelOptions) -> Model {
        rt::spawn(model::serve(self.listener(), options, self.stop.clone()));
        Model(self.address)
    }

    /// Serves a provider of the test's own.
    pub(crate) fn serve(&self, router: Router) {
        rt::spawn(model::serve_router(self.listener(), router, self.stop.clone()));
    }

    /// Starts the Worker.
    pub(crate) fn start(&self) -> Started {
        let stop = CancellationToken::new();
        let (worker, stopped) = (self.worker.clone(), stop.clone());
        Started(stop, rt::spawn(async move { worker.run(stopped).await }))
    }

    pub(crate) async fn works(&self, ids: &[WorkId]) -> anyhow::Result<Vec<WorkRow>> {
        let mut rows = Vec::with_capacity(ids.len());
        for page in ids.chunks(works::BY_IDS_MAX) {
            let page = Arc::new(page.to_vec());
            let read = self
                .test
                .db
                .read_with(TxName::Operations, &page, |tx, ids| Box::pin(works::by_ids(tx, ids)));
            rows.extend(read.await?);
        }
        Ok(rows)
    }

    /// How many of these items are in the state of this name.
    pub(crate) async fn in_state(&self, ids: &[WorkId], name: &str) -> anyhow::Result<usize> {
        Ok(count(&self.works(ids).await?, |work| work.item.state.name() == name))
    }

    /// Waits for a fact.
    pub(crate) async fn until(&self, what: &str, fact: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let deadline = rt::now() + DEADLINE;
        while !fact().await? {
            if rt::now() >= deadline {
                bail!("not in time: {what}");
            }
            rt::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Scopes for which one request is in today's statistics.
    pub(crate) async fn scopes_with_usage(&self) -> anyhow::Result<usize> {
        let sql = "SELECT scope_id FROM pc_model_usage_daily
                   WHERE purpose = 'memory_extraction' AND operation = 'generation'
                     AND requests = 1 AND input_tokens > 0 AND output_tokens > 0
                     AND input_complete = 1 AND output_complete = 1";
        Ok(Raw::connect(self.test.url()).await?.rows(sql).await?.len())
    }

    /// Runs a statement beside the Worker.
    pub(crate) async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        Raw::connect(self.test.url()).await?.execute(sql).await.map(drop)
    }

    /// The ledger's rows contradict nothing.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        let binding = KindSpec::memory(RETRY).binding;
        checker::check(self.test.url(), binding.as_str()).await
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Started {
    /// Drains the Worker.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.0.cancel();
        self.1.await.context("the worker panicked")
    }
}

impl Model {
    /// Generations that it was asked for.
    pub(crate) async fn asked(&self) -> anyhow::Result<u64> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let counts: Value = client
            .get(format!("http://{}/requests", self.0))
            .send()
            .await?
            .json()
            .await?;
        counts["chat"].as_u64().context("no count")
    }
}

pub(crate) fn count(works: &[WorkRow], is: impl Fn(&WorkRow) -> bool) -> usize {
    works.iter().filter(|work| is(work)).count()
}

/// A provider that answers what the function makes of a request's body.
pub(crate) fn router(answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> Router {
    let route = post(async move |body: String| answer(&body));
    Router::new().route("/v1/chat/completions", route)
}

/// An answer without candidates.
pub(crate) fn answered() -> Response {
    let message = json!({"role": "assistant", "content": "{\"candidates\": []}"});
    Json(json!({"choices": [{"message": message}]})).into_response()
}
