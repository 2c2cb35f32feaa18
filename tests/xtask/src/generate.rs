//! The generated files of the repository, each as a function from the sources to the whole text of the file.
//!
//! A generated file says so in its text, lies under version control, and `gen --check` fails on drift.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::{chart, fields};

struct Generated {
    path: &'static str,
    text: String,
}

fn all(root: &Path) -> anyhow::Result<Vec<Generated>> {
    let mut files = vec![Generated {
        path: "docs/adr/README.md",
        text: decisions(&root.join("docs/adr"))?,
    }];
    if root.join("runtime").is_dir() {
        files.push(Generated {
            path: "docs/reference/configuration.md",
            text: configuration(root)?,
        });
    }
    if root.join("crds").is_dir() {
        files.push(Generated {
            path: "crds/powercontextdeployments.yaml",
            text: powercontext_crds::yaml(),
        });
        files.push(Generated {
            path: "docs/reference/deployment.md",
            text: fields::page(&powercontext_crds::yaml())?,
        });
    }
    let folder = root.join("charts/powercontext");
    if folder.is_dir() {
        let read = |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("reading {name}"));
        files.push(Generated {
            path: "charts/powercontext/templates/crd.yaml",
            text: chart::definition(&powercontext_crds::yaml())?,
        });
        files.push(Generated {
            path: "charts/powercontext/README.md",
            text: chart::page(&read("Chart.yaml")?, &read("values.yaml")?)?,
        });
    }
    Ok(files)
}

/// The page of all settings, as the server that was built from these sources prints it.
fn configuration(root: &Path) -> anyhow::Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "powercontext", "--"])
        .args(["server", "config", "--reference"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(output.status.success(), "the server did not print its settings");
    String::from_utf8(output.stdout).context("the page of all settings")
}

/// Writes every generated file.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    for file in all(root)? {
        if fs::read_to_string(root.join(file.path)).ok().as_deref() != Some(&file.text) {
            let path = root.join(file.path);
            fs::create_dir_all(path.parent().unwrap_or(root)).with_context(|| format!("making {}", file.path))?;
            fs::write(path, &file.text).with_context(|| format!("writing {}", file.path))?;
            println!("wrote {}", file.path);
        }
    }
    Ok(())
}

/// Every generated file that is not what [`write`] would write.
pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let stale = all(root)?.into_iter().filter(|file| {
        let stored = fs::read_to_string(root.join(file.path)).ok();
        stored.as_deref() != Some(&file.text)
    });
    Ok(stale
        .map(|file| format!("{}: differs from its source; run `make gen`", file.path))
        .collect())
}

/// The list of decisions: number and title of each `NNNN-title.md`, whose first line is `# NNNN. Title`.
fn decisions(folder: &Path) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.extension().is_some_and(|extension| extension == "md") && name != "README.md" {
            names.push(name.into_owned());
        }
    }
    names.sort();
    let mut text = String::from(
        "# Decisions\n\nWritten by `make gen` from the files beside it. A decision is changed by a new one that names it.\n\n",
    );
    for (at, name) in names.iter().enumerate() {
        let number = format!("{:04}", at + 1);
        let body = fs::read_to_string(folder.join(name))?;
        let title = body
            .lines()
            .next()
            .and_then(|line| line.strip_prefix(&format!("# {number}. ")));
        let Some(title) = title.filter(|_| name.starts_with(&format!("{number}-"))) else {
            bail!("docs/adr/{name}: should be {number}-….md with the first line `# {number}. Title`");
        };
        for part in [
            "## Context",
            "## Choice",
            "## Rejected",
            "## How we will know it was wrong",
        ] {
            if !body.lines().any(|line| line == part) {
                bail!("docs/adr/{name}: has no part `{part}`");
            }
        }
        writeln!(text, "- [{number}]({name}) {title}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &str = "\n## Context\n## Choice\n## Rejected\n## How we will know it was wrong\n";

    #[test]
    fn the_list_of_decisions_is_in_order_and_drift_is_found() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path().join("docs/adr");
        fs::create_dir_all(&folder).expect("writable");
        for (name, title) in [("0002-b.md", "# 0002. Second"), ("0001-a.md", "# 0001. First")] {
            fs::write(folder.join(name), format!("{title}{PARTS}")).expect("writable");
        }
        assert_eq!(faults(root.path()).expect("readable").len(), 1);
        write(root.path()).expect("writable");
        assert!(faults(root.path()).expect("readable").is_empty());
        let list = fs::read_to_string(folder.join("README.md")).expect("readable");
        assert!(
            list.ends_with("- [0001](0001-a.md) First\n- [0002](0002-b.md) Second\n"),
            "{list}"
        );
    }

    #[test]
    fn a_decision_without_its_parts_or_with_a_hole_before_it_is_refused() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in [
            ("0001-a.md", "# 0001. First\n".to_owned()),
            ("0002-b.md", format!("# 0002. B{PARTS}")),
        ] {
            let folder = root.path().join(name);
            fs::create_dir(&folder).expect("writable");
            fs::write(folder.join(name), text).expect("writable");
            assert!(decisions(&folder).is_err(), "{name}");
        }
    }
}
