//! Where cargo put the programs of this package.
//!
//! Cargo names them in the environment of every test it runs. `powercontext-server` is the same `main` as the shipped
//! `powercontext`; it is a target of this package because cargo builds and names only a package's own programs.

use std::path::PathBuf;

use anyhow::Context;

/// The server, for tests that start, stop and kill it as a process.
///
/// # Errors
/// When the test was not started by cargo.
pub fn server() -> anyhow::Result<PathBuf> {
    named("powercontext-server")
}

/// The next release's server: one schema step and one payload version more.
///
/// # Errors
/// When it has not been built.
pub fn next_server() -> anyhow::Result<PathBuf> {
    let program = server()?.with_file_name("powercontext-server-next");
    anyhow::ensure!(
        program.is_file(),
        "{} is not there: run the tests with `make test`, or build it with `cargo build --workspace --features \
         powercontext-tests/next-version --bin powercontext-server-next`",
        program.display()
    );
    Ok(program)
}

pub(crate) fn named(program: &str) -> anyhow::Result<PathBuf> {
    let key = format!("CARGO_BIN_EXE_{program}");
    let path = crate::env(&key).with_context(|| format!("{key} is not set: run the tests with `cargo test`"))?;
    Ok(PathBuf::from(path))
}
