//! Database time. Only it decides leases, due times and rate windows (`docs/architecture.md`, "time").
//!
//! A [`DbTime`] is read once per transaction from the database's own clock. It cannot be made from a process clock
//! and cannot be compared with one, so a machine whose clock is an hour off changes nothing.

use serde::{Deserialize, Serialize};

/// A moment on the database's clock: microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DbTime(i64);

impl DbTime {
    /// Takes the microseconds that the database answered. Only the store calls this.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// This moment less a span; saturates at the beginning of time.
    #[must_use]
    pub fn minus(self, span: Span) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(span.0.saturating_mul(1000)).unwrap_or(i64::MAX)),
        )
    }

    /// This moment plus a span; saturates at the end of time.
    #[must_use]
    pub fn plus(self, span: Span) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(span.0.saturating_mul(1000)).unwrap_or(i64::MAX)),
        )
    }

    /// Whether this moment lies at or before `now`.
    pub fn has_passed(self, now: Self) -> bool {
        self <= now
    }

    /// Time from `earlier` to this moment, zero when it lies after.
    pub fn since(self, earlier: Self) -> Span {
        let micros = self.0.saturating_sub(earlier.0).max(0);
        Span(micros.unsigned_abs() / 1000)
    }
}

/// A length of time in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of so many milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(millis)
    }

    /// A span of so many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// The span in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The span as the standard library's type, for sleeping.
    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_passed_at_its_own_instant() {
        let t = DbTime::from_micros(5_000_000);
        assert!(t.has_passed(t));
        assert!(!t.plus(Span::millis(1)).has_passed(t));
        assert_eq!(t.plus(Span::seconds(2)).since(t), Span::millis(2000));
        assert_eq!(t.since(t.plus(Span::seconds(2))), Span::ZERO);
    }

    #[test]
    fn adding_saturates() {
        let end = DbTime::from_micros(i64::MAX);
        assert_eq!(end.plus(Span::seconds(u64::MAX)), end);
    }
}
