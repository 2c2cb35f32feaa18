//! Which scenarios there are, which run at once, and what is told of them.

use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use powercontext::rt;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::arguments::Choice;
use crate::cluster::{Cluster, RELEASE, SYSTEM};
use crate::scenarios;

/// When a scenario runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Beside others, under the operator that looks after every namespace.
    Beside,
    /// Under the same operator, and nobody else needs the node.
    Alone,
    /// The end of that operator.
    Last,
    /// Beside others, with operators of its own.
    After,
}

impl When {
    /// Every time, in order.
    const ALL: [Self; 4] = [Self::Beside, Self::Alone, Self::Last, Self::After];
}

/// A scenario.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    name: &'static str,
    what: &'static str,
    when: When,
    /// Whether `make test` runs it.
    is_short: bool,
    run: fn(Arc<Cluster>) -> LocalBoxFuture<'static, anyhow::Result<()>>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}", self.name, self.what)
    }
}

macro_rules! scenario {
    ($name:literal, $when:ident, $short:literal, $run:path, $what:literal) => {
        Scenario {
            name: $name,
            what: $what,
            when: When::$when,
            is_short: $short,
            run: |cluster| async move { $run(&cluster).await }.boxed_local(),
        }
    };
}

/// Every scenario. The longest come first, so that the short ones fill the gaps.
const ALL: &[Scenario] = &[
    scenario!(
        "scale",
        Beside,
        true,
        scenarios::scale::run,
        "every role up, down, to 0 and back under 20 items/s"
    ),
    scenario!(
        "upgrade",
        Beside,
        true,
        scenarios::upgrade::run,
        "next release under load, back half-way, forward; payload gate"
    ),
    scenario!(
        "outage",
        Beside,
        false,
        scenarios::outage::run,
        "database out of reach for two minutes"
    ),
    scenario!(
        "killed",
        Beside,
        true,
        scenarios::killed::run,
        "a Worker killed in a model call; the leader killed"
    ),
    scenario!(
        "install",
        Beside,
        true,
        scenarios::install::run,
        "migrate, Workers, Schedulers, APIs; 200 Sources through the Service"
    ),
    scenario!(
        "grace",
        Beside,
        false,
        scenarios::grace::run,
        "a run of 25 s: given back with grace 9 s, finished with 40 s"
    ),
    scenario!(
        "faults",
        Beside,
        false,
        scenarios::faults::run,
        "wrong image, missing and rotated secret, refused migration"
    ),
    scenario!(
        "mode",
        Beside,
        false,
        scenarios::mode::run,
        "global, dedicated, global under load"
    ),
    scenario!(
        "plugin",
        Beside,
        false,
        scenarios::plugin::run,
        "kubectl powercontext: status, logs, operations listed, cancelled, retried"
    ),
    scenario!("policy", Beside, false, scenarios::policy::run, "NetworkPolicy on"),
    scenario!(
        "eviction",
        Alone,
        false,
        scenarios::eviction::run,
        "evicted at one replica; drained at two under a budget"
    ),
    scenario!(
        "uninstall",
        Last,
        false,
        scenarios::uninstall::run,
        "helm uninstall keeps; a namespace goes; the database stays"
    ),
    scenario!(
        "operator",
        After,
        false,
        scenarios::operator::run,
        "operator killed and away under load; drift by hand"
    ),
    scenario!(
        "tenants",
        After,
        false,
        scenarios::tenants::run,
        "scope namespaces: two tenants, two databases, nothing forbidden"
    ),
];

/// Installs the chart and runs the scenarios; whether everything passed.
///
/// # Errors
/// When the chart cannot be installed.
pub(crate) async fn run(cluster: &Arc<Cluster>, chosen: &[Scenario], at_once: usize) -> anyhow::Result<bool> {
    let began = rt::now();
    let mut told = Vec::new();
    if chosen.iter().any(|scenario| scenario.when != When::After) {
        let since = rt::now();
        cluster.install(RELEASE, SYSTEM, &[]).context("installing the chart")?;
        println!(
            "ok    {:<10} {:>4} s  helm install and helm test",
            "chart",
            since.elapsed().as_secs()
        );
    }
    for when in When::ALL {
        if when == When::After && chosen.iter().any(|scenario| scenario.when == when) {
            make_room(cluster).context("taking the operator of every namespace away")?;
        }
        told.extend(at(cluster, at_once, chosen, when).await?);
    }
    let failed = told.iter().filter(|passed| !**passed).count();
    println!(
        "\n{} scenarios, {failed} failed, {} s",
        told.len(),
        began.elapsed().as_secs()
    );
    Ok(failed == 0)
}

/// Operators that look after single namespaces want no other beside them; the definition has to be there.
fn make_room(cluster: &Cluster) -> anyhow::Result<()> {
    let kubectl = cluster.kubectl();
    kubectl.run(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename",
        &definitions(),
    ])?;
    kubectl.established("powercontextdeployments.powercontext.io")?;
    let releases = cluster.helm(&["list", "--namespace", SYSTEM, "--short"])?;
    if releases.lines().any(|name| name == RELEASE) {
        cluster.helm(&["uninstall", RELEASE, "--namespace", SYSTEM, "--wait"])?;
    }
    Ok(())
}

fn definitions() -> String {
    powercontext_chart_tests::repository()
        .join("crds")
        .display()
        .to_string()
}

/// The names of all scenarios.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|scenario| scenario.name)
}

/// The scenarios that were asked for, in the order in which they run.
pub(crate) fn choose(choice: &Choice) -> Vec<Scenario> {
    let is_wanted = |scenario: &Scenario| {
        if choice.scenarios.is_empty() {
            scenario.is_short || !choice.short
        } else {
            choice.scenarios.iter().any(|name| name == scenario.name)
        }
    };
    ALL.iter().filter(|scenario| is_wanted(scenario)).copied().collect()
}

async fn at(cluster: &Arc<Cluster>, at_once: usize, chosen: &[Scenario], when: When) -> anyhow::Result<Vec<bool>> {
    let places = Arc::new(Semaphore::new(at_once));
    let mut running = JoinSet::new();
    for scenario in chosen.iter().filter(|scenario| scenario.when == when).copied() {
        let (cluster, places) = (Arc::clone(cluster), Arc::clone(&places));
        // In the order of the list: each waits for its place before the next one asks.
        let Ok(place) = places.acquire_owned().await else { break };
        running.spawn(async move {
            // A thread of its own: programs that it runs are waited for where it stands.
            let thread = Handle::current();
            let told = tokio::task::spawn_blocking(move || thread.block_on(one(cluster, scenario)));
            let told = told.await;
            drop(place);
            told
        });
    }
    let mut told = Vec::new();
    for one in running.join_all().await {
        told.push(one?);
    }
    Ok(told)
}

async fn one(cluster: Arc<Cluster>, scenario: Scenario) -> bool {
    let since = rt::now();
    let result = (scenario.run)(cluster).await;
    let took = since.elapsed();
    let word = if result.is_ok() { "ok" } else { "FAIL" };
    println!(
        "{word:<5} {:<10} {:>4} s  {}",
        scenario.name,
        took.as_secs(),
        scenario.what
    );
    if let Err(error) = &result {
        println!("\n== {} failed\n{error:?}\n", scenario.name);
    }
    result.is_ok()
}
