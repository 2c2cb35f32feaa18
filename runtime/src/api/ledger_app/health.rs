//! What this process needs, looked at for `/health/ready`.
//!
//! A role is useless without what it is for, and only degraded without what others do for it: an API takes requests while no
//! Scheduler or Worker lives. A standby is ready. One family whose discovery fails degrades itself and nobody else.

use std::time::Duration;

use powercontext_core::supervise::member::Role;

use crate::api::app::{Check, CheckState};
use crate::api::ledger_app::surroundings::Surroundings;
use crate::inference::readiness::{ProviderStatus, Readiness};
use crate::ledger::Ledger;
use crate::rt;
use crate::store::{TxError, TxName};
use crate::supervisor::members::{self, Fit, Standing};
use crate::supervisor::{FamilyState, Leading, Status};

/// Longest look at one dependency.
const CHECK_MAX: Duration = Duration::from_secs(2);

const fn blocking(name: &'static str, state: CheckState) -> Check {
    Check {
        name,
        state,
        blocking: true,
    }
}

const fn degrading(name: &'static str, state: CheckState) -> Check {
    Check {
        name,
        state,
        blocking: false,
    }
}

/// Every check of a process.
pub(super) async fn checks(ledger: &Ledger, provider: Option<&Readiness>, around: &Surroundings) -> Vec<Check> {
    let role = around.role;
    let mut checks = vec![blocking("runtime", CheckState::Ready)];
    let looks = futures_util::future::join3(
        database(ledger),
        async {
            if role.works() {
                Some(handlers(ledger, around).await)
            } else {
                None
            }
        },
        async {
            match role {
                Role::Api => Some(others(ledger).await),
                _ => None,
            }
        },
    );
    let (database, handlers, others) = looks.await;
    checks.push(blocking("database", database));
    checks.extend(around.standing.as_ref().map(membership));
    if let Some((scheduler, worker)) = others {
        checks.push(degrading("runtime.scheduler", scheduler));
        checks.push(degrading("runtime.worker", worker));
    }
    checks.extend(handlers);
    if let Some(status) = &around.supervision {
        checks.extend(supervision(status, around.is_distributed()));
    }
    if let Some(provider) = provider {
        let state = rt::within(CHECK_MAX + Duration::from_secs(1), provider.status()).await;
        checks.push(Check {
            name: "inference.generation",
            state: state.map_or(CheckState::Timeout, provider_state),
            blocking: role == Role::Worker,
        });
    }
    checks
}

/// Whether everything is well without which this process is useless; a scrape asks this much and no provider.
pub(super) async fn is_ready(ledger: &Ledger, around: &Surroundings) -> bool {
    let fits = around
        .standing
        .as_ref()
        .is_none_or(|standing| standing.fit() == Fit::Ready);
    fits && database(ledger).await == CheckState::Ready
}

const fn provider_state(status: ProviderStatus) -> CheckState {
    match status {
        ProviderStatus::Ready => CheckState::Ready,
        ProviderStatus::Timeout => CheckState::Timeout,
        ProviderStatus::Unavailable => CheckState::Unavailable,
        ProviderStatus::Misconfigured => CheckState::Misconfigured,
    }
}

/// The transaction itself runs on a task of its own with its own deadline; only the waiting for it ends here.
async fn looked<T>(look: impl Future<Output = Result<T, TxError>>) -> Result<T, CheckState> {
    match rt::within(CHECK_MAX, look).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(CheckState::Unavailable),
        Err(rt::Elapsed) => Err(CheckState::Timeout),
    }
}

async fn database(ledger: &Ledger) -> CheckState {
    let ping = ledger
        .db()
        .read(TxName::Ping, |tx| Box::pin(async move { tx.now().await.map(|_| ()) }));
    looked(ping).await.map_or_else(|state| state, |()| CheckState::Ready)
}

/// Whether every payload at a lane head is one that this build reads, and every stopped run has ended. One that does not end
/// keeps its slot and no other, so it only degrades this process.
async fn handlers(ledger: &Ledger, around: &Surroundings) -> Check {
    let (state, is_useless) = match looked(ledger.has_unsupported()).await {
        Ok(true) => (CheckState::Misconfigured, true),
        Ok(false) if around.in_flight.as_ref().is_some_and(|runs| runs().1 > 0) => (CheckState::Unavailable, false),
        Ok(false) => (CheckState::Ready, false),
        Err(state) => (state, true),
    };
    Check {
        name: "worker.handlers",
        state,
        blocking: is_useless && around.is_distributed(),
    }
}

fn membership(standing: &Standing) -> Check {
    let state = match standing.fit() {
        Fit::Ready => CheckState::Ready,
        Fit::Odd(_) => CheckState::Misconfigured,
        Fit::Unknown => CheckState::Unavailable,
    };
    blocking("runtime.membership", state)
}

/// Whether somebody leads or stands by to lead, and whether somebody works.
async fn others(ledger: &Ledger) -> (CheckState, CheckState) {
    let state = |is_there| {
        if is_there {
            CheckState::Ready
        } else {
            CheckState::Unavailable
        }
    };
    match looked(members::live(ledger.db())).await {
        Ok(live) => {
            let (leads, works) = members::present(&live);
            (state(leads), state(works))
        }
        Err(found) => (found, found),
    }
}

/// The candidates of this process, all families together, and each of them.
fn supervision(status: &Status, is_distributed: bool) -> Vec<Check> {
    let mut discovery = CheckState::Ready;
    for leading in status.supervisors().values() {
        discovery = match leading {
            Leading::ForeignMode | Leading::Odd => CheckState::Misconfigured,
            Leading::Failing if discovery == CheckState::Ready => CheckState::Unavailable,
            _ => discovery,
        };
    }
    let families = status.families();
    let is_degraded = |state: &FamilyState| *state == FamilyState::Degraded;
    let together = match discovery {
        CheckState::Ready if families.values().any(is_degraded) => CheckState::Unavailable,
        found => found,
    };
    let mut checks = Vec::new();
    if is_distributed {
        checks.push(blocking("scheduler.discovery", discovery));
    }
    checks.push(degrading("artifact_processing_supervisor", together));
    for (family, state) in &families {
        let state = if is_degraded(state) {
            CheckState::Unavailable
        } else {
            CheckState::Ready
        };
        checks.extend(family_check(family.as_str()).map(|name| degrading(name, state)));
    }
    checks
}

/// The check of a family.
fn family_check(family: &str) -> Option<&'static str> {
    Some(match family {
        "memory" => "artifact_processing_supervisor.memory",
        "topic-memory" => "artifact_processing_supervisor.topic-memory",
        "experience" => "artifact_processing_supervisor.experience",
        "profile" => "artifact_processing_supervisor.profile",
        "maintenance" => "artifact_processing_supervisor.maintenance",
        #[cfg(feature = "test-families")]
        "test-bounded" => "artifact_processing_supervisor.test-bounded",
        #[cfg(feature = "test-families")]
        "test-unbounded" => "artifact_processing_supervisor.test-unbounded",
        _ => return None,
    })
}
