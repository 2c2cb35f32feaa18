//! What the database holds, and whether it is what this build works on.
//!
//! Every start calls [`verify`] before it serves: tables, columns, keys, checks and search indexes must be those of the
//! embedded migrations, and the first difference is named. What a newer revision added is no difference when that revision
//! says this build may read it. Nothing here writes.

pub mod ddl;
pub(crate) mod read;

use std::collections::BTreeMap;

use crate::store::conn::Dialect;
use crate::store::error::TxError;
use crate::store::migrate::plan::{Found, Refusal, expected_catalog, plan};
use crate::store::migrate::revisions::TARGET;
use crate::store::schema::ddl::Catalog;
use crate::store::url::DatabaseUrl;

/// A schema that this build can work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Newest complete revision of the database; above `own` while a newer build is being rolled out.
    pub stored: u32,
    /// The revision this build works on.
    pub own: u32,
}

/// Why a process must not start on this database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// It must be migrated first.
    #[error(
        "the database is at schema revision {current} and this build needs {target}: run `powercontext server migrate`"
    )]
    Outdated {
        /// Newest complete revision.
        current: u32,
        /// What this build needs.
        target: u32,
    },
    /// It cannot be used by this build at all.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is not what the migrations make.
    #[error("the schema differs from revision {TARGET}: {0}")]
    Different(Difference),
    /// It did not answer.
    #[error(transparent)]
    Database(#[from] TxError),
}

/// The first place in which a schema is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// Something is not there.
    #[error("{place} is missing")]
    Missing {
        /// Table, or table and column, key or check.
        place: String,
    },
    /// Something is there that no revision makes.
    #[error("{place} is not part of it")]
    Extra {
        /// Where.
        place: String,
    },
    /// Something is defined otherwise.
    #[error("{place} is `{found}` and should be `{expected}`")]
    Other {
        /// Where.
        place: String,
        /// Its definition.
        found: String,
        /// What it should be.
        expected: String,
    },
}

/// Checks that this build can work on the database; every start does so before it serves.
///
/// # Errors
/// [`SchemaFault`] naming the reason or the first difference.
pub async fn verify(url: &DatabaseUrl) -> Result<Verified, SchemaFault> {
    let (dialect, found) = read::found(url).await?;
    judge(dialect, &found)
}

/// The decision of [`verify`], without a database.
///
/// # Errors
/// [`SchemaFault`] naming the reason or the first difference.
pub fn judge(dialect: Dialect, found: &Found) -> Result<Verified, SchemaFault> {
    let plan = plan(dialect, found)?;
    if !plan.steps.is_empty() {
        return Err(SchemaFault::Outdated {
            current: plan.current,
            target: TARGET,
        });
    }
    let expected = expected_catalog(dialect)?;
    match first_difference(&expected, &found.catalog, plan.newer) {
        Some(difference) => Err(SchemaFault::Different(difference)),
        None => Ok(Verified {
            stored: plan.current,
            own: TARGET,
        }),
    }
}

/// The first difference in the order of names; additions count unless they are allowed.
pub fn first_difference(expected: &Catalog, actual: &Catalog, additions_allowed: bool) -> Option<Difference> {
    let Compare { first, .. } = Compare {
        additions_allowed,
        first: None,
    }
    .names("", &expected.tables, &actual.tables)
    .definitions("", &expected.others, &actual.others);
    if first.is_some() {
        return first;
    }
    expected.tables.iter().find_map(|(name, table)| {
        let found = actual.tables.get(name)?;
        let place = format!("{name}.");
        Compare {
            additions_allowed,
            first: None,
        }
        .definitions(&place, &table.columns, &found.columns)
        .definitions(&place, &table.parts, &found.parts)
        .first
    })
}

struct Compare {
    additions_allowed: bool,
    first: Option<Difference>,
}

impl Compare {
    fn names<T>(mut self, prefix: &str, expected: &BTreeMap<String, T>, actual: &BTreeMap<String, T>) -> Self {
        let place = |name: &String| format!("{prefix}{name}");
        let missing = expected.keys().find(|name| !actual.contains_key(*name));
        let extra = actual
            .keys()
            .find(|name| !self.additions_allowed && !expected.contains_key(*name));
        self.first = self
            .first
            .or_else(|| missing.map(|name| Difference::Missing { place: place(name) }))
            .or_else(|| extra.map(|name| Difference::Extra { place: place(name) }));
        self
    }

    fn definitions(self, prefix: &str, expected: &BTreeMap<String, String>, actual: &BTreeMap<String, String>) -> Self {
        let mut this = self.names(prefix, expected, actual);
        this.first = this.first.or_else(|| {
            expected.iter().find_map(|(name, expected)| {
                let found = actual.get(name).filter(|found| *found != expected)?;
                Some(Difference::Other {
                    place: format!("{prefix}{name}"),
                    found: found.clone(),
                    expected: expected.clone(),
                })
            })
        });
        this
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl FnOnce(&mut Catalog)) -> Option<String> {
        let expected = expected_catalog(Dialect::OceanBase).expect("readable");
        let mut actual = expected.clone();
        change(&mut actual);
        first_difference(&expected, &actual, false).map(|difference| difference.to_string())
    }

    #[test]
    fn the_first_difference_is_named() {
        let items = "pc_work_items";
        assert_eq!(changed(|_| {}), None);
        assert_eq!(
            changed(|c| drop(c.tables.remove(items))).as_deref(),
            Some("pc_work_items is missing")
        );
        let table = |c: &mut Catalog, change: fn(&mut ddl::Table)| change(c.tables.get_mut(items).expect("made"));
        for (change, named) in [
            (
                (|t| drop(t.columns.remove("ready_at"))) as fn(&mut ddl::Table),
                "pc_work_items.ready_at is missing",
            ),
            (
                |t| drop(t.columns.insert("payload".to_owned(), "blob".to_owned())),
                "pc_work_items.payload is `blob` and should be `mediumblob not null`",
            ),
            (
                |t| drop(t.columns.insert("mine".to_owned(), "blob".to_owned())),
                "pc_work_items.mine is not part of it",
            ),
            (
                |t| drop(t.parts.remove("ck_pc_work_items_owner")),
                "pc_work_items.ck_pc_work_items_owner is missing",
            ),
            (
                |t| {
                    drop(
                        t.parts
                            .insert("ix_pc_work_items_ready".to_owned(), "index kind".to_owned()),
                    );
                },
                "pc_work_items.ix_pc_work_items_ready is `index kind` and should be `index kind payload_version ready_at`",
            ),
        ] {
            assert_eq!(changed(|c| table(c, change)).as_deref(), Some(named));
        }
        let search = changed(|c| {
            let heads = c.tables.get_mut("pc_memory_entry_heads").expect("made");
            heads.parts.remove("ft_pc_memory_entry_heads_text");
        });
        assert_eq!(
            search.as_deref(),
            Some("pc_memory_entry_heads.ft_pc_memory_entry_heads_text is missing")
        );
    }

    #[test]
    fn additions_of_a_newer_revision_are_no_difference_and_losses_are() {
        let expected = expected_catalog(Dialect::Sqlite).expect("readable");
        let mut actual = expected.clone();
        actual.tables.insert("pc_new".to_owned(), ddl::Table::default());
        actual.others.insert("tr_new".to_owned(), String::new());
        let items = actual.tables.get_mut("pc_work_items").expect("made");
        items.columns.insert("new".to_owned(), "text".to_owned());
        assert_eq!(first_difference(&expected, &actual, true), None);
        assert!(first_difference(&expected, &actual, false).is_some());
        actual.others.remove("pc_memory_entry_search");
        assert_eq!(
            first_difference(&expected, &actual, true)
                .map(|d| d.to_string())
                .as_deref(),
            Some("pc_memory_entry_search is missing")
        );
    }

    #[test]
    fn a_database_without_a_schema_is_told_to_migrate() {
        assert_eq!(
            judge(Dialect::Sqlite, &Found::default()),
            Err(SchemaFault::Outdated {
                current: 0,
                target: TARGET
            })
        );
    }
}
