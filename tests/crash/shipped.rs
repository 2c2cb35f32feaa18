//! What ships cannot be stopped at named points.

use std::process::Command;

use anyhow::{Context, ensure};

/// Packages that a build of this package alone compiles into its programs.
fn packages(package: &str) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--package",
            package,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .context("cargo tree")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_shipped_server_has_no_fail_points_and_the_tests_have() -> anyhow::Result<()> {
    let has_points = |packages: &str| packages.lines().any(|line| line.starts_with("fail v"));
    // What `make build` and `make run` build.
    ensure!(!has_points(&packages("powercontext")?), "fail points would ship");
    ensure!(
        has_points(&packages("powercontext-tests")?),
        "the crash suite has no fail points"
    );
    Ok(())
}
