//! The top level of the repository holds a fixed set of names; whatever else is needed lives inside one of them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

const PARTS: [&str; 8] = [
    "operator",
    "runtime",
    "crds",
    "charts",
    "migrations",
    "tests",
    "e2e",
    "docs",
];
const FILES: [&str; 7] = [
    "Cargo.toml",
    "README.md",
    "Makefile",
    "Dockerfile",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
];
const TOOLS: [&str; 8] = [
    "Cargo.lock",
    "clippy.toml",
    "rustfmt.toml",
    "rust-toolchain.toml",
    "deny.toml",
    ".cargo",
    ".ci",
    ".gitignore",
];

#[test]
fn nothing_stands_at_the_top_but_the_names_agreed_on() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the package lies in tests/")?;
    // The clone may belong to another user than the one who runs its tests.
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("git is needed")?;
    ensure!(
        listed.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let listed = String::from_utf8(listed.stdout)?;
    let tops = listed
        .split('\0')
        .filter_map(|path| path.split('/').next())
        .filter(|top| !top.is_empty());
    let mut strange: Vec<_> = tops
        .filter(|top| ![&PARTS[..], &FILES, &TOOLS].concat().contains(top))
        .collect();
    strange.dedup();
    ensure!(strange.is_empty(), "{strange:?} may not stand at the top level");
    ensure!(listed.contains("Cargo.toml"), "git lists no file of this repository");
    Ok(())
}
