//! Condition types and reasons: closed sets, so that alerts and tests can name every one of them.
//!
//! A condition is written with one of these types and one of these reasons and nothing else. The message beside them is
//! for people and may change; types and reasons are part of the interface.

use std::fmt;

/// What a condition speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The generation that is observed is completely rolled out and every role that should run is ready.
    Ready,
    /// The operator is on its way to the observed generation.
    Progressing,
    /// Something keeps the operator or the roles from what the spec says and does not go away by waiting.
    Degraded,
    /// The schema is the one that the image needs.
    Migrated,
    /// The Workers are as the spec says.
    WorkersReady,
    /// The Schedulers are as the spec says.
    SchedulersReady,
    /// The APIs are as the spec says.
    ApisReady,
    /// The operator changes nothing.
    Paused,
    /// The image cannot work on the schema there is; what runs is left alone.
    UpgradeBlocked,
}

impl ConditionType {
    /// Every type, in the order of the status.
    pub const ALL: [Self; 9] = [
        Self::Ready,
        Self::Progressing,
        Self::Degraded,
        Self::Migrated,
        Self::WorkersReady,
        Self::SchedulersReady,
        Self::ApisReady,
        Self::Paused,
        Self::UpgradeBlocked,
    ];

    /// As it stands in the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::Migrated => "Migrated",
            Self::WorkersReady => "WorkersReady",
            Self::SchedulersReady => "SchedulersReady",
            Self::ApisReady => "ApisReady",
            Self::Paused => "Paused",
            Self::UpgradeBlocked => "UpgradeBlocked",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Why a condition has its value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// As it stands in the status.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    /// Nothing to say: the state one hopes for.
    AsExpected,
    /// Everything is rolled out and ready.
    Complete,
    /// `spec.paused` is true.
    Paused,
    /// The schema is being migrated.
    Migrating,
    /// The migration waits for its next attempt.
    MigrationRetrying,
    /// The migration for this image has succeeded.
    MigrationSucceeded,
    /// The migrator refused the database; no further attempt is made.
    MigrationRefused,
    /// The migrator refused its settings; no further attempt is made.
    MigrationMisconfigured,
    /// The migration used up its attempts.
    MigrationFailed,
    /// `migration.policy: Supervised` waits for the approval annotation.
    ApprovalRequired,
    /// Schedulers are down while the coordination mode is changed.
    SwitchingMode,
    /// The Job that changes the mode has failed.
    ModeSwitchFailed,
    /// The image is older than the oldest that may read the schema.
    SchemaAhead,
    /// Work of a newer payload version is still queued, and the image cannot run it.
    NewerPayloadsQueued,
    /// An earlier step of the roll-out is not done.
    Waiting,
    /// Pods are being replaced or added.
    RollingOut,
    /// Pods run, and the role's members do not report the new build yet.
    WaitingForMembers,
    /// Surplus Workers finish what they hold before they go.
    Draining,
    /// The role is meant to have no pod.
    ScaledToZero,
    /// Fewer pods are ready than there should be.
    PodsNotReady,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// A container ends again and again.
    ContainerCrashing,
    /// A pod cannot be scheduled or created.
    PodNotCreated,
    /// A secret that the spec names does not exist.
    SecretMissing,
    /// A secret that the spec names has no such key.
    SecretKeyMissing,
    /// A secret holds a value that the roles cannot use.
    SecretInvalid,
    /// The spec says something that the schema's rules could not catch.
    InvalidSpec,
    /// An object of that name exists and belongs to somebody else.
    NameTaken,
    /// The API server refused an object.
    ApplyFailed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn types_and_reasons_have_names_of_their_own_that_kubernetes_accepts() {
        let types: BTreeSet<_> = ConditionType::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(types.len(), ConditionType::ALL.len());
        let reasons: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(reasons.len(), Reason::ALL.len());
        for name in types.iter().chain(&reasons) {
            assert!(
                name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric()),
                "{name}"
            );
        }
    }
}
