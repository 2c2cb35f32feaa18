//! The import direction (`docs/architecture.md`, "one direction"): each module of the runtime may use only what its line
//! in [`ALLOWED`] names, and the core nothing of ours and no clock, task, file or database.
//!
//! The table below is the direction; there is no other statement of it in code.

use std::path::Path;

use crate::files::{RustFile, rust_files};
use crate::scan::{Word, after, heads, words};

/// Module and what it may import. `rt` and `telemetry` may be imported by everything above them.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("rt", &[]),
    ("telemetry", &["rt"]),
    ("config", &["rt", "telemetry"]),
    ("inference", &["rt", "telemetry"]),
    ("store", &["rt", "telemetry"]),
    ("ledger", &["rt", "telemetry", "store"]),
    ("supervisor", &["rt", "telemetry", "store", "ledger", "config"]),
    (
        "families",
        &["rt", "telemetry", "store", "ledger", "config", "inference"],
    ),
    ("worker", BELOW_ROLES),
    ("api", BELOW_ROLES),
    ("mcp", BELOW_ROLES),
    ("console", BELOW_ROLES),
    (
        "roles",
        &[
            "rt",
            "telemetry",
            "store",
            "ledger",
            "config",
            "inference",
            "supervisor",
            "families",
            "worker",
            "api",
            "mcp",
            "console",
        ],
    ),
    ("dev", &["rt", "telemetry", "config", "inference", "store", "roles"]),
    (
        "cli",
        &[
            "rt",
            "telemetry",
            "store",
            "ledger",
            "config",
            "inference",
            "supervisor",
            "families",
            "worker",
            "roles",
            "dev",
        ],
    ),
    ("main", &["rt", "telemetry", "config", "cli", "dev"]),
];

const BELOW_ROLES: &[&str] = &[
    "rt",
    "telemetry",
    "store",
    "ledger",
    "config",
    "inference",
    "supervisor",
    "families",
];

/// What the tests beside the code may use as well: they talk to the deterministic model over HTTP.
const FIXTURES: [&str; 1] = ["dev"];

const RUNTIME: &str = "runtime/src/";
const CORE: &str = "runtime/core/src/";

/// Crates that the core may not name at all.
const CORE_CRATES: [&str; 8] = [
    "powercontext",
    "tokio",
    "sqlx",
    "reqwest",
    "axum",
    "hyper",
    "rand",
    "tracing",
];
/// Parts of the standard library that reach outside.
const CORE_STD: [&str; 6] = ["env", "fs", "net", "process", "thread", "io"];
/// Types that read a clock, and maps whose order differs from run to run.
const CORE_TYPES: [&str; 5] = ["SystemTime", "Instant", "UNIX_EPOCH", "HashMap", "HashSet"];

/// Every import against the direction, in the order of the files.
pub(crate) fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in rust_files(root, RUNTIME.trim_end_matches('/'))? {
        faults.extend(runtime_faults(&file));
    }
    for file in rust_files(root, CORE.trim_end_matches('/'))? {
        faults.extend(core_faults(&file));
    }
    Ok(faults)
}

fn runtime_faults(file: &RustFile) -> Vec<String> {
    let inside = file
        .path
        .strip_prefix(RUNTIME)
        .unwrap_or(&file.path)
        .trim_end_matches(".rs");
    let parts: Vec<&str> = inside.split('/').filter(|part| *part != "mod").collect();
    let module = parts[0];
    if module == "lib" {
        return Vec::new();
    }
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
        return vec![format!(
            "{}: module {module} has no line in tests/xtask/src/layers.rs",
            file.path
        )];
    };
    let words = words(&file.text);
    let mut imports = heads(&words, "crate");
    imports.extend(heads(&words, "powercontext"));
    imports.extend(climbs(&words, parts.len()));
    imports.sort_by_key(|import| import.line);
    let wrong = imports.iter().filter(|import| {
        let is_module = ALLOWED.iter().any(|(name, _)| *name == import.segment);
        let is_fixture = file.path.ends_with("_tests.rs") && FIXTURES.contains(&import.segment);
        is_module && import.segment != module && !is_fixture && !allowed.contains(&import.segment)
    });
    let fault = |line, segment| format!("{}:{line}: {module} may not import {segment}", file.path);
    wrong.map(|import| fault(import.line, import.segment)).collect()
}

/// What `super::super::…` reaches from a module so many levels below the crate, where it climbs to the crate itself.
fn climbs<'a>(words: &[Word<'a>], depth: usize) -> Vec<crate::scan::Head<'a>> {
    let mut found = Vec::new();
    for at in 0..words.len() {
        let is_super = |i: usize| words.get(i).is_some_and(|word| word.text == "super");
        if !is_super(at) || (at >= 3 && is_super(at - 3)) {
            continue;
        }
        let mut levels = 1;
        while is_super(at + 3 * levels) {
            levels += 1;
        }
        if levels >= depth {
            found.extend(after(words, at + 3 * (levels - 1) + 1));
        }
    }
    found
}

fn core_faults(file: &RustFile) -> Vec<String> {
    let words = words(&file.text);
    let mut wrong = Vec::new();
    for name in CORE_CRATES {
        wrong.extend(heads(&words, name).into_iter().map(|head| (head.line, name.to_owned())));
    }
    let std = heads(&words, "std")
        .into_iter()
        .filter(|head| CORE_STD.contains(&head.segment));
    wrong.extend(std.map(|head| (head.line, format!("std::{}", head.segment))));
    let types = words.iter().filter(|word| CORE_TYPES.contains(&word.text));
    wrong.extend(types.map(|word| (word.line, word.text.to_owned())));
    wrong.sort();
    wrong
        .into_iter()
        .map(|(line, name)| format!("{}:{line}: the core may not use {name}", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A small tree in a folder of its own, and what the check says about it.
    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        faults(root.path()).expect("readable")
    }

    #[test]
    fn imports_downwards_and_inside_a_module_are_accepted() {
        let found = check(&[
            ("runtime/src/lib.rs", "pub mod api; pub mod store;"),
            ("runtime/src/main.rs", "fn main() { powercontext::cli::main() }"),
            (
                "runtime/src/ledger/claim.rs",
                "use crate::{ledger::enqueue, rt, store::tx::{Db, Tx}};",
            ),
            (
                "runtime/src/families/memory/mod.rs",
                "use crate::inference::Model; use powercontext_core::ids;",
            ),
            ("runtime/src/roles/all.rs", "use crate::{api, worker};"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn an_import_upwards_is_named_with_its_line() {
        let found = check(&[(
            "runtime/src/store/tx.rs",
            "use crate::rt;\nuse crate::{\n  ledger::claim,\n};\n",
        )]);
        assert_eq!(found, ["runtime/src/store/tx.rs:3: store may not import ledger"]);
    }

    #[test]
    fn siblings_may_not_import_each_other() {
        let found = check(&[
            ("runtime/src/worker/mod.rs", "fn f() { crate::api::g() }"),
            ("runtime/src/telemetry/log.rs", "use crate::config::Settings;"),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn tests_beside_the_code_may_use_the_deterministic_model_and_nothing_else_above() {
        let text = "use crate::dev::model;\nuse crate::api::router;";
        let found = check(&[("runtime/src/inference/openai_tests.rs", text)]);
        assert_eq!(
            found,
            ["runtime/src/inference/openai_tests.rs:2: inference may not import api"]
        );
        assert_eq!(check(&[("runtime/src/inference/openai.rs", text)]).len(), 2);
    }

    #[test]
    fn climbing_with_super_is_no_way_around() {
        let found = check(&[
            ("runtime/src/store/mod.rs", "use super::ledger;"),
            (
                "runtime/src/store/sqlite/works.rs",
                "use super::super::super::{api::v1, rt}; use super::super::tx;",
            ),
        ]);
        let want = [
            "store/mod.rs:1: store may not import ledger",
            "store/sqlite/works.rs:1: store may not import api",
        ];
        assert_eq!(found, want.map(|fault| format!("runtime/src/{fault}")));
    }

    #[test]
    fn a_module_that_the_table_does_not_know_is_a_fault() {
        let found = check(&[("runtime/src/misc/mod.rs", "")]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn the_core_uses_no_clock_no_task_no_database_and_nothing_of_ours() {
        let text = "use std::time::{Duration, SystemTime};\nuse tokio::sync;\nuse std::{fmt, fs};\nuse sqlx::Row;\nuse powercontext::rt;";
        let found = check(&[("runtime/core/src/time.rs", text)]);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(check(&[("runtime/core/src/time.rs", "//! No tokio.\nuse std::time::Duration;")]).is_empty());
    }

    #[test]
    fn the_table_has_no_circle() {
        // Leaves are taken away until nothing is left; a circle would stay.
        let mut left: Vec<_> = ALLOWED.to_vec();
        while !left.is_empty() {
            let names: Vec<_> = left.iter().map(|(name, _)| *name).collect();
            let before = left.len();
            left.retain(|(_, allowed)| allowed.iter().any(|target| names.contains(target)));
            assert!(left.len() < before, "a circle among {names:?}");
        }
    }
}
