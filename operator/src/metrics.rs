//! The operator's own metrics. Labels are closed sets, and every series is there from the start.

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::error::Step;

/// How a deployment stands, as far as a number can say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Rolled out and ready.
    Ready,
    /// On the way.
    Progressing,
    /// Kept from it.
    Degraded,
    /// Paused.
    Paused,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Progressing, Self::Degraded, Self::Paused];

    /// Label of the metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Progressing => "progressing",
            Self::Degraded => "degraded",
            Self::Paused => "paused",
        }
    }
}

/// Seconds of a reconcile: from a look that changes nothing to a slow API server.
const RECONCILE_BUCKETS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Seconds of a migration.
const MIGRATION_BUCKETS: [f64; 8] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0];

/// The metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Seconds of a reconcile.
    pub reconcile_seconds: Histogram,
    errors: IntCounterVec,
    /// Reconciles that run now.
    pub in_flight: IntGauge,
    deployments: IntGaugeVec,
    /// Seconds from the first Job of a target to its success.
    pub migration_seconds: Histogram,
    /// 1 while this process leads.
    pub leads: IntGauge,
}

impl Metrics {
    /// A set of its own registry.
    ///
    /// # Errors
    /// A name that is not valid or taken twice; it cannot happen with the names below.
    pub fn new() -> Result<Self, prometheus::Error> {
        let name = |name: &str| format!("powercontext_operator_{name}");
        let reconcile = HistogramOpts::new(name("reconcile_seconds"), "Seconds of a reconcile.");
        let migration = HistogramOpts::new(name("migration_seconds"), "Seconds of a migration that succeeded.");
        let errors = Opts::new(name("errors_total"), "Reconciles that failed, by step.");
        let deployments = Opts::new(name("deployments"), "Deployments by phase.");
        let metrics = Self {
            registry: Registry::new(),
            reconcile_seconds: Histogram::with_opts(reconcile.buckets(RECONCILE_BUCKETS.to_vec()))?,
            errors: IntCounterVec::new(errors, &["step"])?,
            in_flight: IntGauge::new(name("reconciles_in_flight"), "Reconciles that run now.")?,
            deployments: IntGaugeVec::new(deployments, &["phase"])?,
            migration_seconds: Histogram::with_opts(migration.buckets(MIGRATION_BUCKETS.to_vec()))?,
            leads: IntGauge::new(name("leader"), "1 while this process leads.")?,
        };
        let registry = &metrics.registry;
        registry.register(Box::new(metrics.reconcile_seconds.clone()))?;
        registry.register(Box::new(metrics.errors.clone()))?;
        registry.register(Box::new(metrics.in_flight.clone()))?;
        registry.register(Box::new(metrics.deployments.clone()))?;
        registry.register(Box::new(metrics.migration_seconds.clone()))?;
        registry.register(Box::new(metrics.leads.clone()))?;
        for step in Step::ALL {
            metrics.errors.with_label_values(&[step.as_str()]);
        }
        metrics.set_phases(std::iter::empty());
        Ok(metrics)
    }

    /// Counts a failed step.
    pub fn failed(&self, step: Step) {
        self.errors.with_label_values(&[step.as_str()]).inc();
    }

    /// Sets how many deployments stand how.
    pub fn set_phases(&self, phases: impl Iterator<Item = Phase>) {
        let mut counts = [0_i64; Phase::ALL.len()];
        for phase in phases {
            counts[phase as usize] += 1;
        }
        for phase in Phase::ALL {
            self.deployments
                .with_label_values(&[phase.as_str()])
                .set(counts[phase as usize]);
        }
    }

    /// The page of all metrics.
    ///
    /// # Errors
    /// When the text cannot be made; it is in memory.
    pub fn page(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut page = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut page)?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_there_before_anything_happened() {
        let metrics = Metrics::new().expect("valid names");
        let page = String::from_utf8(metrics.page().expect("text")).expect("text");
        for step in Step::ALL {
            assert!(
                page.contains(&format!("errors_total{{step=\"{}\"}} 0", step.as_str())),
                "{page}"
            );
        }
        for phase in Phase::ALL {
            assert!(
                page.contains(&format!("deployments{{phase=\"{}\"}} 0", phase.as_str())),
                "{page}"
            );
        }
    }

    #[test]
    fn a_phase_that_nobody_is_in_any_more_goes_back_to_zero() {
        let metrics = Metrics::new().expect("valid names");
        metrics.set_phases([Phase::Ready, Phase::Ready, Phase::Degraded].into_iter());
        metrics.set_phases([Phase::Ready].into_iter());
        let page = String::from_utf8(metrics.page().expect("text")).expect("text");
        assert!(
            page.contains("phase=\"ready\"} 1") && page.contains("phase=\"degraded\"} 0"),
            "{page}"
        );
    }
}
