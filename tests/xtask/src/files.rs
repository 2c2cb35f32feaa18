//! Which files a check looks at.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A Rust file: its path below the root with `/` between the parts, and its text.
pub(crate) struct RustFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All Rust files below a folder of the repository, in the order of their paths. A folder that is not there holds none.
pub(crate) fn rust_files(root: &Path, folder: &str) -> anyhow::Result<Vec<RustFile>> {
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(read(root, &path)?);
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn read(root: &Path, path: &PathBuf) -> anyhow::Result<RustFile> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let below = path
        .strip_prefix(root)?
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    Ok(RustFile {
        path: below.collect::<Vec<_>>().join("/"),
        text,
    })
}
