//! `kubectl powercontext`: what a person does with a deployment, in one word each.
//!
//! The operator's program is the plugin when it is called `kubectl-powercontext`, and under `powercontext-operator kubectl`. It
//! asks the API server as the person who runs it and holds no right of its own. What it says and what it writes is decided by
//! pure functions of the objects it read; `run` reads, calls them, writes and prints.

pub mod args;
mod cluster;
mod fault;
mod forecast;
mod logs;
mod operations;
mod operator;
mod plan;
mod print;
mod scene;
mod steps;
mod tree;
mod wishes;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use powercontext_crds::v1alpha1::PowerContextDeployment;

use self::args::{Command, PluginArguments, Target, WishArguments};
use self::cluster::Cluster;
use self::fault::PluginError;
use self::print::show;
use self::wishes::{Decision, Wish};
use crate::rt;

/// The name under which kubectl finds the program.
pub const NAME: &str = "kubectl-powercontext";

/// It did what was asked; of `status`: the deployment is ready.
pub const DONE: u8 = 0;
/// Something failed.
pub const FAILED: u8 = 1;
/// What was asked for is not there.
pub const ABSENT: u8 = 3;
/// Whoever asks may not.
pub const FORBIDDEN: u8 = 4;
/// `status`: the deployment is on its way, or paused.
pub const UNDER_WAY: u8 = 10;
/// `status`, `plan`: somebody has to act.
pub const STUCK: u8 = 11;

/// Pause between two looks at what the operator made of a wish.
const LOOK: Duration = Duration::from_millis(300);

/// Whether a program of that name is the plugin.
pub fn is_called(program: Option<&OsStr>) -> bool {
    program
        .and_then(|program| Path::new(program).file_stem())
        .is_some_and(|stem| stem == NAME)
}

/// Does what the arguments say, and tells it on standard output, or the reason why not on standard error.
///
/// The exit status is one of [`DONE`], [`FAILED`], [`ABSENT`], [`FORBIDDEN`], [`UNDER_WAY`] and [`STUCK`]; clap's own is 2.
pub async fn run(arguments: PluginArguments) -> u8 {
    match Box::pin(dispatch(arguments)).await {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {error}");
            error.status()
        }
    }
}

async fn dispatch(arguments: PluginArguments) -> Result<u8, PluginError> {
    let cluster = Cluster::connect(&arguments.place).await?;
    let (arguments, wish) = match arguments.command {
        Command::Approve(approve) => {
            let target = approve.target;
            (approve.wish, Wish::Approve { target })
        }
        Command::RetryMigration(arguments) => {
            let token = rt::time_of_day().to_string();
            (arguments, Wish::RetryMigration { token })
        }
        Command::Pause(arguments) => (arguments, Wish::Pause),
        Command::Resume(arguments) => (arguments, Wish::Resume),
        Command::Status(status) => return tree::run(&cluster, &status).await,
        Command::Plan(plan) => return Box::pin(plan::run(&cluster, &plan)).await,
        Command::Logs(logs) => return logs::run(&cluster, &logs).await,
        Command::Operations(operations) => return operations::run(&cluster, operations).await,
    };
    Box::pin(follow(&cluster, &arguments, &wish)).await
}

/// Writes a wish, and waits until the operator has followed it.
async fn follow(cluster: &Cluster, arguments: &WishArguments, wish: &Wish) -> Result<u8, PluginError> {
    let Target { name } = &arguments.target;
    let resource = cluster.find(name.as_deref()).await?;
    let (patch, said) = match wishes::decide(&resource, wish) {
        Decision::Write { patch, said } => (patch, said),
        Decision::Already(said) => {
            show(&format!("{said}\n"));
            return Ok(DONE);
        }
        Decision::Impossible(why) => return Err(PluginError::Impossible(why)),
    };
    let name = resource.metadata.name.clone().unwrap_or_default();
    let mut now: PowerContextDeployment = cluster.patch(&name, &patch).await?;
    show(&format!("{said}\n"));
    let until = rt::now() + Duration::from_secs(arguments.wait_seconds);
    while !wishes::is_followed(&now, wish) {
        if rt::now() >= until {
            if arguments.wait_seconds == 0 {
                return Ok(DONE);
            }
            let operator = operator::look(cluster).await;
            return Err(PluginError::NotFollowed {
                seconds: arguments.wait_seconds,
                operator: operator.to_string(),
            });
        }
        rt::sleep(LOOK).await;
        now = cluster.find(Some(&name)).await?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_name_makes_it_the_plugin() {
        for (program, is) in [
            ("/usr/local/bin/kubectl-powercontext", true),
            ("kubectl-powercontext", true),
            ("kubectl-powercontext.exe", true),
            ("/usr/local/bin/powercontext-operator", false),
            ("/kubectl-powercontext/powercontext-operator", false),
        ] {
            assert_eq!(is_called(Some(OsStr::new(program))), is, "{program}");
        }
        assert!(!is_called(None));
    }
}
