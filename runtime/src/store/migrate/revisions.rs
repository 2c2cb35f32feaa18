//! The schema revisions this build knows: the SQL of `migrations/`, embedded.
//!
//! A revision is a folder, a statement a file; a test compares this list with the folders, so that neither can be forgotten.
//! A revision that was released never changes: its checksum is stored with it. What changes is the list, at its end.

use powercontext_core::digest::sha256_hex;

use crate::store::conn::Dialect;

/// One statement of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// Folder and file, for messages.
    pub file: &'static str,
    /// Its text, one statement without a semicolon at its end.
    pub sql: &'static str,
}

/// One step of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision {
    /// 1, 2, 3 and so on.
    pub number: u32,
    /// Name of its folder without the number.
    pub name: &'static str,
    /// The oldest build, by the newest revision it knows, that can work on a database of this revision.
    pub oldest_reader: u32,
    /// Whether it only adds: what was there before stays as it was.
    pub additive: bool,
    oceanbase: &'static [Statement],
    sqlite: &'static [Statement],
}

impl Revision {
    /// Its statements in order.
    pub fn statements(&self, dialect: Dialect) -> &'static [Statement] {
        match dialect {
            Dialect::OceanBase => self.oceanbase,
            Dialect::Sqlite => self.sqlite,
        }
    }

    /// SHA-256 of its statements, in lower-case hex.
    pub fn checksum(&self, dialect: Dialect) -> String {
        let texts: Vec<_> = self.statements(dialect).iter().map(|statement| statement.sql).collect();
        // A statement holds no NUL, so no two lists join to the same text.
        sha256_hex(texts.join("\0").as_bytes())
    }
}

macro_rules! statements {
    ($dialect:literal, $folder:literal, [$($file:literal),* $(,)?]) => {
        &[$(Statement {
            file: concat!($folder, "/", $file),
            sql: include_str!(concat!("../../../../migrations/", $dialect, "/", $folder, "/", $file)),
        }),*]
    };
}

/// The tables that the migrator itself needs, made before the first revision.
pub const BOOTSTRAP: Revision = Revision {
    number: 0,
    name: "bootstrap",
    oldest_reader: 0,
    additive: true,
    oceanbase: statements!(
        "oceanbase",
        "0000_bootstrap",
        ["1_schema_revisions.sql", "2_scheduler_leases.sql",]
    ),
    sqlite: statements!(
        "sqlite",
        "0000_bootstrap",
        ["1_schema_revisions.sql", "2_scheduler_leases.sql",]
    ),
};

/// Every revision, in order.
pub const REVISIONS: &[Revision] = &[
    Revision {
        number: 1,
        name: "work_ledger",
        oldest_reader: 1,
        additive: true,
        oceanbase: statements!(
            "oceanbase",
            "0001_work_ledger",
            [
                "1_work_lanes.sql",
                "2_work_items.sql",
                "3_work_keys.sql",
                "4_work_attempts.sql",
            ]
        ),
        sqlite: statements!(
            "sqlite",
            "0001_work_ledger",
            [
                "1_work_lanes.sql",
                "2_work_items.sql",
                "3_work_items_ready.sql",
                "4_work_items_lease.sql",
                "5_work_items_created.sql",
                "6_work_items_scope_created.sql",
                "7_work_items_completed.sql",
                "8_work_keys.sql",
                "9_work_attempts.sql",
                "10_work_attempts_finished.sql",
            ]
        ),
    },
    Revision {
        number: 2,
        name: "sources",
        oldest_reader: 2,
        additive: true,
        oceanbase: statements!(
            "oceanbase",
            "0002_sources",
            [
                "1_source_journal_heads.sql",
                "2_sources.sql",
                "3_source_cursors.sql",
                "4_artifact_processing_intents.sql",
            ]
        ),
        sqlite: statements!(
            "sqlite",
            "0002_sources",
            [
                "1_source_journal_heads.sql",
                "2_sources.sql",
                "3_source_cursors.sql",
                "4_artifact_processing_intents.sql",
                "5_artifact_processing_intents_dirty.sql",
                "6_artifact_processing_intents_owed.sql",
            ]
        ),
    },
    Revision {
        number: 3,
        name: "memory",
        oldest_reader: 3,
        additive: true,
        oceanbase: statements!(
            "oceanbase",
            "0003_memory",
            [
                "1_artifacts.sql",
                "2_artifact_heads.sql",
                "3_artifact_lineage_sources.sql",
                "4_artifact_lineage_artifacts.sql",
                "5_memory_entry_versions.sql",
                "6_memory_entry_heads.sql",
            ]
        ),
        sqlite: statements!(
            "sqlite",
            "0003_memory",
            [
                "1_artifacts.sql",
                "2_artifact_heads.sql",
                "3_artifact_lineage_sources.sql",
                "4_artifact_lineage_artifacts.sql",
                "5_memory_entry_versions.sql",
                "6_memory_entry_heads.sql",
                "7_memory_entry_search.sql",
                "8_memory_entry_search_insert.sql",
                "9_memory_entry_search_update.sql",
                "10_memory_entry_search_delete.sql",
            ]
        ),
    },
    Revision {
        number: 4,
        name: "rate_limit",
        oldest_reader: 3,
        additive: true,
        oceanbase: statements!("oceanbase", "0004_rate_limit", ["1_rate_limit_windows.sql"]),
        sqlite: statements!(
            "sqlite",
            "0004_rate_limit",
            ["1_rate_limit_windows.sql", "2_rate_limit_windows_expiry.sql"]
        ),
    },
    Revision {
        number: 5,
        name: "model_usage",
        oldest_reader: 3,
        additive: true,
        oceanbase: statements!("oceanbase", "0005_model_usage", ["1_model_usage_daily.sql"]),
        sqlite: statements!("sqlite", "0005_model_usage", ["1_model_usage_daily.sql"]),
    },
    Revision {
        number: 6,
        name: "processing_supervisor",
        oldest_reader: 3,
        additive: true,
        oceanbase: statements!(
            "oceanbase",
            "0006_processing_supervisor",
            [
                "1_runtime_members.sql",
                "2_artifact_processing_binding_states.sql",
                "3_scheduler_scans.sql",
                "4_artifact_processing_slots.sql",
                "5_artifact_processing_admitted.sql",
            ]
        ),
        sqlite: statements!(
            "sqlite",
            "0006_processing_supervisor",
            [
                "1_runtime_members.sql",
                "2_artifact_processing_binding_states.sql",
                "3_scheduler_scans.sql",
                "4_artifact_processing_slots.sql",
                "5_artifact_processing_admitted.sql",
                "6_runtime_members_role_expiry.sql",
            ]
        ),
    },
    Revision {
        number: 7,
        name: "work_acts",
        oldest_reader: 3,
        additive: true,
        oceanbase: statements!("oceanbase", "0007_work_acts", ["1_work_acts.sql"]),
        sqlite: statements!("sqlite", "0007_work_acts", ["1_work_acts.sql"]),
    },
    #[cfg(feature = "next-version")]
    NEXT,
];

/// The step that a next release could add, for the tests of mixed versions: nothing but a table more.
#[cfg(feature = "next-version")]
const NEXT: Revision = Revision {
    number: 8,
    name: "next_version",
    oldest_reader: 3,
    additive: true,
    oceanbase: &[Statement {
        file: "0008_next_version/1_work_origins.sql",
        sql: "CREATE TABLE pc_work_origins (work_id VARBINARY(36) NOT NULL, origin VARBINARY(64) NOT NULL, PRIMARY KEY (work_id))",
    }],
    sqlite: &[Statement {
        file: "0008_next_version/1_work_origins.sql",
        sql: "CREATE TABLE pc_work_origins (work_id TEXT NOT NULL PRIMARY KEY, origin TEXT NOT NULL) STRICT, WITHOUT ROWID",
    }],
};

/// The newest revision this build knows; the schema it works on.
pub const TARGET: u32 = if cfg!(feature = "next-version") { 8 } else { 7 };

/// The oldest revision whose tables this build can work on when a newer build says so.
pub const READABLE_FROM: u32 = 3;

/// Every statement of a fresh schema, in order.
pub fn all_statements(dialect: Dialect) -> impl Iterator<Item = &'static Statement> {
    BOOTSTRAP
        .statements(dialect)
        .iter()
        .chain(REVISIONS.iter().flat_map(move |revision| revision.statements(dialect)))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::PathBuf;

    use super::*;

    const DIALECTS: [(Dialect, &str); 2] = [(Dialect::OceanBase, "oceanbase"), (Dialect::Sqlite, "sqlite")];

    fn folder(dialect: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../migrations")
            .join(dialect)
    }

    fn files_on_disk(dialect: &str) -> Vec<String> {
        let mut files = Vec::new();
        for revision in std::fs::read_dir(folder(dialect)).expect("the folder of the dialect") {
            let revision = revision.expect("an entry").path();
            if !revision.is_dir() {
                continue;
            }
            let name = revision.file_name().expect("a name").to_string_lossy().into_owned();
            for file in std::fs::read_dir(&revision).expect("the folder of the revision") {
                let file = file.expect("an entry").file_name().to_string_lossy().into_owned();
                let number: u32 = file.split('_').next().and_then(|n| n.parse().ok()).expect("N_name.sql");
                files.push((name.clone(), number, file));
            }
        }
        files.sort();
        files
            .into_iter()
            .map(|(folder, _, file)| format!("{folder}/{file}"))
            .collect()
    }

    #[test]
    fn the_embedded_list_is_the_folders() {
        for (dialect, name) in DIALECTS {
            let embedded: Vec<_> = all_statements(dialect)
                .map(|statement| statement.file.to_owned())
                .collect();
            assert_eq!(embedded, files_on_disk(name), "{name}");
        }
    }

    #[test]
    fn the_fresh_schema_is_the_sum_of_the_steps() {
        for (dialect, name) in DIALECTS {
            let mut sum = String::new();
            for statement in all_statements(dialect) {
                if !sum.is_empty() {
                    sum.push('\n');
                }
                writeln!(sum, "-- {}\n{};", statement.file, statement.sql.trim_end()).expect("a string");
            }
            let path = folder(name).join("schema.sql");
            let stored = std::fs::read_to_string(&path).expect("schema.sql");
            assert!(stored == sum, "{} is not the sum of its steps", path.display());
        }
    }

    #[test]
    fn revisions_count_up_and_their_numbers_are_those_of_their_folders() {
        for (at, revision) in REVISIONS.iter().enumerate() {
            let number = u32::try_from(at + 1).expect("few");
            assert_eq!(revision.number, number);
            assert!((1..=number).contains(&revision.oldest_reader));
            for (dialect, _) in DIALECTS {
                let prefix = format!("{number:04}_{}/", revision.name);
                assert!(revision.statements(dialect).iter().all(|s| s.file.starts_with(&prefix)));
            }
        }
        assert_eq!(REVISIONS.last().map(|revision| revision.number), Some(TARGET));
    }

    /// Checksums of the revisions that are out. A database that holds one of them refuses a build that has it otherwise, so
    /// a line here never changes; a new revision adds its own.
    const FROZEN: &str = include_str!("../../../../tests/golden/frozen/revisions.txt");

    #[test]
    fn revisions_that_are_out_never_change() {
        for (dialect, name) in DIALECTS {
            for revision in REVISIONS {
                let line = format!(
                    "{name} {:04}_{} {}",
                    revision.number,
                    revision.name,
                    revision.checksum(dialect)
                );
                let is_out = revision.number <= 7;
                assert!(
                    !is_out || FROZEN.lines().any(|frozen| frozen == line),
                    "not as it was frozen: {line}"
                );
            }
        }
    }

    #[test]
    fn a_statement_is_one_statement_and_a_changed_one_changes_the_checksum() {
        for (dialect, name) in DIALECTS {
            for statement in all_statements(dialect) {
                let body = statement.sql.trim_end();
                assert!(!body.ends_with(';'), "{name}/{}", statement.file);
                assert!(body.starts_with("CREATE "), "{name}/{}", statement.file);
            }
        }
        let sums: std::collections::BTreeSet<_> = REVISIONS
            .iter()
            .flat_map(|revision| DIALECTS.map(|(dialect, _)| revision.checksum(dialect)))
            .collect();
        assert_eq!(sums.len(), 2 * REVISIONS.len());
    }
}
