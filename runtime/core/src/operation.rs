//! The public view of work: which kinds a client may see, and under which name.

use crate::ids::WorkKind;

/// A kind of operation that the public API shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// A Memory invocation.
    MemoryFlush,
    /// An Experience incubation.
    ExperienceIncubation,
}

impl OperationKind {
    /// Every public kind.
    pub const ALL: [Self; 2] = [Self::MemoryFlush, Self::ExperienceIncubation];

    /// The name on the wire.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::MemoryFlush => "memory_flush",
            Self::ExperienceIncubation => "experience_incubation",
        }
    }

    /// The stored work kind.
    pub const fn work_kind(self) -> &'static str {
        match self {
            Self::MemoryFlush => "powercontext.memory.source-window",
            Self::ExperienceIncubation => "powercontext.experience.incubation",
        }
    }

    /// Reads the wire name.
    pub fn from_wire(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.wire() == name)
    }

    /// The public kind of stored work; `None` for internal kinds, which a client cannot see.
    pub fn of(kind: &WorkKind) -> Option<Self> {
        Self::ALL.into_iter().find(|public| public.work_kind() == kind.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_kinds_are_invisible_and_public_ones_round_trip() {
        for kind in OperationKind::ALL {
            assert_eq!(OperationKind::from_wire(kind.wire()), Some(kind));
            assert_eq!(
                OperationKind::of(&WorkKind::parse(kind.work_kind()).expect("valid")),
                Some(kind)
            );
        }
        let internal = WorkKind::parse("powercontext.maintenance.operations").expect("valid");
        assert_eq!(OperationKind::of(&internal), None);
    }
}
