//! Fences: the numbers that carry safety (I2). A fence comes out of the store and only grows.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// Number of a claim or of a term. Every write of a holder compares it; an older one changes no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(NonZeroU64);

impl Fence {
    /// The fence of the first claim or term.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Reads a stored fence; `None` for 0, which means "never claimed".
    pub fn from_row(raw: i64) -> Option<Self> {
        u64::try_from(raw).ok().and_then(NonZeroU64::new).map(Self)
    }

    /// The fence as the column holds it.
    pub fn to_row(self) -> i64 {
        i64::try_from(self.0.get()).unwrap_or(i64::MAX)
    }

    /// The next fence after this one; after `None` comes the first.
    #[must_use]
    pub fn after(previous: Option<Self>) -> Self {
        previous.map_or(Self::FIRST, |f| Self(f.0.saturating_add(1)))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_start_at_one_and_strictly_grow() {
        assert_eq!(Fence::from_row(0), None);
        assert_eq!(Fence::from_row(-1), None);
        let first = Fence::after(None);
        assert_eq!(first.to_row(), 1);
        assert!(Fence::after(Some(first)) > first);
    }
}
