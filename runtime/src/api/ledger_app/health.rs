//! What this process needs, looked at for `/health/ready`.

use std::time::Duration;

use crate::api::app::{Check, CheckState};
use crate::inference::readiness::{ProviderStatus, Readiness};
use crate::ledger::Ledger;
use crate::rt;
use crate::store::{TxError, TxName};

/// Longest look at one dependency.
const CHECK_MAX: Duration = Duration::from_secs(2);

/// Every check of a process that does everything.
pub(super) async fn checks(ledger: &Ledger, provider: Option<&Readiness>) -> Vec<Check> {
    let mut checks = vec![Check {
        name: "runtime",
        state: CheckState::Ready,
        blocking: true,
    }];
    let (database, handlers) = futures_util::future::join(database(ledger), handlers(ledger)).await;
    checks.push(Check {
        name: "database",
        state: database,
        blocking: true,
    });
    checks.push(Check {
        name: "worker.handlers",
        state: handlers,
        blocking: false,
    });
    if let Some(provider) = provider {
        let state = rt::within(CHECK_MAX + Duration::from_secs(1), provider.status()).await;
        let state = state.map_or(CheckState::Timeout, provider_state);
        checks.push(Check {
            name: "inference.generation",
            state,
            blocking: false,
        });
    }
    checks
}

/// Whether everything is well without which this process is useless; a scrape asks this much and no provider.
pub(super) async fn is_ready(ledger: &Ledger) -> bool {
    database(ledger).await == CheckState::Ready
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

/// Whether every payload at a lane head is one that this build reads.
async fn handlers(ledger: &Ledger) -> CheckState {
    match looked(ledger.has_unsupported()).await {
        Ok(false) => CheckState::Ready,
        Ok(true) => CheckState::Misconfigured,
        Err(state) => state,
    }
}
