//! A database that nobody can reach for half a minute: every process of every role recovers by itself.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::join_all;
use powercontext::rt;
use powercontext_tests::proxy::{Mode, Proxy};
use powercontext_tests::server::Server;
use powercontext_tests::wait::until;

use crate::load::Load;
use crate::rig::{Deployment, SOON};

/// How long the network is broken.
const OUTAGE: Duration = Duration::from_secs(30);
/// How long clients have been at work by then.
const PEACE: Duration = Duration::from_secs(2);
const ROLES: [&str; 4] = ["api", "scheduler", "worker", "background"];

/// Waits until each process answers its readiness probe so.
async fn all_answer(servers: &[Server], status: u16) -> anyhow::Result<()> {
    for (role, server) in ROLES.iter().zip(servers) {
        until(&format!("{role} answers {status}"), SOON, async || {
            let answer = server.client.ready().await?;
            ensure!(answer.status == status, "{answer:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// A deployment behind a proxy, with a process of each role.
async fn behind_a_proxy() -> anyhow::Result<(Deployment, Proxy, Vec<Server>)> {
    let deployment = Deployment::scheduled().await?;
    let proxy = Proxy::before(deployment.database.url()).await?;
    let deployment = deployment.with("DATABASE_URL", proxy.url());
    let mut servers = Vec::new();
    for role in ROLES {
        servers.push(deployment.start(role).await?);
    }
    Ok((deployment, proxy, servers))
}

async fn outage(mode: Mode, deployment: &Deployment, proxy: &Proxy, servers: &[Server]) -> anyhow::Result<()> {
    let api = &servers[0].client;
    let load = Load::start(&[api], 6);
    // Clients are to be met in the middle of their work.
    rt::sleep(PEACE).await;
    let (_, fence) = deployment.led_above(0).await?;

    let broken = rt::now();
    proxy.set(mode).await?;
    all_answer(servers, 503).await?;
    for (role, server) in ROLES.iter().zip(servers) {
        let alive = server.client.get("/health/live").await?.status;
        ensure!(alive == 200, "{role} says that it does not live: {alive}");
    }
    rt::sleep_until(broken + OUTAGE).await;
    proxy.set(Mode::Pass).await?;

    let healed = rt::now();
    all_answer(servers, 200).await?;
    let ready = healed.elapsed();
    let captured = until("a capture is acknowledged", SOON, async || {
        let answer = api.capture("after", &rt::hex_id(), "user: I prefer peace.").await?;
        Ok((answer.status == 202).then(|| healed.elapsed()))
    });
    let captured = captured.await?;
    deployment.led_above(fence).await?;
    let led = healed.elapsed();
    let told = load.stop().await;
    told.kept(deployment).await?;
    let (sources, operations) = told.counts();
    println!(
        "{mode:?}: ready after {ready:.1?}, a capture after {captured:.1?}, led after {led:.1?}, all done after {:.1?}; \
         {sources} Sources and {operations} operations were acknowledged",
        healed.elapsed()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_of_every_role_recovers_by_itself_from_30_s_without_its_database() -> anyhow::Result<()> {
    // One after the other, so that a machine is not asked to start sixteen processes at once.
    let mut stand = Vec::new();
    for mode in [Mode::Refuse, Mode::BlackHole, Mode::HalfOpen, Mode::Reset] {
        stand.push((mode, behind_a_proxy().await?));
    }
    let outages = stand.iter().map(|(mode, (deployment, proxy, servers))| async move {
        let ended = outage(*mode, deployment, proxy, servers).await;
        ended.with_context(|| format!("{mode:?}"))
    });
    for outage in join_all(outages).await {
        outage?;
    }
    for (_, (_, _, servers)) in stand {
        for server in servers {
            server.stop().await?;
        }
    }
    Ok(())
}
