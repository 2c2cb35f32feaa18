//! The operator's size and speed with a hundred deployments, against a real API server: `make bench BENCH_ARGS=operator`.
//!
//! Times of the operator's writes are those of the API server's audit log. Each figure stands beside what one bare request to
//! the same API server takes at that moment. `POWERCONTEXT_TEST_OPERATOR` names the operator under test.

use std::time::Duration;

use anyhow::ensure;
use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use powercontext_cluster_tests::operator::Operator;
use powercontext_cluster_tests::stage::{Stage, spec, spec_with};
use powercontext_cluster_tests::wait::until;
use powercontext_crds::v1alpha1::PowerContextDeployment;
use powercontext_operator::rt;
use serde_json::json;

/// Measures the operator.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many deployments there are.
    #[arg(long, default_value_t = 100)]
    deployments: usize,
    /// Length of the measurement at rest, in seconds.
    #[arg(long, default_value_t = 60)]
    rest_seconds: u64,
    /// Changes whose time is measured.
    #[arg(long, default_value_t = 60)]
    changes: usize,
}

/// Everything must be rolled out within this.
const ROLLED_OUT: Duration = Duration::from_mins(15);
/// Longest wait for one write.
const WRITTEN: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let stage = Stage::new("bench").await?;
    let operator = stage.operator().await?;
    let began = rt::now();
    for number in 0..arguments.deployments {
        stage.apply_named(&name(number), &spec()).await?;
    }
    until("everything is ready", ROLLED_OUT, async || {
        let all = stage
            .api::<PowerContextDeployment>()
            .list(&kube::api::ListParams::default())
            .await?;
        let ready = all.items.iter().filter(|one| is_ready(one)).count();
        Ok((ready == arguments.deployments).then_some(()))
    })
    .await?;
    let rolled_out = began.elapsed();
    stage.at_rest().await?;

    println!("operator with {} deployments on Kubernetes 1.34", arguments.deployments);
    println!("| figure | measured | target |\n|---|---|---|");
    println!("| all rolled out, from nothing | {:.0} s | |", rolled_out.as_secs_f64());
    at_rest(&stage, &operator, &arguments).await?;
    let bare = bare_requests(&stage).await?;
    println!("| one bare read of the API server, p50 / p95 | {} | |", told(&bare));
    let changes = first_writes(&stage, &arguments).await?;
    println!(
        "| change of a spec → first write, p50 / p95 | {} | p95 ≤ 50 ms |",
        told(&changes)
    );
    let scales = scales(&stage, &arguments).await?;
    println!(
        "| scale → Deployment patched, p50 / p95 | {} | ≤ 200 ms |",
        told(&scales)
    );
    println!(
        "| resident memory after that | {:.1} MB | ≤ 25 MB |",
        megabytes(operator.resident_kib()?)
    );
    Ok(())
}

fn name(number: usize) -> String {
    format!("pc-{number:03}")
}

fn is_ready(one: &PowerContextDeployment) -> bool {
    let conditions = one.status.as_ref().map(|status| &status.conditions);
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

#[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

/// What it uses and writes while nothing happens.
async fn at_rest(stage: &Stage, operator: &Operator, arguments: &Arguments) -> anyhow::Result<()> {
    let audit = stage.audit.from_now();
    let (ticks, began) = (operator.cpu_ticks()?, rt::now());
    rt::sleep(Duration::from_secs(arguments.rest_seconds)).await;
    let ticks = u32::try_from(operator.cpu_ticks()? - ticks)?;
    let percent = f64::from(ticks) / began.elapsed().as_secs_f64();
    let requests = audit.requests()?.len();
    println!(
        "| resident memory at rest | {:.1} MB | ≤ 25 MB |",
        megabytes(operator.resident_kib()?)
    );
    println!("| processor at rest | {percent:.2} % of a core | < 1 % |");
    println!("| requests in {} s at rest | {requests} | |", arguments.rest_seconds);
    println!("| writes at rest | {} | 0 |", audit.writes()?.len());
    Ok(())
}

async fn bare_requests(stage: &Stage) -> anyhow::Result<Vec<f64>> {
    let mut spans = Vec::new();
    for _ in 0..100 {
        let asked = rt::now();
        stage.api::<PowerContextDeployment>().get(&name(0)).await?;
        spans.push(asked.elapsed().as_secs_f64() * 1e3);
    }
    Ok(spans)
}

/// From the answer to a change to the arrival of the operator's first write that follows, in milliseconds.
async fn first_writes(stage: &Stage, arguments: &Arguments) -> anyhow::Result<Vec<f64>> {
    let mut spans = Vec::new();
    for number in 0..arguments.changes {
        let name = name(number % arguments.deployments);
        let seconds = 100 + i64::try_from(number)?;
        let audit = stage.audit.from_now();
        let wanted = spec_with(&json!({ "api": { "terminationGracePeriodSeconds": seconds } }));
        stage.apply_named(&name, &wanted).await?;
        spans.push(until_write(&audit, &format!("{name}-api"), "deployments").await?);
        stage.at_rest().await?;
    }
    Ok(spans)
}

async fn scales(stage: &Stage, arguments: &Arguments) -> anyhow::Result<Vec<f64>> {
    let mut spans = Vec::new();
    for number in 0..arguments.changes.min(arguments.deployments) {
        let name = name(number);
        let audit = stage.audit.from_now();
        let api = stage.api::<PowerContextDeployment>();
        let scale = json!({ "spec": { "replicas": 2 } });
        api.patch_scale(&name, &PatchParams::default(), &Patch::Merge(scale))
            .await?;
        spans.push(until_write(&audit, &format!("{name}-worker"), "deployments").await?);
    }
    Ok(spans)
}

/// Milliseconds from now until the operator's write of that object arrived.
async fn until_write(
    audit: &powercontext_cluster_tests::audit::Audit,
    name: &str,
    resource: &str,
) -> anyhow::Result<f64> {
    let now = Timestamp::now();
    let write = until("a write", WRITTEN, async || {
        let writes = audit.writes()?;
        Ok(writes
            .into_iter()
            .find(|one| one.resource == resource && one.name == name))
    })
    .await?;
    let span = write.received.duration_since(now).as_secs_f64() * 1e3;
    ensure!(span > -1_000.0, "{write:?} was before the change");
    Ok(span.max(0.0))
}

fn told(spans: &[f64]) -> String {
    let mut sorted = spans.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        sorted
            .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
            .copied()
    };
    let (Some(p50), Some(p95)) = (at(50), at(95)) else {
        return "nothing".to_owned();
    };
    format!("{p50:.1} ms / {p95:.1} ms ({} samples)", sorted.len())
}
