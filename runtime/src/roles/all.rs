//! Role `all` of a single node: API and Worker in one process.
//!
//! Start: own and migrate the database, recover what a dead predecessor left, listen, work. Stop: readiness off, no new
//! claim; runs go on for the grace and are given back, and whoever asks meanwhile is answered; then no new request, then
//! the lease, then the database.

use std::sync::Arc;

use powercontext_core::ids::MemberId;
use powercontext_core::time::Span;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::access::Guard;
use crate::api::ledger_app::LedgerApp;
use crate::api::limits::ServerLimits;
use crate::api::prefer::WaitLimits;
use crate::api::state::Api;
use crate::api::{router, server};
use crate::config::{ExtractionProfile, LogFormat, Settings};
use crate::families::FamilySpec;
use crate::families::memory::{self, MemorySettings, Profile};
use crate::inference::Generator;
use crate::inference::readiness::Readiness;
use crate::ledger::{KindSpec, Kinds, LeaseTerm, Ledger, Waiters};
use crate::roles::RoleError;
use crate::roles::open::{Hold, Opened, open};
use crate::rt;
use crate::telemetry::log;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::{self, ExportSettings, Exporting, Tracer};
use crate::worker::{Child, ChildLog, ChildSettings, FamilyJob, ModelJob};
use crate::worker::{KindSettings, LeaseSettings, PROBE_INTERVAL, ProviderSettings, Worker, WorkerSettings};

/// Runs until `shutdown` or until the process is no longer the only one.
pub(super) async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), RoleError> {
    let fatal = CancellationToken::new();
    let model = settings.generation.as_ref().map(ModelJob::from);
    let generator = model.as_ref().map(ModelJob::generator).transpose()?;
    let Some(opened) = open(&settings, &fatal, &shutdown).await? else {
        return Ok(());
    };
    let Opened { db, me, lease, held } = opened;
    let exporting = tracing(&settings, &me)?;
    let memory = memory_spec(&settings);
    let metrics = settings.metrics.then(|| Metrics::new([memory.work.kind.as_str()]));
    if let Some(metrics) = &metrics {
        db.count_in(Arc::clone(metrics));
    }
    let ledger = Ledger::new(db.clone(), Kinds::new([memory.work.clone()]), me, lease);
    if let Some((tracer, _)) = &exporting {
        ledger.trace_in(tracer.clone());
    }
    let address = settings.http.address;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| RoleError::Listen { address, source })?;

    let recovered = ledger.recover().await?;
    if recovered > 0 {
        tracing::info!(recovered, "work of a process that is gone waits again");
    }
    let tasks = Tasks::start(&settings, &ledger, memory, generator.as_ref(), metrics, listener);
    tokio::select! { biased; () = shutdown.cancelled() => {}, () = fatal.cancelled() => {} }
    tasks.stop(fatal.is_cancelled()).await;
    if let Hold::Lease(lease) = held {
        lease.release().await;
    }
    db.close().await;
    if let Some((_, exporting)) = exporting {
        exporting.finish().await;
    }
    if fatal.is_cancelled() {
        Err(RoleError::LostLease)
    } else {
        Ok(())
    }
}

/// Starts sending spans, where a collector is set.
fn tracing(settings: &Settings, me: &MemberId) -> Result<Option<(Tracer, Exporting)>, RoleError> {
    let Some(tracing) = &settings.tracing else {
        return Ok(None);
    };
    Ok(Some(trace::start(&ExportSettings {
        endpoint: tracing.endpoint.clone(),
        headers: tracing.headers.clone(),
        timeout: tracing.timeout.as_std(),
        service: tracing.service.clone(),
        instance: me.as_str().to_owned(),
    })?))
}

fn memory_spec(settings: &Settings) -> FamilySpec {
    FamilySpec {
        work: KindSpec::memory(settings.memory.retry),
        workers_max: Some(settings.memory.workers_max),
        timeout: settings.memory.timeout,
        ..memory::spec()
    }
}

fn memory_job(settings: &Settings, model: ModelJob) -> FamilyJob {
    let profile = match settings.memory.profile {
        ExtractionProfile::Coding => Profile::Coding,
        ExtractionProfile::Conversation => Profile::Conversation,
    };
    let context_window_tokens = match &settings.generation {
        Some(generation) => generation.context_window_tokens,
        None => MemorySettings::default().context_window_tokens,
    };
    let settings = MemorySettings {
        profile,
        window_sources_max: settings.memory.window_sources_max,
        context_window_tokens,
    };
    FamilyJob::Memory { settings, model }
}

fn child_settings(settings: &Settings) -> ChildSettings {
    let format = match settings.logging.format {
        LogFormat::Console => log::Format::Console,
        LogFormat::Json => log::Format::Json,
    };
    let level = settings.logging.level;
    ChildSettings::this_program(settings.worker.concurrency, ChildLog { level, format })
}

fn worker_settings(
    settings: &Settings,
    family: &FamilySpec,
    lease: LeaseTerm,
    provider: Option<Arc<Readiness>>,
) -> WorkerSettings {
    let lease = match lease {
        LeaseTerm::Process => None,
        LeaseTerm::Timed(length) => Some(LeaseSettings {
            length: length.as_std(),
            heartbeat: settings.worker.heartbeat.as_std(),
        }),
    };
    WorkerSettings {
        concurrency: settings.worker.concurrency,
        kinds: vec![KindSettings {
            kind: family.work.kind.clone(),
            cap: family.workers_max.map(|cap| u32::from(cap.get())),
            timeout: family.timeout.as_std(),
            needs_model: family.needs_model,
        }],
        poll_max: settings.worker.poll.as_std(),
        lease,
        grace: settings.worker.shutdown_grace.as_std(),
        provider: provider.map(|readiness| ProviderSettings {
            readiness,
            probe_interval: PROBE_INTERVAL,
        }),
    }
}

/// What runs beside each other, and how each is stopped.
struct Tasks {
    draining: CancellationToken,
    serving: (CancellationToken, tokio::task::JoinHandle<server::Drained>),
    working: (CancellationToken, tokio::task::JoinHandle<()>),
    waiting: (CancellationToken, tokio::task::JoinHandle<()>),
}

impl Tasks {
    fn start(
        settings: &Settings,
        ledger: &Ledger,
        memory: FamilySpec,
        generator: Option<&Arc<dyn Generator>>,
        metrics: Option<Arc<Metrics>>,
        listener: TcpListener,
    ) -> Self {
        let draining = CancellationToken::new();
        let waiters = Waiters::new(ledger.clone(), settings.operations.poll.as_std());
        let provider = generator.map(|generator| Arc::new(Readiness::new(Arc::clone(generator))));
        let worker_settings = worker_settings(settings, &memory, ledger.lease(), provider.clone());
        let job = settings
            .generation
            .as_ref()
            .map(|generation| memory_job(settings, generation.into()));
        let jobs = job.map(|job| (memory.work.kind.clone(), job));
        let executor = Child::new(jobs, child_settings(settings));
        let worker = Worker::new(ledger.clone(), Arc::new(executor), worker_settings);
        let api = Api::new(guard(settings), wait_limits(settings), metrics, draining.clone());
        api.bind(Arc::new(LedgerApp::new(
            ledger.clone(),
            waiters.clone(),
            memory.work,
            provider,
        )));

        let stop = CancellationToken::new;
        let (serve, work, wait) = (stop(), stop(), stop());
        if let Ok(address) = listener.local_addr() {
            tracing::info!(address = %address, "listening");
        }
        let served = server::serve(listener, router::full(api), ServerLimits::default(), serve.clone());
        let serving = (serve, rt::spawn(served));
        let working = (work.clone(), rt::spawn(async move { worker.run(work).await }));
        let waiting = (wait.clone(), rt::spawn(async move { waiters.run(wait).await }));
        Self {
            draining,
            serving,
            working,
            waiting,
        }
    }

    /// Runs end first. Until the last of them is over requests are served, so that readiness can be seen to be off and
    /// clients are answered while a load balancer takes this process out; then those in progress end, and who waits.
    /// A process that has lost its place gives nobody a grace: its successor is at work already.
    async fn stop(self, is_lost: bool) {
        self.draining.cancel();
        self.working.0.cancel();
        if is_lost {
            self.working.1.abort();
        }
        let worked = self.working.1.await;
        self.serving.0.cancel();
        if let Ok(server::Drained::Cut(connections)) = self.serving.1.await {
            tracing::warn!(connections, "requests did not end in time and were cut");
        }
        self.waiting.0.cancel();
        let waited = self.waiting.1.await;
        let has_panicked = |ended: Result<(), tokio::task::JoinError>| ended.is_err_and(|error| error.is_panic());
        if has_panicked(worked) || has_panicked(waited) {
            tracing::error!("a task had panicked before the stop");
        }
    }
}

fn guard(settings: &Settings) -> Guard {
    Guard::new(settings.access.token.as_ref(), settings.access.quota)
}

fn wait_limits(settings: &Settings) -> WaitLimits {
    let seconds = |span: Span| u32::try_from(span.as_millis() / 1000).unwrap_or(u32::MAX);
    WaitLimits {
        default_seconds: seconds(settings.operations.default_wait),
        max_seconds: seconds(settings.operations.maximum_wait),
    }
}
