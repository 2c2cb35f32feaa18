//! The spellings of a database: which texts name an OceanBase server, which a SQLite file, and which nothing.
//!
//! Settings judge a text before the store opens what it names, and neither may import the other, so that what they must
//! agree on stands here. The driver still has to read the URL: hosts, ports and parameters are its own. What is refused
//! never shows the text, which may hold a password.

/// Schemes of an OceanBase URL; the last is the spelling of older configurations.
pub const OCEANBASE_SCHEMES: [&str; 3] = ["mysql://", "oceanbase://", "mysql+aoceanbase://"];

const IN_MEMORY: &str = ":memory:";

/// What a text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location<'a> {
    /// An OceanBase server; the URL without its scheme.
    OceanBase(&'a str),
    /// A SQLite file, by its path.
    Sqlite(&'a str),
}

/// Why a text names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocationFault {
    /// Nothing.
    #[error("empty")]
    Empty,
    /// Another scheme.
    #[error("the scheme must be mysql, oceanbase or mysql+aoceanbase; for SQLite give the path of a file")]
    Scheme,
    /// `USER:PASSWORD@HOST` whose scheme was forgotten or misspelt. As the name of a file it would show the password to
    /// everybody who sees the folder.
    #[error("a user and a password, but no scheme (expected mysql://USER:PASSWORD@HOST:PORT/DATABASE)")]
    Login,
    /// A database that would be lost at the end of the process.
    #[error("a database in memory is lost at the end of the process; name a file")]
    InMemory,
}

impl<'a> Location<'a> {
    /// Reads a URL or a path.
    ///
    /// # Errors
    /// [`LocationFault`] saying what is wrong with the text.
    pub fn read(text: &'a str) -> Result<Self, LocationFault> {
        if let Some(rest) = OCEANBASE_SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            return Ok(Self::OceanBase(rest));
        }
        if text.ends_with(IN_MEMORY) {
            return Err(LocationFault::InMemory);
        }
        let path = text
            .strip_prefix("sqlite://")
            .or_else(|| text.strip_prefix("sqlite:"))
            .unwrap_or(text);
        if path.trim().is_empty() {
            Err(LocationFault::Empty)
        } else if path.contains("://") {
            Err(LocationFault::Scheme)
        } else if has_login(path) {
            Err(LocationFault::Login)
        } else {
            Ok(Self::Sqlite(path))
        }
    }
}

fn has_login(path: &str) -> bool {
    let login = path.split_once('@').map_or("", |(login, _)| login);
    login.contains(':') && !path.starts_with(['/', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_everything_else_is_refused_with_its_reason() {
        for scheme in OCEANBASE_SCHEMES {
            let url = format!("{scheme}u:p@h:2881/pc");
            assert_eq!(Location::read(&url), Ok(Location::OceanBase("u:p@h:2881/pc")));
        }
        for (text, path) in [
            ("/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:b.db", "b.db"),
            ("u@h.db", "u@h.db"),
            ("./u:p@h/pc.db", "./u:p@h/pc.db"),
        ] {
            assert_eq!(Location::read(text), Ok(Location::Sqlite(path)), "{text}");
        }
        for (text, fault) in [
            ("", LocationFault::Empty),
            (" ", LocationFault::Empty),
            ("sqlite://", LocationFault::Empty),
            ("postgres://h/d", LocationFault::Scheme),
            ("MYSQL://u:p@h/d", LocationFault::Scheme),
            ("u:p@h:2881/d", LocationFault::Login),
            ("mysql:/u:p@h/d", LocationFault::Login),
            ("sqlite:u:p@h/d", LocationFault::Login),
            (":memory:", LocationFault::InMemory),
            ("sqlite::memory:", LocationFault::InMemory),
        ] {
            assert_eq!(Location::read(text), Err(fault), "{text:?}");
        }
    }
}
