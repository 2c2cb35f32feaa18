//! How supervision is organised: one Supervisor for all families, or one for each.
//!
//! The mode is stored beside the leases. Whoever takes a lease reads it under that lease's lock and refuses a foreign one,
//! so a process with an old setting cannot lead after a switch (design, "Modes").

use std::borrow::Cow;
use std::fmt;

use crate::ids::{FamilyName, TextFault};

/// How supervision is organised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// One lease for every family.
    Global,
    /// A lease for each family.
    Dedicated,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Global, Self::Dedicated];

    /// The stored name, which is also that of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Dedicated => "dedicated",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Which Supervisor a family belongs to.
    pub fn supervisor_of(self, family: &FamilyName) -> SupervisorKey {
        match self {
            Self::Global => SupervisorKey::Global,
            Self::Dedicated => SupervisorKey::Artifact(family.clone()),
        }
    }

    /// What a process with this setting does about the stored mode.
    pub fn judge(self, stored: Option<Self>) -> ModeJudgement {
        match stored {
            None => ModeJudgement::Store,
            Some(stored) if stored == self => ModeJudgement::Agree,
            Some(stored) => ModeJudgement::Refuse { stored },
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What becomes of a candidate whose setting meets the stored mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeJudgement {
    /// Nobody has led here yet: its mode becomes the stored one.
    Store,
    /// They agree.
    Agree,
    /// It may not lead before the modes agree.
    Refuse {
        /// The stored mode.
        stored: Mode,
    },
}

const ARTIFACT: &str = "artifact:";

/// One logical Supervisor; names its lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SupervisorKey {
    /// The one of all families.
    Global,
    /// The one of this family.
    Artifact(FamilyName),
}

impl SupervisorKey {
    /// The stored name: `global` or `artifact:FAMILY`, at most 57 characters.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Global => Cow::Borrowed("global"),
            Self::Artifact(family) => Cow::Owned(format!("{ARTIFACT}{family}")),
        }
    }

    /// Reads a stored name; `None` for leases that are none of a Supervisor.
    ///
    /// # Errors
    /// [`TextFault`] when what follows `artifact:` names no family.
    pub fn parse(name: &str) -> Result<Option<Self>, TextFault> {
        match name.strip_prefix(ARTIFACT) {
            Some(family) => Ok(Some(Self::Artifact(FamilyName::parse(family)?))),
            None => Ok((name == "global").then_some(Self::Global)),
        }
    }
}

impl fmt::Display for SupervisorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_stored_once_and_then_agreed_with_or_refused() {
        use ModeJudgement::{Agree, Refuse, Store};
        let (global, dedicated) = (Mode::Global, Mode::Dedicated);
        for (own, stored, judged) in [
            (global, None, Store),
            (dedicated, None, Store),
            (global, Some(global), Agree),
            (dedicated, Some(dedicated), Agree),
            (global, Some(dedicated), Refuse { stored: dedicated }),
            (dedicated, Some(global), Refuse { stored: global }),
        ] {
            assert_eq!(own.judge(stored), judged, "{own} meets {stored:?}");
        }
    }

    #[test]
    fn a_family_belongs_to_the_global_supervisor_or_to_its_own() {
        let memory = FamilyName::memory();
        assert_eq!(Mode::Global.supervisor_of(&memory).name(), "global");
        assert_eq!(Mode::Dedicated.supervisor_of(&memory).name(), "artifact:memory");
        for mode in Mode::ALL {
            let key = mode.supervisor_of(&memory);
            assert_eq!(SupervisorKey::parse(&key.name()), Ok(Some(key)));
            assert_eq!(Mode::from_name(mode.as_str()), Some(mode));
        }
    }

    #[test]
    fn other_leases_are_no_supervisors_and_a_broken_family_is_a_fault() {
        assert_eq!(SupervisorKey::parse("schema-migration"), Ok(None));
        assert!(SupervisorKey::parse("artifact:").is_err());
        assert!(SupervisorKey::parse("artifact:Memory").is_err());
        assert_eq!(Mode::from_name("isolated"), None);
    }
}
