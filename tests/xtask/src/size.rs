//! No Rust file of the product is longer than a reader can hold. Tests may be; they lie under `tests/` or in `*_tests.rs`.

use std::path::Path;

use crate::files::rust_files;

const LINES_MAX: usize = 500;
const FOLDERS: [&str; 3] = ["runtime", "crds", "operator"];

pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for folder in FOLDERS {
        for file in rust_files(root, folder)? {
            faults.extend(fault(&file.path, file.text.lines().count()));
        }
    }
    Ok(faults)
}

fn fault(path: &str, lines: usize) -> Option<String> {
    let is_test = path.ends_with("_tests.rs") || path.split('/').any(|part| part == "tests" || part == "tests.rs");
    (lines > LINES_MAX && !is_test)
        .then(|| format!("{path}: {lines} lines, at most {LINES_MAX}; split it by its reasons to change"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_500_lines_and_a_test_file_any_number() {
        assert_eq!(fault("runtime/src/a.rs", 500), None);
        assert!(fault("runtime/src/a.rs", 501).is_some());
        assert_eq!(fault("runtime/src/a_tests.rs", 900), None);
        assert_eq!(fault("operator/tests/scenarios.rs", 900), None);
    }
}
