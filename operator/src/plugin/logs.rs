//! `logs`: what the pods of a role say, each line with its pod.
//!
//! Without `--follow` one pod comes after the other. With it, lines come as they are written, and pods that come later are
//! followed too.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::AsyncBufReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::DONE;
use super::args::LogsArguments;
use super::cluster::Cluster;
use super::fault::PluginError;
use super::print::{Colour, Paint, show};
use crate::controller::build::CONTAINER;
use crate::rt;

/// Pause between two looks for new pods.
const LOOK: Duration = Duration::from_secs(2);
/// Lines that wait to be printed.
const WAITING_MAX: usize = 1024;
/// Lines that following begins with.
const TAIL: i64 = 10;
/// Longest line in bytes; the rest of one is printed as a line of its own.
const LINE_BYTES_MAX: usize = 1 << 20;
/// The pod has no such log (yet).
const BAD_REQUEST: u16 = 400;
const NOT_FOUND: u16 = 404;

/// Prints logs to their end, or until somebody stops it.
pub(super) async fn run(cluster: &Cluster, arguments: &LogsArguments) -> Result<u8, PluginError> {
    let resource = cluster.find(arguments.target.name.as_deref()).await?;
    let name = resource.metadata.name.unwrap_or_default();
    let component = arguments.component.as_str();
    let pods = cluster.pods_of(&name, component).await?;
    if pods.is_empty() && !arguments.follow {
        return Err(PluginError::Missing(format!(
            "{name} in namespace {} has no {component} pod; `status` says how its roles stand",
            cluster.namespace
        )));
    }
    let paint = Paint::of_output();
    if arguments.follow {
        return follow(cluster, arguments, &name, paint).await;
    }
    for (number, pod) in names(&pods).into_iter().enumerate() {
        let prefix = prefix(&pod, number, paint);
        let (sender, mut lines) = channel(WAITING_MAX);
        let reading = read(cluster.pods(), pod.clone(), params(arguments), sender);
        let printing = async {
            while let Some(line) = lines.recv().await {
                show(&format!("{prefix}{line}"));
            }
        };
        let (read, ()) = tokio::join!(reading, printing);
        tell(cluster, &pod, read)?;
    }
    Ok(DONE)
}

/// Follows every pod, also those that come later.
async fn follow(cluster: &Cluster, arguments: &LogsArguments, name: &str, paint: Paint) -> Result<u8, PluginError> {
    let component = arguments.component.as_str();
    let (sender, mut lines): (Sender<String>, Receiver<String>) = channel(WAITING_MAX);
    let mut followed: BTreeSet<String> = BTreeSet::new();
    let mut first = true;
    loop {
        let pods = cluster.pods_of(name, component).await?;
        for pod in names(&pods.into_iter().filter(has_begun).collect::<Vec<_>>()) {
            if !followed.insert(pod.clone()) {
                continue;
            }
            let prefix = prefix(&pod, followed.len() - 1, paint);
            let mut params = params(arguments);
            params.follow = true;
            // Of a pod that came later everything is new.
            params.tail_lines = params.tail_lines.or(first.then_some(TAIL));
            let (pods, sender) = (cluster.pods(), sender.clone());
            rt::spawn(async move {
                let (of_pod, mut its_lines) = channel(WAITING_MAX);
                let reading = read(pods, pod.clone(), params, of_pod);
                let passing = async {
                    while let Some(line) = its_lines.recv().await {
                        if sender.send(format!("{prefix}{line}")).await.is_err() {
                            break;
                        }
                    }
                };
                let (read, ()) = tokio::join!(reading, passing);
                if let Err(error) = read {
                    eprintln!("{pod}: its log ended: {}", super::fault::innermost(&error));
                }
            });
        }
        first = false;
        let until = rt::now() + LOOK;
        while let Some(Some(line)) = rt::within(until.saturating_duration_since(rt::now()), lines.recv()).await {
            show(&line);
        }
    }
}

/// Sends the lines of a pod's log.
async fn read(pods: Api<Pod>, pod: String, params: LogParams, sender: Sender<String>) -> Result<(), kube::Error> {
    let mut log = pods.log_stream(&pod, &params).await?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut whole = futures_util::AsyncReadExt::take(&mut log, LINE_BYTES_MAX as u64);
        let read = whole
            .read_until(b'\n', &mut line)
            .await
            .map_err(kube::Error::ReadEvents)?;
        if read == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        if sender.send(String::from_utf8_lossy(&line).into_owned()).await.is_err() {
            return Ok(());
        }
    }
}

/// A pod without a log is told of and no failure; everything else is one.
fn tell(cluster: &Cluster, pod: &str, read: Result<(), kube::Error>) -> Result<(), PluginError> {
    match read {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if [BAD_REQUEST, NOT_FOUND].contains(&status.code) => {
            eprintln!("{pod}: no log: {}", status.message);
            Ok(())
        }
        Err(error) => Err(cluster.failed("get", "pods/log")(error)),
    }
}

fn params(arguments: &LogsArguments) -> LogParams {
    LogParams {
        container: Some(CONTAINER.to_owned()),
        previous: arguments.previous,
        since_seconds: arguments.since_seconds,
        tail_lines: arguments.tail,
        timestamps: arguments.timestamps,
        ..LogParams::default()
    }
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
}

/// Whether its container runs or has run.
fn has_begun(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    ["Running", "Succeeded", "Failed"]
        .iter()
        .any(|begun| phase == Some(begun))
}

fn prefix(pod: &str, number: usize, paint: Paint) -> String {
    format!("{} ", paint.text(Colour::Pod(number), &format!("[{pod}]")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_waits_for_its_container_has_no_log_yet() {
        let pod = |phase: &str| -> Pod {
            serde_json::from_value(json!({ "metadata": { "name": "x" }, "status": { "phase": phase } })).expect("a pod")
        };
        for (phase, has) in [
            ("Pending", false),
            ("Running", true),
            ("Succeeded", true),
            ("Failed", true),
        ] {
            assert_eq!(has_begun(&pod(phase)), has, "{phase}");
        }
        assert!(!has_begun(&Pod::default()));
    }

    #[test]
    fn each_line_names_its_pod() {
        assert_eq!(prefix("pc-worker-1", 0, Paint::OFF), "[pc-worker-1] ");
    }
}
