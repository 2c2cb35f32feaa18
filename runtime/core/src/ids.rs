//! Names and identifiers as types that cannot be mixed up and cannot hold a refused value.
//!
//! Ids are byte-exact (ADR 0003): `Team`, `team` and `team ` are three scopes, and a composed and a decomposed `é`
//! are two. Nothing here folds, trims or normalises; a text is either accepted as it is or refused. Lengths are
//! counted in Unicode characters; the columns hold four times as many bytes.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text cannot be an identifier. Never carries the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// Nothing, or nothing but spaces.
    #[error("must hold at least one character that is not a space")]
    Blank,
    /// More characters than the limit.
    #[error("must be at most {max_chars} characters")]
    TooLong {
        /// Upper limit, in Unicode characters.
        max_chars: usize,
    },
    /// A control character, or one that changes the direction of text.
    #[error("must not hold control or text-direction characters (first at character {at})")]
    Control {
        /// Position of the first refused character, counted from 0.
        at: usize,
    },
    /// Not of the form this kind of name has.
    #[error("must match {pattern}")]
    Pattern {
        /// The form, as a regular expression.
        pattern: &'static str,
    },
}

/// Refuses blank, overlong and control-bearing text.
///
/// Direction marks (U+202A to U+202E, U+2066 to U+2069) are refused with the control characters: they make two
/// different identifiers look alike in a log or a console.
///
/// # Errors
/// [`TextFault`] with the first rule that the text breaks.
pub fn check_text(text: &str, max_chars: usize) -> Result<(), TextFault> {
    let mut blank = true;
    for (at, c) in text.chars().enumerate() {
        if at >= max_chars {
            return Err(TextFault::TooLong { max_chars });
        }
        if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}') {
            return Err(TextFault::Control { at });
        }
        blank &= c.is_whitespace();
    }
    if blank { Err(TextFault::Blank) } else { Ok(()) }
}

fn check_ascii_id(text: &str, max_chars: usize) -> Result<(), TextFault> {
    check_text(text, max_chars)?;
    if text.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
        Ok(())
    } else {
        Err(TextFault::Pattern { pattern: "[!-~]+" })
    }
}

fn check_family(text: &str, max_chars: usize) -> Result<(), TextFault> {
    check_text(text, max_chars)?;
    let mut bytes = text.bytes();
    let head_ok = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
    if head_ok && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        Ok(())
    } else {
        Err(TextFault::Pattern {
            pattern: "[a-z][a-z0-9-]*",
        })
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, max $max:expr, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Longest accepted value, in Unicode characters.
            pub const MAX_CHARS: usize = $max;

            /// Accepts the text exactly as it is.
            ///
            /// # Errors
            /// [`TextFault`] when the text is blank, too long or of another form.
            pub fn parse(text: impl Into<String>) -> Result<Self, TextFault> {
                let text = text.into();
                $check(&text, Self::MAX_CHARS)?;
                Ok(Self(text))
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = TextFault;
            fn try_from(text: String) -> Result<Self, TextFault> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// The owner of a body of sources and artifacts: a project, a person, a conversation. 1 to 256 characters.
    ScopeId, max 256, check_text
}
text_id! {
    /// Name of one source inside its scope and type. 1 to 256 characters.
    SourceId, max 256, check_text
}
text_id! {
    /// Kind of source, `content` in the first release. 1 to 128 characters.
    SourceType, max 128, check_text
}
text_id! {
    /// An artifact family such as `memory` or `topic-memory`; at most 48 characters, so that lease names fit.
    FamilyName, max 48, check_family
}
text_id! {
    /// A registered processor of a family; also the name of its cursor. 1 to 128 printable ASCII characters.
    BindingName, max 128, check_ascii_id
}
text_id! {
    /// What a work item runs, such as `powercontext.memory.source-window`. 1 to 128 printable ASCII characters.
    WorkKind, max 128, check_ascii_id
}
text_id! {
    /// One process start of one server; new at every boot, never reused. 1 to 128 printable ASCII characters.
    MemberId, max 128, check_ascii_id
}
text_id! {
    /// Name of an artifact inside its scope and family. 1 to 128 printable ASCII characters.
    ArtifactId, max 128, check_ascii_id
}
text_id! {
    /// Name of a memory entry, stable over its versions. 1 to 128 printable ASCII characters.
    EntryId, max 128, check_ascii_id
}
text_id! {
    /// Name of one version of a memory entry. 1 to 128 printable ASCII characters.
    EntryVersionId, max 128, check_ascii_id
}

impl SourceType {
    /// The one source type a client can capture.
    pub fn content() -> Self {
        Self("content".to_owned())
    }
}

impl FamilyName {
    /// The `memory` family.
    pub fn memory() -> Self {
        Self("memory".to_owned())
    }
}

impl ArtifactId {
    /// The one Memory artifact of a scope.
    pub fn memory() -> Self {
        Self("memory".to_owned())
    }
}

/// A work item, and the public operation of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkId(Uuid);

impl WorkId {
    /// Takes an identifier that the runtime made or a row holds.
    pub fn new(id: Uuid) -> Self {
        Self(id)
    }

    /// Reads the hyphenated lower-case form.
    ///
    /// # Errors
    /// [`TextFault::Pattern`] when the text is no UUID in that form.
    pub fn parse(text: &str) -> Result<Self, TextFault> {
        const FAULT: TextFault = TextFault::Pattern {
            pattern: "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        };
        let id = Uuid::try_parse(text).map_err(|_| FAULT)?;
        if id.hyphenated().to_string() == text {
            Ok(Self(id))
        } else {
            Err(FAULT)
        }
    }
}

impl fmt::Display for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_at_most_256_characters_however_many_bytes_they_take() {
        for (chars, accepted) in [(255, true), (256, true), (257, false)] {
            for letter in ["a", "é", "記", "𠀋"] {
                assert_eq!(
                    ScopeId::parse(letter.repeat(chars)).is_ok(),
                    accepted,
                    "{chars} of {letter}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_folded_trimmed_or_normalised() {
        let ids = ["Team", "team", "team ", " team", "caf\u{e9}", "cafe\u{301}"];
        let parsed: std::collections::BTreeSet<_> = ids.iter().map(|s| ScopeId::parse(*s).expect("accepted")).collect();
        assert_eq!(parsed.len(), ids.len());
    }

    #[test]
    fn control_and_direction_characters_are_refused_with_their_place() {
        for c in ['\0', '\n', '\u{7f}', '\u{85}', '\u{202e}', '\u{2066}', '\u{2028}'] {
            assert_eq!(
                ScopeId::parse(format!("ab{c}")),
                Err(TextFault::Control { at: 2 }),
                "{c:?}"
            );
        }
    }

    #[test]
    fn blank_text_is_refused() {
        for text in ["", " ", "\u{3000}"] {
            assert_eq!(ScopeId::parse(text), Err(TextFault::Blank));
        }
    }

    #[test]
    fn family_names_follow_their_pattern() {
        for good in ["memory", "topic-memory", "a1"] {
            assert!(FamilyName::parse(good).is_ok(), "{good}");
        }
        for bad in ["Memory", "1a", "a_b", "-a", &"a".repeat(49)] {
            assert!(FamilyName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_work_id_has_one_spelling() {
        let text = "0198f0c2-8b1e-7c3a-9d52-3f7f4f0a1b2c";
        assert_eq!(WorkId::parse(text).expect("canonical").to_string(), text);
        for bad in [
            "0198F0C2-8B1E-7C3A-9D52-3F7F4F0A1B2C",
            "0198f0c28b1e7c3a9d523f7f4f0a1b2c",
            "x",
            "",
        ] {
            assert!(WorkId::parse(bad).is_err(), "{bad}");
        }
    }
}
