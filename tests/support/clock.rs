//! Servers whose wall clock is wrong: a small library is compiled and preloaded into them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::database::Database;
use crate::server::Setup;

/// The same servers with a wall clock that is so many seconds off.
///
/// # Errors
/// When there is no C compiler, which SQLite needs too.
pub fn shifted(setup: &Setup, database: &Database, seconds: i64) -> anyhow::Result<Setup> {
    let library = database.beside("clock_shift.so");
    if !library.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("support/clock_shift.c");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .context("cc compiles the clock of a test")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let setup = setup
        .clone()
        .with_variable("LD_PRELOAD", &library.display().to_string());
    Ok(setup.with_variable("CLOCK_SHIFT_SECONDS", &seconds.to_string()))
}
