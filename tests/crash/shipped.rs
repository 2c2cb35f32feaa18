//! What ships cannot be stopped at named points, and has no families for tests.

use std::process::Command;

use anyhow::{Context, ensure};

/// Packages that a build of this package alone compiles into its programs, and with which features.
fn packages(package: &str) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p} {f}",
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
fn the_shipped_server_has_no_fail_points_and_no_test_families_and_the_tests_have() -> anyhow::Result<()> {
    let has_points = |packages: &str| packages.lines().any(|line| line.starts_with("fail v"));
    // What `make build` and `make run` build.
    ensure!(!has_points(&packages("powercontext")?), "fail points would ship");
    ensure!(
        has_points(&packages("powercontext-tests")?),
        "the crash suite has no fail points"
    );
    let has_families = |packages: &str| packages.contains("test-families");
    ensure!(
        !has_families(&packages("powercontext")?),
        "families for tests would ship"
    );
    ensure!(
        has_families(&packages("powercontext-tests")?),
        "the tests have no families"
    );
    Ok(())
}
