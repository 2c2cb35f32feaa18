//! Checks and generators of this repository: `cargo xtask layers`, `cargo xtask gen [--check]`.
//!
//! They look at the files only, never at a running system, so that they take a moment and need nothing installed.
//! A check prints every fault it finds with its place, then fails.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

mod chart;
mod fields;
mod files;
mod generate;
mod layers;
mod scan;
mod size;

const HELP: &str = "\
usage: cargo xtask <command>

  layers         fail on an import against the direction of docs/architecture.md, and on a file that is too long
  gen            write the generated files
  gen --check    fail when a generated file differs from what gen would write";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(Some(faults)) => {
            for fault in &faults {
                eprintln!("{fault}");
            }
            ExitCode::from(u8::from(!faults.is_empty()))
        }
        Ok(None) => {
            println!("{HELP}");
            let asked = matches!(words.as_slice(), ["help" | "--help" | "-h"]);
            ExitCode::from(if asked { 0 } else { 2 })
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The faults that the command found; `None` for a command that there is not.
fn run(words: &[&str]) -> anyhow::Result<Option<Vec<String>>> {
    let root = root()?;
    Ok(match words {
        ["layers"] => {
            let mut faults = layers::faults(&root)?;
            faults.extend(size::faults(&root)?);
            Some(faults)
        }
        ["gen"] => {
            generate::write(&root)?;
            Some(Vec::new())
        }
        ["gen", "--check"] => Some(generate::faults(&root)?),
        _ => None,
    })
}

/// The repository, two folders above this package.
fn root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).context("xtask does not lie in tests/xtask")?;
    Ok(root.to_owned())
}
