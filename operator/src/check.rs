//! `powercontext-operator check`: whether an installed operator can do its work, seen from a pod beside it.
//!
//! `helm test` runs it under the operator's own account. It asks the same API server and the same Service as everybody
//! else, and waits a while, because a roll-out may be under way. It changes nothing.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, Resource as _};
use powercontext_crds::v1alpha1::PowerContextDeployment;
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::Fault;
use crate::rt;

/// Pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// Time for one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// A metric that the operator exports from its start.
const METRIC: &str = "powercontext_operator_leader";

/// What is looked at.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Where the operator's health and metrics are: scheme, host and port.
    pub url: String,
    /// Namespaces that it looks after; none: all.
    pub namespaces: Vec<String>,
    /// Namespace and name of its lease.
    pub lease: (String, String),
    /// What `/metrics` needs, if it needs something.
    pub token: Option<SecretString>,
    /// How long all of it may take to become true.
    pub patience: Duration,
}

/// What has to be true, in the order in which it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The API server serves the resource in this operator's version.
    Served,
    /// The account may list the resource wherever the operator looks.
    Listed,
    /// A replica holds the lease.
    Led,
    /// Health answers through the Service.
    Ready,
    /// So do the metrics.
    Measured,
}

impl Promise {
    /// Every promise.
    pub const ALL: [Self; 5] = [Self::Served, Self::Listed, Self::Led, Self::Ready, Self::Measured];
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Served => "the API server serves PowerContextDeployment powercontext.io/v1alpha1",
            Self::Listed => "the operator's account may list PowerContextDeployments",
            Self::Led => "a replica of the operator leads",
            Self::Ready => "/health/ready answers 200",
            Self::Measured => "/metrics tells about the operator",
        })
    }
}

/// Why a promise does not hold.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No client could be made on this machine.
    #[error("no HTTP client could be made")]
    Client(#[source] reqwest::Error),
    /// It did not become true in time.
    #[error("not true: {promise} ({why})")]
    Broken {
        /// What should be true.
        promise: Promise,
        /// What was seen last; quotes no answer.
        why: String,
    },
}

/// Looks at one promise after the other, and tells each that holds.
///
/// # Errors
/// The first promise that does not hold, and what was seen last.
pub async fn check(client: &Client, subject: &Subject, tell: impl Fn(Promise)) -> Result<(), CheckError> {
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build();
    let http = http.map_err(CheckError::Client)?;
    let until = rt::now() + subject.patience;
    for promise in Promise::ALL {
        loop {
            let look = look(client, &http, subject, promise);
            // A connection that says nothing would otherwise wait for its own, longer time.
            let seen = rt::within(ANSWER, look).await;
            match seen.unwrap_or_else(|| Err("no answer".to_owned())) {
                Ok(()) => break tell(promise),
                Err(why) if rt::now() >= until => return Err(CheckError::Broken { promise, why }),
                Err(_) => rt::sleep(PAUSE).await,
            }
        }
    }
    Ok(())
}

/// One look; the error says what was seen.
async fn look(client: &Client, http: &reqwest::Client, subject: &Subject, promise: Promise) -> Result<(), String> {
    match promise {
        Promise::Served => {
            let version = PowerContextDeployment::api_version(&());
            let served = client
                .list_api_group_resources(&version)
                .await
                .map_err(|error| told(&error))?;
            let plural = PowerContextDeployment::plural(&());
            let found = served.resources.iter().any(|resource| resource.name == plural);
            found.then_some(()).ok_or_else(|| format!("{version} has no {plural}"))
        }
        Promise::Listed => {
            let one = ListParams::default().limit(1);
            if subject.namespaces.is_empty() {
                let all: Api<PowerContextDeployment> = Api::all(client.clone());
                return all.list_metadata(&one).await.map(drop).map_err(|error| told(&error));
            }
            for namespace in &subject.namespaces {
                let there: Api<PowerContextDeployment> = Api::namespaced(client.clone(), namespace);
                let listed = there.list_metadata(&one).await;
                listed.map_err(|error| format!("in namespace {namespace}: {}", told(&error)))?;
            }
            Ok(())
        }
        Promise::Led => {
            let (namespace, name) = &subject.lease;
            let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
            let lease = leases.get_opt(name).await.map_err(|error| told(&error))?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity);
            let is_held = holder.is_some_and(|holder| !holder.is_empty());
            is_held
                .then_some(())
                .ok_or_else(|| format!("nobody holds lease {namespace}/{name}"))
        }
        Promise::Ready => page(http, subject, "/health/ready").await.map(drop),
        Promise::Measured => {
            let page = page(http, subject, "/metrics").await?;
            page.contains(METRIC)
                .then_some(())
                .ok_or_else(|| format!("no {METRIC}"))
        }
    }
}

async fn page(http: &reqwest::Client, subject: &Subject, path: &str) -> Result<String, String> {
    let mut request = http.get(format!("{}{path}", subject.url.trim_end_matches('/')));
    if let Some(token) = &subject.token {
        request = request.bearer_auth(token.expose_secret());
    }
    let response = request.send().await.map_err(|_| "no answer".to_owned())?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("status {}", status.as_u16()));
    }
    response
        .text()
        .await
        .map_err(|_| "an answer that breaks off".to_owned())
}

fn told(error: &kube::Error) -> String {
    Fault::of(error).to_string()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
