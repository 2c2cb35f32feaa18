//! Entry point of the `powercontext` binary: reads the environment and the arguments, once, and hands them on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{stderr, stdout};
use std::process::ExitCode;

use anyhow::Context as _;
use powercontext::cli::{Cli, Streams};
use powercontext::telemetry::log;

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::from_arguments();
    log::hide_panic_texts();
    let mut threads = if cli.is_small() {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = threads
        .enable_all()
        .build()
        .context("the threads of the process cannot be started")?;
    let (mut out, mut err) = (stdout(), stderr());
    let mut streams = Streams {
        out: &mut out,
        err: &mut err,
    };
    let exit = runtime.block_on(cli.run(environment(), &mut streams));
    // What still blocks a thread, such as a name lookup, must not hold up the exit.
    runtime.shutdown_background();
    Ok(ExitCode::from(exit as u8))
}

/// The environment as text. What is no text gets a character that no setting accepts, so that it is told as a fault.
fn environment() -> BTreeMap<String, String> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}
