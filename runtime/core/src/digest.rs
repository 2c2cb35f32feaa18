//! Digests that name lanes and logical keys. Their input is part of the stored format (`work-ledger`, digests).

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::ids::{BindingName, FamilyName, ScopeId, TextFault, WorkKind};

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{b:02x}");
            text
        })
}

/// SHA-256 of bytes as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn check_hex(text: &str) -> Result<(), TextFault> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        Ok(())
    } else {
        Err(TextFault::Pattern {
            pattern: "[0-9a-f]{64}",
        })
    }
}

macro_rules! digest_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Reads a stored digest.
            ///
            /// # Errors
            /// [`TextFault::Pattern`] unless it is 64 lower-case hex digits.
            pub fn parse(text: impl Into<String>) -> Result<Self, TextFault> {
                let text = text.into();
                check_hex(&text)?;
                Ok(Self(text))
            }

            /// The 64 hex digits.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

digest_key! {
    /// Names a lane: one consistency domain, in which work runs one after the other. Sorts in lock order.
    LaneKey
}
digest_key! {
    /// Names what a work item stands for; at most one effect exists per key and cursor position (I1).
    LogicalKey
}

digest_key! {
    /// Names a principal in rows that need not say who it is.
    PrincipalKey
}

impl PrincipalKey {
    /// Key of a principal: digest of its type, NUL, its id.
    pub fn of(kind: &str, id: &str) -> Self {
        Self(sha256_hex(format!("{kind}\0{id}").as_bytes()))
    }
}

impl LaneKey {
    /// The lane of a family's work in a scope: digest of `family:scope`.
    pub fn of(family: &FamilyName, scope: &ScopeId) -> Self {
        Self(sha256_hex(format!("{family}:{scope}").as_bytes()))
    }
}

impl LogicalKey {
    /// Key of work that reads behind a cursor, or of a binding's work that has none: digest of the JSON array
    /// `[kind, scope, binding]`, without white space and with non-ASCII text kept. Never a position or a generation,
    /// so a window planned anew keeps its key.
    pub fn of(kind: &WorkKind, scope: &ScopeId, binding: &BindingName) -> Self {
        let parts = serde_json::Value::from(vec![kind.as_str(), scope.as_str(), binding.as_str()]);
        Self(sha256_hex(parts.to_string().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_pinned_to_their_documented_input() {
        let scope = ScopeId::parse("équipe").expect("valid");
        let lane = LaneKey::of(&FamilyName::memory(), &scope);
        assert_eq!(lane.as_str(), sha256_hex("memory:équipe".as_bytes()));
        let kind = WorkKind::parse("powercontext.memory.source-window").expect("valid");
        let binding = BindingName::parse("memory-source-window").expect("valid");
        let key = LogicalKey::of(&kind, &scope, &binding);
        let input = r#"["powercontext.memory.source-window","équipe","memory-source-window"]"#;
        assert_eq!(key.as_str(), sha256_hex(input.as_bytes()));
    }

    #[test]
    fn a_principal_is_keyed_by_its_type_nul_and_id() {
        let key = PrincipalKey::of("service", "server-token");
        assert_eq!(key.as_str(), sha256_hex(b"service\0server-token"));
        assert_ne!(PrincipalKey::of("a", "bc"), PrincipalKey::of("ab", "c"));
    }

    #[test]
    fn only_a_full_lower_case_digest_is_read_back() {
        let good = sha256_hex(b"x");
        assert!(LaneKey::parse(good.clone()).is_ok());
        assert!(LaneKey::parse(good.to_uppercase()).is_err());
        assert!(LaneKey::parse(&good[1..]).is_err());
    }
}
