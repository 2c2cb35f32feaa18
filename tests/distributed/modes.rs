//! A change of the mode of supervision, and back, while clients and Workers are at work.

use anyhow::ensure;
use powercontext_tests::facts;
use powercontext_tests::server::Server;
use powercontext_tests::wait::until;

use crate::load::Load;
use crate::rig::{Deployment, GLOBAL, SOON, leads, refused};

const MODE: &str = "RUNTIME_ARTIFACT_PROCESSING_SUPERVISOR_MODE";
const MEMORY: &str = "powercontext_supervisor_fence{lease=\"artifact:memory\"}";
const CLIENTS: u32 = 8;

/// Two Schedulers of a mode.
async fn schedulers(deployment: &Deployment, mode: &str) -> anyhow::Result<[Server; 2]> {
    let scheduler = deployment.role("scheduler").with(MODE, mode);
    Ok([scheduler.start().await?, scheduler.start().await?])
}

/// Takes the Schedulers down, stores another mode, and shows that one of the old mode is refused.
async fn switch(deployment: &Deployment, from: [Server; 2], old: &str, new: &str) -> anyhow::Result<[Server; 2]> {
    for scheduler in from {
        scheduler.stop().await?;
    }
    deployment.command(&["server", "switch-mode", "--to", new]).await?;
    let log = refused(&deployment.role("scheduler").with(MODE, old)).await?;
    ensure!(
        log.contains(&format!("the stored mode of supervision is {new}")),
        "{log}"
    );
    schedulers(deployment, new).await
}

/// Waits until so many items more have been admitted that nobody asked for, and have ended.
async fn goes_on(deployment: &Deployment) -> anyhow::Result<()> {
    let ended = "select count(*) from pc_work_items where status = 'succeeded' and cast(payload as char) not like '%requester%'";
    let before = facts::number(&deployment.database, ended).await?;
    until("work is admitted and ends", SOON, async || {
        let now = facts::number(&deployment.database, ended).await?;
        Ok((now >= before + i64::from(CLIENTS)).then_some(()))
    })
    .await
}

/// Leads one of two.
async fn led(pair: &[Server; 2], series: &str) -> anyhow::Result<()> {
    tokio::select! {
        first = leads(&pair[0], series) => first.map(drop),
        second = leads(&pair[1], series) => second.map(drop),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_mode_and_back_under_load_with_a_frozen_worker_loses_nothing_and_repeats_nothing()
-> anyhow::Result<()> {
    let deployment = Deployment::scheduled().await?;
    let api = deployment.start("api").await?;
    let frozen = deployment.start("worker").await?;
    let global = schedulers(&deployment, "global").await?;
    deployment.provider.hold();
    let load = Load::start(&[&api.client], CLIENTS);
    deployment.provider.in_flight(4, SOON).await?;
    // In the middle of its runs, and it sleeps through both changes.
    frozen.freeze()?;
    deployment.provider.answer();
    let worker = deployment.start("worker").await?;
    led(&global, GLOBAL).await?;
    goes_on(&deployment).await?;

    let dedicated = switch(&deployment, global, "global", "dedicated").await?;
    led(&dedicated, MEMORY).await?;
    goes_on(&deployment).await?;

    let global = switch(&deployment, dedicated, "dedicated", "global").await?;
    led(&global, GLOBAL).await?;
    frozen.thaw()?;
    goes_on(&deployment).await?;
    let told = load.stop().await;
    told.kept(&deployment).await?;
    let (sources, operations) = told.counts();
    println!("{sources} Sources and {operations} operations were acknowledged");
    for server in global.into_iter().chain([frozen, worker, api]) {
        server.stop().await?;
    }
    Ok(())
}
