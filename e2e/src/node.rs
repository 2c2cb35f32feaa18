//! What only the node can do to a pod.

use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::tenant::Tenant;

/// How a pod was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Killed {
    /// SIGKILL from the node.
    ByNode,
    /// `kubectl delete --grace-period=0 --force`: the node is another machine.
    ByForce,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByNode => "SIGKILL from the node",
            Self::ByForce => "kubectl delete --grace-period=0 --force, because the node is out of reach",
        })
    }
}

/// Kills what runs in a pod without warning.
///
/// # Errors
/// When it still runs.
pub(crate) fn kill(tenant: &Tenant, pod: &Pod) -> anyhow::Result<Killed> {
    let uid = pod.metadata.uid.as_deref().context("a pod has an id")?;
    let mut killed = Killed::ByForce;
    for process in processes(uid)? {
        match kill_process(process, Signal::KILL) {
            Ok(()) => killed = Killed::ByNode,
            // A child may have gone with its parent; and a node may be this machine, and its processes those of another user.
            Err(Errno::SRCH | Errno::PERM) => {}
            Err(error) => return Err(error).context("killing a process of a pod"),
        }
    }
    if killed == Killed::ByForce {
        let arguments = ["delete", "pod", &pod.name_any(), "--grace-period=0", "--force"];
        tenant.kubectl().run(&arguments)?;
    }
    Ok(killed)
}

/// Whether a pod reaches an address; `None` where its node is another machine, or another user's.
///
/// # Errors
/// When nobody can be sent there to look.
pub(crate) fn reaches(from: &Pod, to: SocketAddr, within: Duration) -> anyhow::Result<Option<bool>> {
    let uid = from.metadata.uid.as_deref().context("a pod has an id")?;
    let Some(process) = processes(uid)?.into_iter().next() else {
        return Ok(None);
    };
    let network = format!("/proc/{}/ns/net", process.as_raw_nonzero());
    if File::open(&network).is_err() {
        return Ok(None);
    }
    // Nothing in the image could try it. A shell of the node goes into the pod's network.
    let connect = format!("exec 3<>/dev/tcp/{}/{}", to.ip(), to.port());
    let tried = Command::new("nsenter")
        .arg(format!("--net={network}"))
        .args(["timeout", &within.as_secs().to_string(), "bash", "-c", &connect])
        .stdin(Stdio::null())
        .output()
        .context("starting nsenter")?;
    Ok(Some(tried.status.success()))
}

/// Processes of a pod on this machine, the one that holds its namespaces aside.
fn processes(uid: &str) -> anyhow::Result<Vec<Pid>> {
    // Some cgroup drivers write an id with other lines.
    let (plain, systemd) = (format!("pod{uid}"), format!("pod{}", uid.replace('-', "_")));
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let groups = read("cgroup");
        if (groups.contains(&plain) || groups.contains(&systemd)) && read("comm").trim() != "pause" {
            found.push(Pid::from_raw(id).context("a process has an id")?);
        }
    }
    Ok(found)
}

/// How the node of this machine's cluster killed, or that it cannot.
///
/// # Errors
/// When a pod that should have been killed from the node was not.
pub(crate) fn expect_restart(killed: Killed, restarts: i32) -> anyhow::Result<()> {
    if killed == Killed::ByNode && restarts == 0 {
        bail!("the kubelet did not start the container again");
    }
    Ok(())
}
