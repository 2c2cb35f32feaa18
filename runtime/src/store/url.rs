//! Where the database is: a `mysql://` or `oceanbase://` URL, or the path of a SQLite file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use powercontext_core::location::{Location, LocationFault};
use sqlx::mysql::MySqlConnectOptions;

/// A database to open. `Debug` shows neither user nor password.
#[derive(Clone)]
pub enum DatabaseUrl {
    /// An OceanBase server in MySQL mode.
    OceanBase(Box<MySqlConnectOptions>),
    /// A SQLite file.
    Sqlite(PathBuf),
}

/// A text that names no database. Never holds the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// Neither a URL of OceanBase nor the path of a file.
    #[error(transparent)]
    Location(#[from] LocationFault),
    /// Not a URL that the driver reads.
    #[error("not a valid database URL (expected mysql://USER:PASSWORD@HOST:PORT/DATABASE)")]
    Malformed,
    /// No database in the path.
    #[error("the URL names no database (expected …/DATABASE at its end)")]
    NoDatabase,
}

impl DatabaseUrl {
    /// Reads a URL or a path.
    ///
    /// # Errors
    /// [`UrlFault`] saying what is expected.
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        let rest = match Location::read(text)? {
            Location::OceanBase(rest) => rest,
            Location::Sqlite(path) => return Ok(Self::Sqlite(PathBuf::from(path))),
        };
        // The older spelling carries a charset parameter that the driver names the same; others are refused by it.
        let options = MySqlConnectOptions::from_str(&format!("mysql://{rest}")).map_err(|_| UrlFault::Malformed)?;
        if options.get_database().is_none_or(str::is_empty) {
            return Err(UrlFault::NoDatabase);
        }
        Ok(Self::OceanBase(Box::new(options.charset("utf8mb4"))))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OceanBase(options) => {
                write!(
                    f,
                    "oceanbase at {}:{}/{}",
                    options.get_host(),
                    options.get_port(),
                    options.get_database().unwrap_or("")
                )
            }
            Self::Sqlite(path) => write!(f, "sqlite at {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_its_secret_stays_out_of_debug() {
        for scheme in powercontext_core::location::OCEANBASE_SCHEMES {
            let url = DatabaseUrl::parse(&format!("{scheme}user:hunter2@db.example:2881/pc")).expect("valid");
            assert_eq!(format!("{url:?}"), "oceanbase at db.example:2881/pc");
        }
        assert!(matches!(
            DatabaseUrl::parse("/var/lib/pc.db"),
            Ok(DatabaseUrl::Sqlite(_))
        ));
        assert!(matches!(
            DatabaseUrl::parse("sqlite:///var/lib/pc.db"),
            Ok(DatabaseUrl::Sqlite(_))
        ));
    }

    #[test]
    fn what_names_no_database_is_refused() {
        let told = |text: &str| DatabaseUrl::parse(text).err();
        let location = |fault| Some(UrlFault::Location(fault));
        assert_eq!(told("postgres://h/d"), location(LocationFault::Scheme));
        assert_eq!(told("u:p@h:2881/d"), location(LocationFault::Login));
        assert_eq!(told("mysql:u:p@h/d"), location(LocationFault::Login));
        assert_eq!(told(" "), location(LocationFault::Empty));
        assert_eq!(told("mysql://u:p@h:2881"), Some(UrlFault::NoDatabase));
        assert_eq!(told("mysql://u:p@h:x/d"), Some(UrlFault::Malformed));
    }
}
