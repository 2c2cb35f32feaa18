//! The examples of the documents, run as they are.

use std::path::Path;
use std::process::Stdio;

use anyhow::ensure;
use tokio::process::Command;

use crate::rig::Deployment;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_flow_script_takes_a_source_through_a_deployment_with_tokens() -> anyhow::Result<()> {
    const TOKEN: &str = "token-of-the-test";
    let deployment = Deployment::new().await?;
    let deployment = deployment.with("AUTH_ENABLED", "true").with("AUTH_TOKEN", TOKEN);
    let six = deployment.all().await?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/distributed-flow.sh");
    let run = async |token: &str| {
        let mut command = Command::new(&script);
        for (name, api) in [("API_1", &six.apis[0]), ("API_2", &six.apis[1])] {
            command.env(name, format!("http://{}", api.address));
        }
        // A proxy of this machine has no part in it.
        let command = command.env("TOKEN", token).env("no_proxy", "*").stdin(Stdio::null());
        anyhow::Ok(command.output().await?)
    };
    let output = run(TOKEN).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{output:?}");
    for part in [
        "is ready",
        "captured at",
        "accepted at",
        "succeeded",
        "durable work that survives a restart",
        "powercontext_runtime_members",
    ] {
        ensure!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let refused = run("another").await?;
    ensure!(!refused.status.success(), "{refused:?}");
    six.stop().await
}
