//! Metrics of supervision, members and families.
//!
//! Leases, builds and payload versions are no closed sets of this build: at most [`VALUES_MAX`] live values of each have a
//! series of their own, and the rest are one, `other`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use powercontext_core::fence::Fence;
use powercontext_core::limits::PAYLOAD_VERSIONS;
use powercontext_core::supervise::member::Role;
use prometheus::core::Collector;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::{counters, register};

/// Most live values of a label that is no closed set.
const VALUES_MAX: usize = 32;
/// Stands for the values beyond them.
const OTHER: &str = "other";

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeadershipChange {
    /// It leads for the first time.
    Acquired,
    /// It leads no more.
    Lost,
    /// It leads again.
    Reacquired,
}

impl LeadershipChange {
    /// Every change.
    pub const ALL: [Self; 3] = [Self::Acquired, Self::Lost, Self::Reacquired];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Lost => "lost",
            Self::Reacquired => "reacquired",
        }
    }
}

/// How the work of a family stands, as the database says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyDepth {
    /// Items that wait for their first start.
    pub ready: u64,
    /// Items that wait for another attempt.
    pub retry_wait: u64,
    /// Items that run.
    pub running: u64,
    /// Accepted invocations that are not over.
    pub unacknowledged: u64,
}

#[derive(Debug)]
struct FamilyMetrics {
    available_workers: IntGauge,
    used_workers: IntGauge,
    ready: IntGauge,
    retry_wait: IntGauge,
    unacknowledged: IntGauge,
    discovery: Gauge,
    last_invocation: Gauge,
    completed: IntCounter,
    failed: IntCounter,
    timeouts: IntCounter,
    cap: Option<u32>,
}

/// The metrics; part of [`Metrics`](super::Metrics).
#[derive(Debug)]
pub(super) struct Supervision {
    leadership: BTreeMap<LeadershipChange, IntCounter>,
    fence: Bounded,
    role_members: BTreeMap<Role, IntGauge>,
    members: Bounded,
    inflight: IntGauge,
    schema: IntGauge,
    payload: Bounded,
    families: Mutex<BTreeMap<String, FamilyMetrics>>,
    family: FamilyFamilies,
}

/// A gauge whose label values come and go.
#[derive(Debug)]
struct Bounded {
    gauge: IntGaugeVec,
    shown: Mutex<BTreeSet<Vec<String>>>,
}

impl Bounded {
    fn new(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Self {
        Self {
            gauge: register(registry, IntGaugeVec::new(Opts::new(name, help), labels)),
            shown: Mutex::default(),
        }
    }

    /// Shows exactly these series. Those beyond the limit are summed as `other`, in each label but the first `kept`.
    fn show(&self, values: BTreeMap<Vec<String>, i64>, kept: usize) {
        let mut sums: BTreeMap<Vec<String>, i64> = BTreeMap::new();
        let mut names: BTreeSet<Vec<String>> = BTreeSet::new();
        for (mut labels, value) in values {
            let open = labels[kept..].to_vec();
            if names.len() >= VALUES_MAX && !names.contains(&open) {
                labels[kept..].fill(OTHER.to_owned());
            } else {
                names.insert(open);
            }
            *sums.entry(labels).or_insert(0) += value;
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, value) in &sums {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            self.gauge.with_label_values(&labels).set(*value);
        }
        for gone in shown.iter().filter(|labels| !sums.contains_key(*labels)) {
            let labels: Vec<&str> = gone.iter().map(String::as_str).collect();
            // A series that is not there is what is wanted.
            let _ = self.gauge.remove_label_values(&labels);
        }
        *shown = sums.into_keys().collect();
    }

    /// Sets one series and leaves the others.
    fn set(&self, label: &str, value: i64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let key = vec![label.to_owned()];
        let label = if shown.len() >= VALUES_MAX && !shown.contains(&key) {
            OTHER
        } else {
            label
        };
        self.gauge.with_label_values(&[label]).set(value);
        shown.insert(vec![label.to_owned()]);
    }
}

impl Supervision {
    pub(super) fn new(r: &Registry) -> Self {
        let leadership = counters(
            r,
            "powercontext_scheduler_leadership_changes_total",
            "Terms of supervisors that this process began and ended.",
            &["outcome"],
        );
        let roles = Opts::new("powercontext_runtime_role_members", "Live members by role.");
        let roles = register(r, IntGaugeVec::new(roles, &["role"]));
        let plain = |name: &str, help: &str| register(r, IntGauge::new(name, help));
        Self {
            leadership: LeadershipChange::ALL
                .map(|change| (change, leadership.with_label_values(&[change.as_str()])))
                .into(),
            fence: Bounded::new(
                r,
                "powercontext_supervisor_fence",
                "Fence of the term that this process leads; 0 while it does not.",
                &["lease"],
            ),
            role_members: Role::ALL
                .map(|role| (role, roles.with_label_values(&[role.as_str()])))
                .into(),
            members: Bounded::new(
                r,
                "powercontext_runtime_members",
                "Live members by role and build.",
                &["role", "build"],
            ),
            inflight: plain("powercontext_worker_inflight", "Runs of this process."),
            schema: plain(
                "powercontext_schema_revision",
                "Newest complete revision of the schema.",
            ),
            payload: Bounded::new(
                r,
                "powercontext_work_payload_version_depth",
                "Live work items by the version of their payload.",
                &["version"],
            ),
            families: Mutex::default(),
            family: FamilyFamilies::new(r),
        }
    }

    pub(super) fn leadership_changed(&self, change: LeadershipChange) {
        self.leadership[&change].inc();
    }

    pub(super) fn set_fence(&self, lease: &str, fence: Option<Fence>) {
        self.fence.set(lease, fence.map_or(0, Fence::to_row));
    }

    pub(super) fn set_members<'m>(&self, live: impl IntoIterator<Item = (Role, &'m str)>) {
        let mut by_role: BTreeMap<Role, i64> = BTreeMap::new();
        let mut by_build: BTreeMap<Vec<String>, i64> = BTreeMap::new();
        for (role, build) in live {
            *by_role.entry(role).or_insert(0) += 1;
            let labels = vec![role.as_str().to_owned(), build.to_owned()];
            *by_build.entry(labels).or_insert(0) += 1;
        }
        for (role, gauge) in &self.role_members {
            gauge.set(by_role.get(role).copied().unwrap_or(0));
        }
        self.members.show(by_build, 1);
    }

    pub(super) fn set_inflight(&self, runs: usize) {
        self.inflight.set(i64::try_from(runs).unwrap_or(i64::MAX));
    }

    pub(super) fn set_schema(&self, revision: u32) {
        self.schema.set(i64::from(revision));
    }

    pub(super) fn set_payload_depths(&self, depths: impl IntoIterator<Item = (u32, u64)>) {
        let depth =
            |(version, items): (u32, u64)| (vec![version.to_string()], i64::try_from(items).unwrap_or(i64::MAX));
        // A version that this build reads is told also when nothing waits in it: who asks must be able to tell none from unknown.
        let none = PAYLOAD_VERSIONS.map(|version| (version, 0));
        self.payload.show(none.chain(depths).map(depth).collect(), 0);
    }

    fn with_family(&self, family: &str, act: impl FnOnce(&FamilyMetrics)) {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = families.get(family) {
            act(metrics);
        }
    }

    /// Makes the series of a family. Families are few: the registry of families limits them.
    pub(super) fn add_family(&self, family: &str, workers_max: Option<u32>) {
        let metrics = self.family.of(family, workers_max);
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.entry(family.to_owned()).or_insert(metrics);
    }

    pub(super) fn set_family(&self, family: &str, depth: FamilyDepth) {
        let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.with_family(family, |metrics| {
            metrics.ready.set(int(depth.ready));
            metrics.retry_wait.set(int(depth.retry_wait));
            metrics.unacknowledged.set(int(depth.unacknowledged));
            metrics.used_workers.set(int(depth.running));
            let available = metrics
                .cap
                .map_or(0, |cap| u64::from(cap).saturating_sub(depth.running));
            metrics.available_workers.set(int(available));
        });
    }

    pub(super) fn discovered(&self, family: &str, took: Duration) {
        self.with_family(family, |metrics| metrics.discovery.set(took.as_secs_f64()));
    }

    pub(super) fn invoked(&self, family: &str, took: Duration, end: InvocationEnd) {
        self.with_family(family, |metrics| {
            metrics.last_invocation.set(took.as_secs_f64());
            match end {
                InvocationEnd::Completed => metrics.completed.inc(),
                InvocationEnd::Failed => metrics.failed.inc(),
                InvocationEnd::TimedOut => {
                    metrics.failed.inc();
                    metrics.timeouts.inc();
                }
                InvocationEnd::Neither => {}
            }
        });
    }
}

/// How an invocation of a family ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvocationEnd {
    /// Well.
    Completed,
    /// With a failure.
    Failed,
    /// Beyond its time, which is a failure too.
    TimedOut,
    /// Given back, cancelled, lost, or in conflict with another writer.
    Neither,
}

/// The families of `powercontext_server_artifact_processing_*`.
#[derive(Debug)]
struct FamilyFamilies {
    gauges: BTreeMap<&'static str, IntGaugeVec>,
    seconds: BTreeMap<&'static str, GaugeVec>,
    counters: BTreeMap<&'static str, IntCounterVec>,
}

const GAUGES: [(&str, &str); 6] = [
    ("max_workers", "Most runs at once; 0 for no cap."),
    ("available_workers", "Runs that may begin under the cap."),
    ("used_workers", "Runs."),
    ("ready", "Items that wait for their first start."),
    ("retry_wait", "Items that wait for another attempt."),
    ("unacknowledged_requests", "Accepted invocations that are not over."),
];
const SECONDS: [(&str, &str); 2] = [
    ("discovery_seconds", "Length of the last look for scopes."),
    ("last_invocation_seconds", "Length of the last run."),
];
const COUNTERS: [(&str, &str); 3] = [
    ("completed", "Runs that ended well."),
    ("failed", "Runs that failed."),
    ("timeouts", "Runs that took too long."),
];

impl FamilyFamilies {
    fn new(r: &Registry) -> Self {
        fn made<V: Collector + Clone + 'static>(
            r: &Registry,
            all: &[(&'static str, &str)],
            make: fn(Opts) -> prometheus::Result<V>,
        ) -> BTreeMap<&'static str, V> {
            let name = |field: &str| format!("powercontext_server_artifact_processing_{field}");
            all.iter()
                .map(|(field, help)| (*field, register(r, make(Opts::new(name(field), *help)))))
                .collect()
        }
        Self {
            gauges: made(r, &GAUGES, |opts| IntGaugeVec::new(opts, &["family"])),
            seconds: made(r, &SECONDS, |opts| GaugeVec::new(opts, &["family"])),
            counters: made(r, &COUNTERS, |opts| IntCounterVec::new(opts, &["family"])),
        }
    }

    fn of(&self, family: &str, workers_max: Option<u32>) -> FamilyMetrics {
        let gauge = |field: &str| self.gauges[field].with_label_values(&[family]);
        let seconds = |field: &str| self.seconds[field].with_label_values(&[family]);
        let counter = |field: &str| self.counters[field].with_label_values(&[family]);
        gauge("max_workers").set(workers_max.map_or(0, i64::from));
        let available_workers = gauge("available_workers");
        available_workers.set(workers_max.map_or(0, i64::from));
        FamilyMetrics {
            available_workers,
            used_workers: gauge("used_workers"),
            ready: gauge("ready"),
            retry_wait: gauge("retry_wait"),
            unacknowledged: gauge("unacknowledged_requests"),
            discovery: seconds("discovery_seconds"),
            last_invocation: seconds("last_invocation_seconds"),
            completed: counter("completed"),
            failed: counter("failed"),
            timeouts: counter("timeouts"),
            cap: workers_max,
        }
    }
}
