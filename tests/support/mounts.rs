//! A mount namespace for one test: a small, full or read-only disk that goes away with the test's process.
//!
//! The test starts itself again under `unshare`, where it may mount without being root outside. What it mounts is seen by
//! it and by the servers that it starts, and by nobody else.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

const INSIDE: &str = "POWERCONTEXT_TEST_MOUNTS";

/// Whether this process is the one that may mount. The other one runs `test`, named with its modules, in such a process
/// and passes or fails with it.
///
/// # Errors
/// When the test fails there, or the system gives no namespace.
pub fn inside(test: &str) -> anyhow::Result<bool> {
    if crate::env(INSIDE).is_some() {
        return Ok(true);
    }
    let folder = tempfile::tempdir()?;
    let plain = ["--mount", "--propagation", "private"];
    // Root may have been denied this, as in most containers; a user namespace may still be granted.
    let may_mount = Command::new("unshare").args(plain).args(["--", "true"]).output();
    let mut command = Command::new("unshare");
    if !may_mount.is_ok_and(|output| output.status.success()) {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(plain)
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        // A folder with something mounted in it cannot be removed from inside.
        .env("TMPDIR", folder.path())
        .output()
        .context("unshare (of util-linux) gives a test a mount namespace of its own")?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.success(),
        "{test} in a mount namespace of its own: {}\n{out}\n{err}",
        output.status
    );
    ensure!(out.contains("1 passed"), "there is no test {test}:\n{out}\n{err}");
    Ok(false)
}

/// Mounts a disk of this size in memory.
///
/// # Errors
/// When the system refuses.
pub fn disk(at: &Path, size: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(at)?;
    mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], at)
}

/// Changes a mounted disk: `ro`, `rw`, `size=8m`.
///
/// # Errors
/// When the system refuses.
pub fn change(at: &Path, options: &str) -> anyhow::Result<()> {
    mount(&["-o", &format!("remount,{options}")], at)
}

/// Makes one file read-only for everybody, also for root.
///
/// # Errors
/// When the system refuses.
pub fn read_only(file: &Path) -> anyhow::Result<()> {
    let path = file.to_str().context("a path that is not UTF-8")?;
    mount(&["--bind", path], file)?;
    mount(&["-o", "remount,bind,ro"], file)
}

fn mount(arguments: &[&str], at: &Path) -> anyhow::Result<()> {
    let output = Command::new("mount")
        .args(arguments)
        .arg(at)
        .output()
        .context("mount")?;
    let err = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mount {arguments:?} {}: {err}", at.display());
    Ok(())
}
