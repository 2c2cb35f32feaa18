//! What runs beside each other in a process, and how each is stopped.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use powercontext_core::ids::MemberId;
use powercontext_core::time::Span;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::api::access::Guard;
use crate::api::ledger_app::{InFlight, LedgerApp, Surroundings};
use crate::api::limits::ServerLimits;
use crate::api::prefer::WaitLimits;
use crate::api::state::Api;
use crate::api::{router, server};
use crate::config::{DeploymentMode, Settings};
use crate::inference::Generator;
use crate::ledger::{Ledger, Waiters};
use crate::roles::RoleError;
use crate::roles::families::{Families, provider};
use crate::rt;
use crate::supervisor::members::{Membership, Standing};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::{self, ExportSettings, Exporting, Tracer};

/// Everything that a process is made of, open and checked.
pub(super) struct Process<'a> {
    pub(super) settings: &'a Settings,
    pub(super) families: Families,
    pub(super) ledger: &'a Ledger,
    pub(super) generator: Option<Arc<dyn Generator>>,
    pub(super) metrics: Option<Arc<Metrics>>,
    pub(super) listener: TcpListener,
    pub(super) standing: Standing,
    /// Where there are members.
    pub(super) membership: Option<Membership>,
}

type Task<T = ()> = (CancellationToken, JoinHandle<T>);

fn task<T: Send + 'static, F>(start: impl FnOnce(CancellationToken) -> F) -> Task<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let stop = CancellationToken::new();
    let running = rt::spawn(start(stop.clone()));
    (stop, running)
}

/// The tasks of a process. What its role does not do is not there.
pub(super) struct Tasks {
    draining: CancellationToken,
    /// How long requests are served after the end was asked for.
    leave: Duration,
    serving: Task<server::Drained>,
    working: Option<Task>,
    leading: Option<Task>,
    waiting: Task,
    living: Option<Task>,
}

/// Binds the port. Where the machine has no IPv6, `[::]` is `0.0.0.0`.
pub(super) async fn listen(settings: &Settings) -> Result<TcpListener, RoleError> {
    let address = settings.http.address;
    let mut bound = TcpListener::bind(address).await;
    if let Some(instead) = bound.as_ref().err().and_then(|error| without_ipv6(address, error)) {
        bound = TcpListener::bind(instead).await;
    }
    bound.map_err(|source| RoleError::Listen { address, source })
}

/// The address to try where every address of the machine was meant and the first answer was `error`. What keeps the port
/// itself from being had would keep it from being had again.
fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let keeps_the_port = matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied);
    let is_every_address = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    (is_every_address && !keeps_the_port).then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
}

/// Starts sending spans, where a collector is set.
pub(super) fn spans(settings: &Settings, me: &MemberId) -> Result<Option<(Tracer, Exporting)>, RoleError> {
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

impl Tasks {
    pub(super) fn start(process: Process<'_>) -> Self {
        let Process {
            settings,
            families,
            ledger,
            generator,
            metrics,
            listener,
            standing,
            membership,
        } = process;
        families.announce(settings);
        let role = settings.deployment.role;
        let draining = CancellationToken::new();
        let provider = provider(generator.as_ref());
        let worker = role
            .works()
            .then(|| families.worker(settings, ledger, provider.clone(), standing.clone()));
        let supervisor = role
            .leads()
            .then(|| families.supervisor(settings, ledger, standing.clone()));
        let is_distributed = settings.deployment.mode == DeploymentMode::Distributed;
        let in_flight = worker.clone().map(|worker| {
            let in_flight: InFlight = Arc::new(move || (worker.in_flight(), worker.abandoned()));
            in_flight
        });
        let around = Surroundings {
            role,
            standing: is_distributed.then(|| standing.clone()),
            supervision: supervisor.as_ref().map(|supervisor| supervisor.status().clone()),
            in_flight,
        };
        let waiters = Waiters::new(ledger.clone(), settings.operations.poll.as_std());
        let api = Api::new(guard(settings), wait_limits(settings), metrics, draining.clone());
        let memory = families.memory.work.clone();
        api.bind(Arc::new(LedgerApp::new(
            ledger.clone(),
            waiters.clone(),
            memory,
            provider,
            around,
        )));
        let routes = if role.serves() {
            router::full(api)
        } else {
            router::health_only(api)
        };
        if let Ok(address) = listener.local_addr() {
            tracing::info!(address = %address, "listening");
        }
        let leaving = draining.clone();
        Self {
            draining,
            leave: settings.http.leave.as_std(),
            serving: task(|stop| server::serve(listener, routes, ServerLimits::default(), leaving, stop)),
            working: worker.map(|worker| task(|stop| async move { worker.run(stop).await })),
            leading: supervisor.map(|supervisor| task(|stop| async move { supervisor.run(stop).await })),
            waiting: task(|stop| async move { waiters.run(stop).await }),
            living: membership.map(|member| task(|stop| async move { member.run(stop).await })),
        }
    }

    /// Admission ends first, and gives its leases back; then the runs end. Until the last of them is over, and for as long as
    /// the settings say, requests are served, so that readiness can be seen to be off and clients are answered while a load
    /// balancer takes this process out; then those in progress end, and who waits. The process counts as alive until then. One
    /// that has lost its place gives nobody a grace: its successor is at work already.
    pub(super) async fn stop(self, is_lost: bool) {
        let left = rt::now() + self.leave;
        self.draining.cancel();
        let mut ended = Vec::new();
        if let Some((stop, leading)) = self.leading {
            stop.cancel();
            ended.push(leading.await);
        }
        if let Some((stop, working)) = self.working {
            stop.cancel();
            if is_lost {
                working.abort();
            }
            ended.push(working.await);
        }
        if !is_lost {
            rt::sleep_until(left).await;
        }
        self.serving.0.cancel();
        if let Ok(server::Drained::Cut(connections)) = self.serving.1.await {
            tracing::warn!(connections, "requests did not end in time and were cut");
        }
        for (stop, task) in std::iter::once(self.waiting).chain(self.living) {
            stop.cancel();
            ended.push(task.await);
        }
        let has_panicked = |ended: &Result<(), JoinError>| ended.as_ref().is_err_and(JoinError::is_panic);
        if ended.iter().any(has_panicked) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_every_address_of_a_machine_without_ipv6_is_tried_as_ipv4() {
        let every = "[::]:8000".parse().expect("an address");
        // What the system answers where it knows no such family of addresses (Linux).
        let no_family = io::Error::from_raw_os_error(97);
        let ipv4 = Some("0.0.0.0:8000".parse().expect("an address"));
        assert_eq!(without_ipv6(every, &no_family), ipv4);
        assert_eq!(without_ipv6(every, &io::ErrorKind::AddrNotAvailable.into()), ipv4);
        for kept in [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied] {
            assert_eq!(without_ipv6(every, &kept.into()), None, "{kept}");
        }
        for single in ["[::1]:8000", "0.0.0.0:8000", "127.0.0.1:8000"] {
            assert_eq!(
                without_ipv6(single.parse().expect("an address"), &no_family),
                None,
                "{single}"
            );
        }
    }
}
