//! Golden files: what a test produced must be what the file holds. `UPDATE=1` writes the files instead.

use std::fs;
use std::path::Path;

/// Compares a text with `tests/golden/operator/<name>` of the repository.
pub(crate) fn check(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/operator");
    let path = folder.join(name);
    #[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting")]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        fs::create_dir_all(&folder).expect("the folder can be made");
        fs::write(&path, text).expect("the file can be written");
        return;
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{name} differs; look at it with `UPDATE=1 cargo test -p powercontext-operator` and `git diff`"
    );
}
