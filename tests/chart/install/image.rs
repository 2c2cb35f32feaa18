//! The files of the image, laid out by the script that the Dockerfile runs, from the operator of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use powercontext_chart_tests::{printed, read, repository};

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[test]
fn the_image_runs_with_its_own_files_alone_and_has_no_shell() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let image = folder.path().join("image");
    let program = env!("CARGO_BIN_EXE_operator-under-test");
    let laid_out = Command::new(repository().join(".ci/rootfs"))
        .arg(&image)
        .arg(program)
        .output()?;
    printed("rootfs", laid_out)?;
    // A namespace in which this user is root: no right of this machine is needed to change the root folder.
    let inside = "/usr/local/bin/operator-under-test";
    let run = Command::new("unshare")
        .args(["--map-root-user", "chroot"])
        .arg(&image)
        .args([inside, "--version"])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .context("starting unshare")?;
    ensure!(printed("chroot", run)?.starts_with("powercontext-operator "));
    let mut found = Vec::new();
    files(&image, &mut found)?;
    let name = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    let strange: Vec<String> = found
        .iter()
        .map(name)
        .filter(|name| !name.contains(".so") && !KNOWN.contains(&name.as_str()))
        .collect();
    ensure!(strange.is_empty(), "{strange:?}");
    Ok(())
}

/// Everything but libraries.
const KNOWN: [&str; 5] = [
    "operator-under-test",
    "ca-certificates.crt",
    "nsswitch.conf",
    "passwd",
    "group",
];

#[test]
fn the_image_has_both_programs_and_the_user_that_the_manifests_name() -> anyhow::Result<()> {
    let dockerfile = read("Dockerfile")?;
    ensure!(dockerfile.contains("/target/release/powercontext /target/release/powercontext-operator"));
    ensure!(dockerfile.contains("\nUSER 65532:65532\n"));
    // Roles are started by arguments alone, the operator by its path.
    ensure!(dockerfile.contains("ENTRYPOINT [\"/usr/local/bin/powercontext\"]"));
    ensure!(
        read("charts/powercontext/templates/_helpers.tpl")?.contains("command: [/usr/local/bin/powercontext-operator]")
    );
    // Cargo wants the manifest of every member, also of those that are not built.
    let manifest = read("Cargo.toml")?;
    let members = manifest
        .lines()
        .find(|line| line.starts_with("members = "))
        .context("members")?;
    for member in members.split('"').skip(1).step_by(2) {
        let top = member.split('/').next().unwrap_or_default();
        ensure!(
            dockerfile.contains(&format!("\nCOPY {top} {top}\n")),
            "{top} is not copied"
        );
    }
    let toolchain = read("rust-toolchain.toml")?;
    let release = dockerfile
        .split("FROM rust:")
        .nth(1)
        .and_then(|rest| rest.split('-').next());
    ensure!(
        release.is_some_and(|release| toolchain.contains(&format!("channel = \"{release}."))),
        "{release:?}"
    );
    Ok(())
}
