//! What a migration has to do, as a pure function of what the database holds.
//!
//! Nothing is guessed: a database that this build did not make, cannot read, or finds half made is refused with the reason
//! and left as it is. Forward only; there is no step back.

use crate::store::conn::Dialect;
use crate::store::migrate::revisions::{BOOTSTRAP, REVISIONS, Revision, TARGET};
use crate::store::schema::ddl::{Catalog, Object};

/// A row of `pc_schema_revisions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRevision {
    /// 1, 2, 3 and so on.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Checksum of the statements it was applied from.
    pub checksum: String,
    /// The oldest build, by the newest revision it knows, that may work on it.
    pub oldest_reader: u32,
    /// Whether all its statements ran.
    pub completed: bool,
    /// How many of its statements are known to have run.
    pub statements_done: usize,
}

/// What a database holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Every object whose name begins with `pc_`.
    pub catalog: Catalog,
    /// Rows of `pc_schema_revisions`, by number.
    pub revisions: Vec<StoredRevision>,
}

impl Found {
    /// Newest complete revision, 0 for none.
    pub fn current(&self) -> u32 {
        let completed = self.revisions.iter().filter(|row| row.completed);
        completed.map(|row| row.number).max().unwrap_or(0)
    }
}

/// A revision to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub revision: &'static Revision,
    /// Whether an earlier migration began it.
    pub begun: bool,
    /// Statements that need not run again: those that ran, and one that ran but was not noted.
    pub done: usize,
}

/// What is to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Newest complete revision of the database, 0 for an empty one.
    pub current: u32,
    /// Whether a newer build has been here; this one may work, and does not migrate.
    pub newer: bool,
    /// Revisions to apply.
    pub steps: Vec<Step>,
}

/// A database that is left untouched. Each message says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Tables, and no record of who made them.
    #[error(
        "the database holds {table} but no schema revision: it was not made by this program; use an empty database, or \
         restore pc_schema_revisions from the backup this one came from"
    )]
    Unversioned {
        /// The first such table.
        table: String,
    },
    /// Made by a newer build and not readable by this one.
    #[error(
        "the database is at revision {stored}, which needs a build that knows revision {oldest_reader}; this build knows \
         {own}: run the newer build"
    )]
    Unreadable {
        /// The newest revision there.
        stored: u32,
        /// What a build must know.
        oldest_reader: u32,
        /// What this build knows.
        own: u32,
    },
    /// Applied from other statements.
    #[error(
        "revision {revision} was applied from other statements than this build holds: run the build that made this \
         database, or restore a backup made by this one"
    )]
    Changed {
        /// Which.
        revision: u32,
    },
    /// A step that can be neither finished nor undone safely.
    #[error(
        "revision {revision} is half applied: {file} left an object that is not what it should be, or one is missing; \
         restore the backup made before the migration, then migrate again"
    )]
    HalfApplied {
        /// Which.
        revision: u32,
        /// The statement in question.
        file: &'static str,
    },
    /// An object stands where a step would make one.
    #[error(
        "revision {revision} would create an object that exists already ({file}): move it away, then migrate again"
    )]
    InTheWay {
        /// Which.
        revision: u32,
        /// The statement in question.
        file: &'static str,
    },
    /// The record contradicts itself.
    #[error("pc_schema_revisions contradicts itself at revision {revision}: restore a backup")]
    Record {
        /// Where.
        revision: u32,
    },
    /// The migrations of this build cannot be read by itself.
    #[error("{file} is not a statement that this build can verify")]
    Statement {
        /// Which.
        file: &'static str,
    },
}

/// Decides what to do.
///
/// # Errors
/// [`Refusal`] when nothing may be done.
pub fn plan(dialect: Dialect, found: &Found) -> Result<Plan, Refusal> {
    check_record(found)?;
    let rows = &found.revisions;
    if rows.is_empty() {
        check_unversioned(dialect, found)?;
    }
    let newest = rows.iter().map(|row| row.number).max().unwrap_or(0);
    let oldest_reader = rows.iter().map(|row| row.oldest_reader).max().unwrap_or(0);
    if oldest_reader > TARGET {
        return Err(Refusal::Unreadable {
            stored: newest,
            oldest_reader,
            own: TARGET,
        });
    }
    let mut expected = Catalog::default();
    apply(&mut expected, dialect, &BOOTSTRAP)?;
    let mut steps = Vec::new();
    for revision in REVISIONS {
        let objects = apply(&mut expected, dialect, revision)?;
        let row = rows.iter().find(|row| row.number == revision.number);
        if row.is_some_and(|row| row.checksum != revision.checksum(dialect) || row.name != revision.name) {
            return Err(Refusal::Changed {
                revision: revision.number,
            });
        }
        match row {
            Some(row) if row.completed => {}
            row => steps.push(step(dialect, revision, row, &objects, found, &expected)?),
        }
    }
    Ok(Plan {
        current: found.current(),
        newer: newest > TARGET,
        steps,
    })
}

/// The catalog of a schema that this build has made.
///
/// # Errors
/// [`Refusal::Statement`] when an embedded statement cannot be read.
pub fn expected_catalog(dialect: Dialect) -> Result<Catalog, Refusal> {
    let mut catalog = Catalog::default();
    for revision in std::iter::once(&BOOTSTRAP).chain(REVISIONS) {
        apply(&mut catalog, dialect, revision)?;
    }
    Ok(catalog)
}

fn apply(catalog: &mut Catalog, dialect: Dialect, revision: &Revision) -> Result<Vec<Object>, Refusal> {
    let statements = revision.statements(dialect).iter();
    statements
        .map(|statement| {
            catalog
                .apply(statement.sql)
                .map_err(|_| Refusal::Statement { file: statement.file })
        })
        .collect()
}

/// Revisions count up from 1 without a hole, and only the last may be incomplete.
fn check_record(found: &Found) -> Result<(), Refusal> {
    let mut incomplete = false;
    for (expected, row) in (1_u32..).zip(&found.revisions) {
        if row.number != expected || incomplete {
            return Err(Refusal::Record { revision: row.number });
        }
        incomplete = !row.completed;
    }
    Ok(())
}

fn check_unversioned(dialect: Dialect, found: &Found) -> Result<(), Refusal> {
    let mut own = Catalog::default();
    apply(&mut own, dialect, &BOOTSTRAP)?;
    let names = found.catalog.tables.keys().chain(found.catalog.others.keys());
    match names.filter(|name| !own.tables.contains_key(*name)).min() {
        Some(table) => Err(Refusal::Unversioned { table: table.clone() }),
        None => Ok(()),
    }
}

fn step(
    dialect: Dialect,
    revision: &'static Revision,
    row: Option<&StoredRevision>,
    objects: &[Object],
    found: &Found,
    expected: &Catalog,
) -> Result<Step, Refusal> {
    let mut done = row.map_or(0, |row| row.statements_done);
    if done > objects.len() {
        return Err(Refusal::Record {
            revision: revision.number,
        });
    }
    let noted = done;
    for (at, (object, statement)) in objects.iter().zip(revision.statements(dialect)).enumerate() {
        let number = revision.number;
        let file = statement.file;
        if at < noted {
            if !found.catalog.holds_as(object, expected) {
                return Err(Refusal::HalfApplied { revision: number, file });
            }
        } else if found.catalog.holds(object) {
            if row.is_none() {
                return Err(Refusal::InTheWay { revision: number, file });
            }
            // It ran, and the migrator ended before it noted so. Only the next one can be in that state.
            if at > noted || !found.catalog.holds_as(object, expected) {
                return Err(Refusal::HalfApplied { revision: number, file });
            }
            done = at + 1;
        }
    }
    Ok(Step {
        revision,
        begun: row.is_some(),
        done,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
