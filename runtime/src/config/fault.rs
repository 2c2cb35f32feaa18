//! A refused setting: which, from where, why. Never what it said.

use std::borrow::Cow;
use std::fmt;

/// Where the text of a setting came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag(&'static str),
    /// The environment of the process.
    Environment,
    /// A line of the env file, counted from 1.
    EnvFile(usize),
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Environment => f.write_str("environment"),
            Self::EnvFile(line) => write!(f, "env file line {line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting that the server cannot start with. Displayed as `KEY (origin): reason`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} ({origin}): {reason}")]
pub struct ConfigFault {
    /// The variable, or `--env-file` for a line that names none.
    pub key: &'static str,
    /// Where its text came from.
    pub origin: Origin,
    /// What is expected; never holds the value.
    pub reason: Cow<'static, str>,
}

impl ConfigFault {
    pub(super) fn new(key: &'static str, origin: Origin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            key,
            origin,
            reason: reason.into(),
        }
    }
}
