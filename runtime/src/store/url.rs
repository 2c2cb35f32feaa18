//! Where the database is: a `mysql://` or `oceanbase://` URL, or the path of a SQLite file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;

/// Prefixes of a URL that names an OceanBase server; the last is the spelling of older configurations.
const OCEANBASE_SCHEMES: [&str; 3] = ["mysql://", "oceanbase://", "mysql+aoceanbase://"];

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
    /// Another scheme.
    #[error("the scheme must be mysql, oceanbase or mysql+aoceanbase; for SQLite give the path of a file")]
    Scheme,
    /// Not a URL that the driver reads.
    #[error("not a valid database URL (expected mysql://USER:PASSWORD@HOST:PORT/DATABASE)")]
    Malformed,
    /// No database in the path.
    #[error("the URL names no database (expected …/DATABASE at its end)")]
    NoDatabase,
    /// Nothing.
    #[error("empty")]
    Empty,
}

impl DatabaseUrl {
    /// Reads a URL or a path.
    ///
    /// # Errors
    /// [`UrlFault`] saying what is expected.
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        if text.trim().is_empty() {
            return Err(UrlFault::Empty);
        }
        if let Some(rest) = OCEANBASE_SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            // The older spelling carries a charset parameter that the driver names the same; others are refused by it.
            let options = MySqlConnectOptions::from_str(&format!("mysql://{rest}")).map_err(|_| UrlFault::Malformed)?;
            if options.get_database().is_none_or(str::is_empty) {
                return Err(UrlFault::NoDatabase);
            }
            return Ok(Self::OceanBase(Box::new(options.charset("utf8mb4"))));
        }
        let path = text
            .strip_prefix("sqlite://")
            .or_else(|| text.strip_prefix("sqlite:"))
            .unwrap_or(text);
        if path.contains("://") {
            return Err(UrlFault::Scheme);
        }
        // `USER:PASSWORD@HOST` without its scheme: no password becomes the name of a file.
        let login = path.split_once('@').map_or("", |(login, _)| login);
        if path.is_empty() {
            Err(UrlFault::Empty)
        } else if login.contains(':') && !path.starts_with(['/', '.']) {
            Err(UrlFault::Malformed)
        } else {
            Ok(Self::Sqlite(PathBuf::from(path)))
        }
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
        for scheme in OCEANBASE_SCHEMES {
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
        assert_eq!(DatabaseUrl::parse("postgres://h/d").err(), Some(UrlFault::Scheme));
        assert_eq!(
            DatabaseUrl::parse("mysql://u:p@h:2881").err(),
            Some(UrlFault::NoDatabase)
        );
        assert_eq!(DatabaseUrl::parse("mysql://u:p@h:x/d").err(), Some(UrlFault::Malformed));
        assert_eq!(DatabaseUrl::parse("u:p@h:2881/d").err(), Some(UrlFault::Malformed));
        assert_eq!(DatabaseUrl::parse("mysql:u:p@h/d").err(), Some(UrlFault::Malformed));
        assert_eq!(DatabaseUrl::parse(" ").err(), Some(UrlFault::Empty));
    }
}
