//! The roles as the operator meets them: an HTTP server at each running pod's address that tells what a process would.
//!
//! Every address of 127.0.0.0/8 is this machine, so each pod has one of its own. What the roles report of each other comes
//! from the pods that run, as the real ones take it from the database; a test changes the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use powercontext_operator::controller::build::HTTP_PORT;
use powercontext_operator::names::{BUILD, Role};
use powercontext_operator::rt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// What the roles say beside their members.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The token that `/metrics` wants.
    pub token: Option<String>,
    /// True: no role reports members.
    pub no_members: bool,
    /// Work items by state.
    pub queue: BTreeMap<String, i64>,
    /// Age of the oldest queued item, in seconds.
    pub oldest_seconds: i64,
    /// Work that has not ended, by payload version.
    pub payloads: BTreeMap<i64, i64>,
    /// Runs by pod.
    pub in_flight: BTreeMap<String, i64>,
    /// Pods that take a request and never answer.
    pub silent: BTreeSet<String>,
    /// Fence of the lease `global`, held by the first Scheduler.
    pub fence: i64,
    /// Pods that were asked, each time.
    pub asked: Vec<String>,
}

/// The roles of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    told: Arc<Mutex<Told>>,
    pods: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
    /// Pods whose process is a member. It is one before its pod is ready.
    members: Arc<Mutex<BTreeSet<String>>>,
}

impl Roles {
    /// What they say; changes hold from the next request on.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no holder panicked")
    }

    /// The pods that there are, by uid.
    pub(crate) fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Pod>>> {
        self.pods.lock().expect("no holder panicked")
    }

    /// From now on a pod's process is a member, or is not.
    pub(crate) fn member(&self, pod: &str, is_one: bool) {
        let mut members = self.members.lock().expect("no holder panicked");
        if is_one {
            members.insert(pod.to_owned());
        } else {
            members.remove(pod);
        }
    }

    fn is_member(&self, pod: &str) -> bool {
        self.members.lock().expect("no holder panicked").contains(pod)
    }

    /// Answers for a pod until the token is cancelled; its address.
    pub(crate) async fn serve(&self, pod: &str, stop: CancellationToken) -> anyhow::Result<Ipv4Addr> {
        let (listener, address) = listen().await?;
        let (roles, pod) = (self.clone(), pod.to_owned());
        rt::spawn(async move {
            while let Some(Ok((socket, _))) = stop.run_until_cancelled(listener.accept()).await {
                let (roles, pod, stop) = (roles.clone(), pod.clone(), stop.clone());
                rt::spawn(async move { stop.run_until_cancelled(roles.answer(socket, &pod)).await });
            }
        });
        Ok(address)
    }

    async fn answer(&self, mut socket: TcpStream, pod: &str) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        self.told().asked.push(pod.to_owned());
        if self.told().silent.contains(pod) {
            std::future::pending::<()>().await;
        }
        let page = self.page(pod);
        let head = String::from_utf8_lossy(&head).into_owned();
        let wanted = self.told().token.clone().map(|token| format!("bearer {token}"));
        let sent = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("authorization")
                .then(|| value.trim().to_owned())
        });
        let is_known = wanted.is_none_or(|wanted| sent.is_some_and(|sent| sent.eq_ignore_ascii_case(&wanted)));
        let answer = if is_known {
            format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{page}",
                page.len()
            )
        } else {
            "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned()
        };
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await
    }

    /// The page of a pod, in the series that the runtime exports.
    fn page(&self, pod: &str) -> String {
        let told = self.told().clone();
        let mut page = String::new();
        let mut line = |text: String| {
            let _ = writeln!(page, "{text}");
        };
        let mut members: BTreeMap<(String, String), i64> = BTreeMap::new();
        let mut first_scheduler = None;
        let of_mine = self.deployment_of(pod);
        for other in self
            .pods()
            .values()
            .filter(|other| other.labels().get(DEPLOYMENT) == of_mine.as_ref())
        {
            let Some(role) = role(other).filter(|_| self.is_member(&other.name_any())) else {
                continue;
            };
            let build = other.annotations().get(BUILD).cloned().unwrap_or_default();
            *members.entry((role.as_str().to_owned(), build)).or_default() += 1;
            if role.schedules() && first_scheduler.as_ref().is_none_or(|first| *first > other.name_any()) {
                first_scheduler = Some(other.name_any());
            }
        }
        if !told.no_members {
            for ((role, build), count) in members {
                line(format!(
                    "powercontext_runtime_members{{role=\"{role}\",build=\"{build}\"}} {count}"
                ));
            }
        }
        for (state, count) in &told.queue {
            line(format!(
                "powercontext_work_queue_depth{{kind=\"memory\",status=\"{state}\"}} {count}"
            ));
        }
        line(format!(
            "powercontext_work_queue_oldest_age_seconds{{kind=\"memory\",status=\"queued\"}} {}",
            told.oldest_seconds
        ));
        for (version, count) in &told.payloads {
            line(format!(
                "powercontext_work_payload_version_depth{{version=\"{version}\"}} {count}"
            ));
        }
        line(format!(
            "powercontext_worker_inflight {}",
            told.in_flight.get(pod).copied().unwrap_or_default()
        ));
        line("powercontext_schema_revision 6".to_owned());
        if first_scheduler.as_deref() == Some(pod) && told.fence > 0 {
            line(format!(
                "powercontext_supervisor_fence{{lease=\"global\"}} {}",
                told.fence
            ));
        }
        page
    }

    fn deployment_of(&self, pod: &str) -> Option<String> {
        let pods = self.pods();
        let pod = pods.values().find(|other| other.name_any() == pod)?;
        pod.labels().get(DEPLOYMENT).cloned()
    }
}

const DEPLOYMENT: &str = powercontext_operator::names::DEPLOYMENT;

/// The role of a pod; `None` for those of Jobs.
pub fn role(pod: &Pod) -> Option<Role> {
    Role::parse(component(pod))
}

/// What a pod is for: a role, `migrate`, `plan` or `switch-mode`.
pub fn component(pod: &Pod) -> &str {
    pod.labels()
        .get("app.kubernetes.io/component")
        .map(String::as_str)
        .unwrap_or_default()
}

/// The roles' port at an address that nobody has.
async fn listen() -> anyhow::Result<(TcpListener, Ipv4Addr)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let port = u16::try_from(HTTP_PORT)?;
    // Test processes that run side by side begin at different places.
    let first = (std::process::id() % 200 + 20) << 16;
    for _ in 0..4096 {
        let at = (first + 2 + NEXT.fetch_add(1, Ordering::Relaxed)) & 0x00ff_ffff;
        let address = Ipv4Addr::from(0x7f00_0000 | at);
        if let Ok(listener) = TcpListener::bind((address, port)).await {
            return Ok((listener, address));
        }
    }
    Err(anyhow::anyhow!("nothing can listen")).with_context(|| format!("port {port} of 127.0.0.0/8"))
}
