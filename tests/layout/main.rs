//! The repository about itself: which names stand at the top level, and whether its documents tell the truth.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

mod documents;

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
    let files = repository()?;
    let known = [&PARTS[..], &FILES, &TOOLS].concat();
    let mut strange: Vec<_> = files.iter().filter_map(|path| path.split('/').next()).collect();
    strange.retain(|top| !known.contains(top));
    strange.dedup();
    ensure!(strange.is_empty(), "{strange:?} may not stand at the top level");
    Ok(())
}

pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(root.context("the package lies in tests/")?.to_owned())
}

pub(crate) fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root()?.join(path)).with_context(|| format!("reading {path}"))
}

/// The files under version control, with `/` between the parts of a path.
pub(crate) fn repository() -> anyhow::Result<Vec<String>> {
    // The clone may belong to another user than the one who runs its tests.
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(root()?)
        .output()
        .context("git is needed")?;
    ensure!(
        listed.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let paths = String::from_utf8(listed.stdout)?;
    let paths: Vec<String> = paths
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    ensure!(
        paths.iter().any(|path| path == "Cargo.toml"),
        "git lists no file of this repository"
    );
    Ok(paths)
}
