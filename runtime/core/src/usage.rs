//! What model calls are for: closed names, under which their cost is added up per scope and day.

use crate::ids::FamilyName;

/// What a call to a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Memory from sources.
    MemoryExtraction,
    /// Experience from sources.
    ExperienceGeneration,
    /// A skill.
    SkillGeneration,
    /// A handoff.
    HandoffGeneration,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 4] = [
        Self::MemoryExtraction,
        Self::ExperienceGeneration,
        Self::SkillGeneration,
        Self::HandoffGeneration,
    ];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryExtraction => "memory_extraction",
            Self::ExperienceGeneration => "experience_generation",
            Self::SkillGeneration => "skill_generation",
            Self::HandoffGeneration => "handoff_generation",
        }
    }

    /// What the runs of a family ask a model for; `None` for a family whose runs ask none.
    pub fn of(family: &FamilyName) -> Option<Self> {
        Some(match family.as_str() {
            "memory" => Self::MemoryExtraction,
            "experience" => Self::ExperienceGeneration,
            "skill" => Self::SkillGeneration,
            "handoff" => Self::HandoffGeneration,
            _ => return None,
        })
    }
}

/// What a model is asked to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelOperation {
    /// Text.
    Generation,
    /// Vectors.
    Embedding,
}

impl ModelOperation {
    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Embedding => "embedding",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_begins_with_the_name_of_its_family() {
        for purpose in Purpose::ALL {
            let (family, _) = purpose.as_str().split_once('_').expect("two words");
            let family = FamilyName::parse(family).expect("valid");
            assert_eq!(Purpose::of(&family), Some(purpose));
        }
        let other = FamilyName::parse("maintenance").expect("valid");
        assert_eq!(Purpose::of(&other), None);
    }
}
