//! Settings: from text in flags, environment and env file to values that are checked, all faults at once.
//!
//! One table ([`keys`]) names every setting with its default, its rule and its meaning; reading, checking and
//! `docs/reference/configuration.md` all come from it. What stands in [`Settings`] needs no further check: a default is
//! filled in, ranges and the arithmetic between settings hold. A fault names the setting, where it came from and why it
//! is refused, never the value, which may be a secret.

mod access;
mod deployment;
mod effective;
mod env_file;
mod example;
mod fault;
mod generation;
mod keys;
mod names;
mod notice;
mod reader;
mod reference;
mod rule;
mod settings;
mod spans;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use access::{AccessSettings, HttpSettings};
pub use deployment::{DeploymentMode, DeploymentSettings, MaintenanceSettings, Purpose, SupervisionSettings};
pub use effective::{Effective, Shown};
pub use example::example;
pub use fault::{ConfigFault, Origin};
pub use generation::{GenerationSettings, Provider};
pub use keys::PREFIX;
pub use names::{DatabaseLocation, ExtractionProfile, LogFormat};
pub use notice::Notice;
pub use reference::reference;
pub use settings::{
    CoordinationSettings, DatabaseSettings, LoggingSettings, MemorySettings, OperationsSettings, Settings,
    WorkerSettings,
};
pub use spans::TracingSettings;

/// A setting given on the command line.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag, such as `--port`.
    pub flag: &'static str,
    /// The variable it stands for.
    pub key: &'static str,
    /// Its text, not yet checked.
    pub value: String,
}

impl Flag {
    /// `--host`.
    pub fn host(value: String) -> Self {
        Self {
            flag: "--host",
            key: keys::HTTP_HOST.name,
            value,
        }
    }

    /// `--port`.
    pub fn port(value: String) -> Self {
        Self {
            flag: "--port",
            key: keys::HTTP_PORT.name,
            value,
        }
    }

    /// `--scheduler-path`.
    pub fn scheduler_path(value: String) -> Self {
        Self {
            flag: "--scheduler-path",
            key: keys::SCHEDULER_PATH.name,
            value,
        }
    }
}

/// Where settings come from. Flags win over the environment, the environment over the file, the file over defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The environment; only `main` reads the real one.
    pub env: BTreeMap<String, String>,
    /// A file of `NAME=VALUE` lines.
    pub env_file: Option<PathBuf>,
    /// What the command line said.
    pub flags: Vec<Flag>,
}

/// Reads and checks every setting. Variables that no setting has are ignored.
///
/// # Errors
/// All faults; never empty.
pub fn load(sources: Sources) -> Result<Settings, Vec<ConfigFault>> {
    load_for(sources, Purpose::Role)
}

/// [`load`] for a purpose that may need less than a role does.
///
/// # Errors
/// All faults; never empty.
pub fn load_for(sources: Sources, purpose: Purpose) -> Result<Settings, Vec<ConfigFault>> {
    settings::check(reader(sources), purpose)
}

/// Reads and checks every setting, and says of each what holds and where that came from, in the order of the reference.
///
/// # Errors
/// All faults; never empty.
pub fn load_and_show(sources: Sources) -> Result<(Settings, Vec<Effective>), Vec<ConfigFault>> {
    let reader = reader(sources);
    let given = effective::given(&reader);
    let settings = settings::check(reader, Purpose::Role)?;
    let shown = effective::with_derived(given, &settings);
    Ok((settings, shown))
}

fn reader(sources: Sources) -> reader::Reader {
    let (file, faults) = match &sources.env_file {
        Some(path) => env_file::read(path),
        None => (env_file::Entries::default(), Vec::new()),
    };
    reader::Reader::new(sources.flags, sources.env, file, faults)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
