//! The families of this build with a deployment's settings: what the ledger, the Supervisor, the Worker and the metrics each
//! need to know of them.

use std::sync::Arc;

use powercontext_core::ids::WorkKind;
use powercontext_core::schedule::Schedule;
use powercontext_core::time::Span;

use crate::config::{DeploymentMode, ExtractionProfile, LogFormat, Settings};
use crate::families::memory::{self, MemorySettings, Profile};
use crate::families::{Family, FamilySpec, maintenance};
use crate::inference::Generator;
use crate::inference::readiness::Readiness;
use crate::ledger::{KindSpec, Kinds, LeaseTerm, Ledger, Upkeep};
use crate::roles::RoleError;
use crate::store::modes::TermLength;
use crate::supervisor::members::Standing;
use crate::supervisor::{PendingWork, Registration, Registry, Supervisor, SupervisorSettings};
use crate::telemetry::log;
use crate::telemetry::metrics::Metrics;
use crate::worker::{Child, ChildLog, ChildSettings, FamilyJob, Inline, ModelJob, WithSystem};
use crate::worker::{KindSettings, LeaseSettings, PROBE_INTERVAL, ProviderSettings, Worker, WorkerSettings};

/// Longest pause between two looks of a leader while others make work too.
const LOOK: Span = Span::seconds(1);

/// The families.
pub(super) struct Families {
    pub(super) memory: FamilySpec,
    /// All of them, Memory too.
    specs: Vec<FamilySpec>,
    registry: Registry,
    /// How children build those beside Memory.
    jobs: Vec<(WorkKind, FamilyJob)>,
}

/// Families beside Memory and maintenance: none in what ships.
#[cfg(not(feature = "test-families"))]
fn others(_is_shared: bool) -> Vec<(FamilySpec, Registration, FamilyJob)> {
    Vec::new()
}

/// Families that only tests have, as far as one names them.
#[cfg(feature = "test-families")]
fn others(is_shared: bool) -> Vec<(FamilySpec, Registration, FamilyJob)> {
    let other = |mut family: crate::families::test_only::TestFamily| {
        family.spec.work.slots_max = family.spec.workers_max.filter(|_| is_shared);
        let registration = Registration {
            wanted: Some(family.wanted),
            ..registration(&family.spec, &family.prefix, family.schedule, PendingWork::Marks)
        };
        (family.spec, registration, FamilyJob::TestOnly(family.job))
    };
    crate::families::test_only::named().into_iter().map(other).collect()
}

fn registration(spec: &FamilySpec, prefix: &str, schedule: Schedule, pending: PendingWork) -> Registration {
    Registration {
        work: spec.work.clone(),
        prefix: prefix.to_owned(),
        schedule,
        pending,
        wanted: None,
        workers_max: spec.workers_max,
        timeout: spec.timeout,
        is_triggerable: spec.needs_model,
    }
}

impl Families {
    pub(super) fn new(settings: &Settings) -> Result<Self, RoleError> {
        // The one process of a single node counts its runs itself.
        let is_shared = settings.deployment.mode == DeploymentMode::Distributed;
        let memory = FamilySpec {
            work: KindSpec {
                slots_max: settings.memory.workers_max.filter(|_| is_shared),
                payload_version: settings.supervision.emits,
                ..KindSpec::memory(settings.memory.retry)
            },
            workers_max: settings.memory.workers_max,
            timeout: settings.memory.timeout,
            ..memory::spec()
        };
        let maintenance = maintenance::spec();
        let interval = |span: Option<Span>| span.map_or(Schedule::Disabled, Schedule::Interval);
        let mut registrations = vec![
            registration(
                &memory,
                "MEMORY",
                interval(settings.memory.schedule),
                PendingWork::Sources,
            ),
            registration(
                &maintenance,
                "MAINTENANCE",
                interval(Some(settings.maintenance.interval)),
                PendingWork::System(maintenance::scope()),
            ),
        ];
        let (mut specs, mut jobs) = (vec![memory.clone(), maintenance], Vec::new());
        for (spec, registration, job) in others(is_shared) {
            registrations.push(registration);
            jobs.push((spec.work.kind.clone(), job));
            specs.push(spec);
        }
        let registry = Registry::new(registrations);
        let refused = |faults: Vec<crate::supervisor::RegistryFault>| RoleError::Refused {
            reasons: faults.iter().map(ToString::to_string).collect(),
        };
        Ok(Self {
            memory,
            specs,
            registry: registry.map_err(refused)?,
            jobs,
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn kinds(&self) -> Kinds {
        Kinds::new(self.specs.iter().map(|spec| spec.work.clone()))
    }

    /// Metrics with the series of every family; `None` where they are off.
    pub(super) fn metrics(&self, settings: &Settings) -> Option<Arc<Metrics>> {
        settings.metrics.then(|| {
            let metrics = Metrics::new(self.specs.iter().map(|spec| spec.work.kind.as_str()));
            for spec in &self.specs {
                let cap = spec.workers_max.map(|cap| u32::from(cap.get()));
                metrics.add_family(spec.work.family.as_str(), cap);
            }
            if settings.deployment.role.leads() {
                for registration in self.registry.iter() {
                    let key = settings.supervision.mode.supervisor_of(&registration.work.family);
                    metrics.set_fence(&key.name(), None);
                }
            }
            metrics
        })
    }

    /// The Supervisor of a process that leads.
    pub(super) fn supervisor(&self, settings: &Settings, ledger: &Ledger, standing: Standing) -> Supervisor {
        let supervision = settings.supervision;
        let (length, poll) = match ledger.lease() {
            LeaseTerm::Process => (TermLength::Process, None),
            LeaseTerm::Timed(_) => (TermLength::Timed(supervision.lease), Some(LOOK.as_std())),
        };
        let settings = SupervisorSettings {
            mode: supervision.mode,
            length,
            renew: supervision.renew.as_std(),
            page_size: supervision.page_size,
            poll,
        };
        Supervisor::new(ledger.clone(), self.registry.clone(), settings, standing)
    }

    /// The Worker of a process that runs work. Without a model it runs what needs none.
    pub(super) fn worker(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        provider: Option<Arc<Readiness>>,
        standing: Standing,
    ) -> Worker {
        let job = settings
            .generation
            .as_ref()
            .map(|generation| memory_job(settings, generation.into()));
        let jobs = job.map(|job| (self.memory.work.kind.clone(), job));
        let jobs = jobs.into_iter().chain(self.jobs.clone());
        let children = Child::new(jobs, child_settings(settings));
        let upkeep = Upkeep {
            retention: settings.maintenance.retention,
            batch: settings.maintenance.batch,
        };
        let maintenance: Arc<dyn Family> = Arc::new(maintenance::MaintenanceFamily::new(ledger.db().clone(), upkeep));
        let executor = WithSystem::new(Inline::new([maintenance]), Arc::new(children));
        let settings = self.worker_settings(settings, ledger.lease(), provider);
        Worker::among(ledger.clone(), Arc::new(executor), settings, standing)
    }

    fn worker_settings(
        &self,
        settings: &Settings,
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
        let kind = |family: &FamilySpec| KindSettings {
            kind: family.work.kind.clone(),
            cap: family.workers_max.map(|cap| u32::from(cap.get())),
            timeout: family.timeout.as_std(),
            needs_model: family.needs_model,
        };
        WorkerSettings {
            concurrency: settings.worker.concurrency,
            kinds: self.specs.iter().map(kind).collect(),
            poll_max: settings.worker.poll.as_std(),
            lease,
            grace: settings.worker.shutdown_grace.as_std(),
            provider: provider.map(|readiness| ProviderSettings {
                readiness,
                probe_interval: PROBE_INTERVAL,
            }),
        }
    }

    /// Says what this process does, once, with everything that its peers must agree on.
    pub(super) fn announce(&self, settings: &Settings) {
        let list = |text: fn(&Registration) -> String| {
            let texts: Vec<_> = self.registry.iter().map(|registration| text(registration)).collect();
            texts.join(", ")
        };
        let mode = match settings.deployment.mode {
            DeploymentMode::SingleNode => "single_node",
            DeploymentMode::Distributed => "distributed",
        };
        tracing::info!(
            mode,
            supervision = settings.supervision.mode.as_str(),
            role = settings.deployment.role.as_str(),
            bindings = list(|it| it.work.binding.to_string()),
            families = list(|it| it.work.family.to_string()),
            schedules = list(|it| it.schedule.to_string()),
            budgets = list(|it| it.workers_max.map_or_else(|| "none".to_owned(), |max| max.to_string())),
            timeouts = list(|it| format!("{} ms", it.timeout.as_millis())),
            aliases = settings.aliases.join(", "),
            seconds = settings.supervision.lease.as_millis() / 1000,
            "artifact_processing.configured"
        );
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

/// The provider as readiness and the gate see it.
pub(super) fn provider(generator: Option<&Arc<dyn Generator>>) -> Option<Arc<Readiness>> {
    generator.map(|generator| Arc::new(Readiness::new(Arc::clone(generator))))
}
