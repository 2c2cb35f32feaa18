//! Servers on a machine that is wrong in one way: a small library is compiled and preloaded into them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::database::Database;
use crate::server::Setup;

/// The same servers with a wall clock that is so many seconds off.
///
/// # Errors
/// When there is no C compiler, which SQLite needs too.
pub fn shifted(setup: &Setup, database: &Database, seconds: i64) -> anyhow::Result<Setup> {
    let setup = preloaded(setup, database, "clock_shift")?;
    Ok(setup.with_variable("CLOCK_SHIFT_SECONDS", &seconds.to_string()))
}

/// The same servers where there is no IPv6.
///
/// # Errors
/// When there is no C compiler, which SQLite needs too.
pub fn without_ipv6(setup: &Setup, database: &Database) -> anyhow::Result<Setup> {
    preloaded(setup, database, "no_ipv6")
}

fn preloaded(setup: &Setup, database: &Database, name: &str) -> anyhow::Result<Setup> {
    let library = database.beside(&format!("{name}.so"));
    if !library.exists() {
        compile(name, &library)?;
    }
    Ok(setup
        .clone()
        .with_variable("LD_PRELOAD", &library.display().to_string()))
}

fn compile(name: &str, library: &PathBuf) -> anyhow::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("support/{name}.c"));
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([library, &source])
        .arg("-ldl")
        .output()
        .context("cc compiles what a test preloads")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
