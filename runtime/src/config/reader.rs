//! Finds the text of a setting, reads it by its rule, and collects what is wrong.

use std::collections::BTreeMap;

use super::Flag;
use super::env_file::Entries;
use super::fault::{ConfigFault, Origin};
use super::keys::{Default, GROUPS, Key};
use super::rule::Rule;

/// A value and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// The setting is refused; the fault is with the reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused;

/// Reads settings from the sources by their precedence.
pub(super) struct Reader {
    flags: Vec<Flag>,
    env: BTreeMap<String, String>,
    file: Entries,
    faults: Vec<ConfigFault>,
}

impl Reader {
    pub(super) fn new(
        flags: Vec<Flag>,
        env: BTreeMap<String, String>,
        file: Entries,
        faults: Vec<ConfigFault>,
    ) -> Self {
        Self {
            flags,
            env,
            file,
            faults,
        }
    }

    /// A variable of the environment that is no setting of ours.
    pub(super) fn environment(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// What the sources say about a setting, not yet read by any rule.
    pub(super) fn text(&self, name: &str) -> Option<(&str, Origin)> {
        if let Some(flag) = self.flags.iter().find(|flag| flag.key == name) {
            return Some((&flag.value, Origin::Flag(flag.flag)));
        }
        if let Some(text) = self.env.get(name) {
            return Some((text, Origin::Environment));
        }
        let (line, text) = self.file.get(name)?;
        Some((text, Origin::EnvFile(*line)))
    }

    /// Where a setting's text comes from.
    pub(super) fn origin<R>(&self, key: &'static Key<R>) -> Origin {
        self.text(key.name).map_or(Origin::Default, |(_, origin)| origin)
    }

    /// A setting that may be unset.
    pub(super) fn optional<R: Rule>(&mut self, key: &'static Key<R>) -> Result<Option<Given<R::Out>>, Refused> {
        let found = self
            .text(key.name)
            .filter(|(text, _)| !(text.is_empty() && key.rule.is_empty_unset()));
        let (text, origin) = match (found, key.default) {
            (Some(found), _) => found,
            (None, Default::Text(text)) => (text, Origin::Default),
            (None, Default::Unset(_)) => return Ok(None),
        };
        // `main` puts this character where the environment holds something else than text.
        let parsed = if text.contains(['\u{fffd}', '\0']) {
            Err("is not UTF-8 text".into())
        } else {
            key.rule.parse(text)
        };
        match parsed {
            Ok(value) => Ok(Some(Given { value, origin })),
            Err(reason) => {
                self.faults.push(ConfigFault::new(key.name, origin, reason));
                Err(Refused)
            }
        }
    }

    /// A setting that has a default.
    pub(super) fn get<R: Rule>(&mut self, key: &'static Key<R>) -> Result<Given<R::Out>, Refused> {
        let found = self.optional(key)?;
        Ok(found.expect("a setting that is read so has a default: every one is read in every test"))
    }

    /// Refuses a setting that its own rule accepted.
    pub(super) fn refuse<R>(&mut self, key: &'static Key<R>, origin: Origin, reason: impl Into<String>) -> Refused {
        self.faults.push(ConfigFault::new(key.name, origin, reason.into()));
        Refused
    }

    /// The faults in the order of the reference; those of no setting come first.
    pub(super) fn into_faults(mut self) -> Vec<ConfigFault> {
        let place = |name: &str| {
            let mut keys = GROUPS.iter().flat_map(|group| group.keys);
            keys.position(|key| key.name() == name).map_or(0, |at| at + 1)
        };
        self.faults.sort_by_key(|fault| place(fault.key));
        self.faults
    }
}
