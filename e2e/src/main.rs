//! The operator on a real cluster, end to end: the chart is installed with Helm, deployments are made with kubectl, every role
//! runs as pods of the shipped image, and an OceanBase kernel and a deterministic model stand outside the cluster.
//!
//! `e2e/run` finds or starts the cluster, makes the images and runs this program where pods can be reached. Each scenario has a
//! namespace, a schema and a model of its own, so those that disturb nobody run at once; what became of each is printed with
//! the time that it took.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

mod arguments;
mod cluster;
mod door;
mod node;
mod plan;
mod scenarios;
mod tenant;
mod traffic;

use arguments::Arguments;
use cluster::Cluster;

#[tokio::main(flavor = "multi_thread", worker_threads = 8)]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    // Crates of the workspace bring two of them; nothing was installed before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let all_passed = match arguments {
        Arguments::List(choice) => {
            for scenario in plan::choose(&choice) {
                println!("{scenario}");
            }
            true
        }
        Arguments::Run { place, choice } => {
            let chosen = plan::choose(&choice);
            let cluster = Arc::new(Cluster::connect(&place).await?);
            plan::run(&cluster, &chosen, choice.at_once.into()).await?
        }
        Arguments::Demo(place) => {
            let cluster = Arc::new(Cluster::connect(&place).await?);
            scenarios::demo::run(&cluster, &place.kernel).await?;
            true
        }
    };
    Ok(if all_passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
