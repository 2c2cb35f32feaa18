//! What is set and changes nothing: no fault, but somebody expected something of it.

use super::keys;

/// A setting that is set in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Targets of external skills, which this release does nothing with.
    ExternalSkillsIgnored,
    /// A path for the schedules of older releases.
    SchedulerPathIgnored,
    /// A token although nobody has to authenticate.
    TokenUnused,
}

impl Notice {
    /// The variable.
    pub const fn key(self) -> &'static str {
        match self {
            Self::ExternalSkillsIgnored => keys::EXTERNAL_SKILLS.name,
            Self::SchedulerPathIgnored => keys::SCHEDULER_PATH.name,
            Self::TokenUnused => keys::AUTH_TOKEN.name,
        }
    }

    /// Why it changes nothing.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ExternalSkillsIgnored => "ignored: this release does nothing with external skills",
            Self::SchedulerPathIgnored => "ignored: work is scheduled in the database",
            Self::TokenUnused => {
                "nobody is asked for the token, because POWERCONTEXT_SERVER_AUTH_ENABLED is false: everything is open to whoever reaches the server"
            }
        }
    }
}
