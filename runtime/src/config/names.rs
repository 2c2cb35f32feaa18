//! Rules of the settings that name something: an address, a database, a folder.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr as _;

use powercontext_core::location::{Location as Named, LocationFault};
use secrecy::SecretString;
use sqlx::mysql::MySqlConnectOptions;

use super::rule::{Reason, Rule};

/// Where the database is.
#[derive(Clone)]
pub enum DatabaseLocation {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// URL of an OceanBase server; the driver reads it.
    OceanBase(SecretString),
}

impl fmt::Debug for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite at {}", path.display()),
            Self::OceanBase(_) => f.write_str("oceanbase"),
        }
    }
}

/// What kind of text Memory is extracted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtractionProfile {
    /// Work on software.
    Coding,
    /// Conversations.
    Conversation,
}

impl ExtractionProfile {
    /// Its name in the settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Coding => "coding",
            Self::Conversation => "conversation",
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Console,
    /// One JSON object a line.
    Json,
}

/// Kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    Sqlite,
    OceanBase,
}

impl DatabaseLocation {
    pub(super) fn kind(&self) -> DatabaseKind {
        match self {
            Self::Sqlite(_) => DatabaseKind::Sqlite,
            Self::OceanBase(_) => DatabaseKind::OceanBase,
        }
    }
}

/// An address to listen on.
pub(super) struct Host;

impl Rule for Host {
    type Out = IpAddr;

    fn accepted(&self) -> Cow<'static, str> {
        "an IPv4 or IPv6 address, or localhost".into()
    }

    fn read(&self, text: &str) -> Option<IpAddr> {
        if text.eq_ignore_ascii_case("localhost") {
            return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        bare.unwrap_or(text).parse().ok()
    }
}

/// A URL of OceanBase or the path of a SQLite file.
pub(super) struct Location;

impl Rule for Location {
    type Out = DatabaseLocation;

    fn accepted(&self) -> Cow<'static, str> {
        "mysql://USER:PASSWORD@HOST:PORT/DATABASE (also oceanbase:// or mysql+aoceanbase://), or the path of a SQLite file"
            .into()
    }

    fn read(&self, text: &str) -> Option<DatabaseLocation> {
        Some(match Named::read(text).ok()? {
            Named::OceanBase(rest) => {
                server(rest)?;
                DatabaseLocation::OceanBase(SecretString::from(text))
            }
            Named::Sqlite(path) => DatabaseLocation::Sqlite(PathBuf::from(path)),
        })
    }

    fn refused(&self, text: &str) -> Option<Reason> {
        let fault = Named::read(text).err()?;
        (fault == LocationFault::InMemory).then(|| fault.to_string().into())
    }

    fn shown(&self, text: &str) -> Option<String> {
        Some(match Named::read(text).ok()? {
            Named::OceanBase(rest) => {
                let server = server(rest)?;
                let database = server.get_database().unwrap_or_default();
                format!("oceanbase at {}:{}/{database}", server.get_host(), server.get_port())
            }
            Named::Sqlite(path) => format!("sqlite at {path}"),
        })
    }
}

/// The server and database of a URL without its scheme, as the driver reads it.
fn server(rest: &str) -> Option<MySqlConnectOptions> {
    let options = MySqlConnectOptions::from_str(&format!("mysql://{rest}")).ok()?;
    let is_named = options.get_database().is_some_and(|name| !name.is_empty());
    is_named.then_some(options)
}

/// A folder.
pub(super) struct Folder;

impl Rule for Folder {
    type Out = PathBuf;

    fn accepted(&self) -> Cow<'static, str> {
        "the path of a folder".into()
    }

    fn read(&self, text: &str) -> Option<PathBuf> {
        (!text.trim().is_empty()).then(|| PathBuf::from(text))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn an_address_is_a_number_or_localhost() {
        let read = |text: &str| Host.read(text).map(|ip| ip.to_string());
        for (text, ip) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("[::]", "::"),
            ("localhost", "127.0.0.1"),
        ] {
            assert_eq!(read(text).as_deref(), Some(ip));
        }
        for text in ["", "example.com", "127.0.0.1:80", "[::1", "300.1.1.1"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_database_is_a_url_of_oceanbase_or_a_path() {
        for scheme in powercontext_core::location::OCEANBASE_SCHEMES {
            let url = format!("{scheme}u:hunter2@h:2881/pc?charset=utf8mb4");
            let Some(DatabaseLocation::OceanBase(kept)) = Location.read(&url) else {
                panic!("{scheme}: not read");
            };
            assert_eq!(kept.expose_secret(), url);
            assert_eq!(format!("{:?}", DatabaseLocation::OceanBase(kept)), "oceanbase");
        }
        for (text, path) in [
            ("/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:b.db", "b.db"),
        ] {
            let Some(DatabaseLocation::Sqlite(found)) = Location.read(text) else {
                panic!("{text}: not read");
            };
            assert_eq!(found, PathBuf::from(path));
        }
        let memory = "a database in memory is lost at the end of the process; name a file";
        for (text, reason) in [
            ("", None),
            ("  ", None),
            ("sqlite://", None),
            ("postgres://h/d", None),
            ("mysql://u:p@h:2881", None),
            ("mysql://u:p@h:x/d", None),
            ("mysql://u:p@h:1/d?ssl-mode=perhaps", None),
            (":memory:", Some(memory)),
            ("sqlite::memory:", Some(memory)),
        ] {
            let error = Location.parse(text).expect_err("refused");
            assert_eq!(
                error,
                reason.map_or_else(|| format!("must be {}", Location.accepted()), str::to_owned),
                "{text:?}"
            );
        }
    }
}
