//! The fixed window of the request limit: which window a moment lies in, and whether one more request fits (I15).
//!
//! All replicas share one count per principal, policy and window, and only the database's clock says which window it is.
//! The store counts with a guarded update; what the guard means, and what a client is told, is decided here.

use std::num::NonZeroU32;

use crate::time::{DbTime, Span};

/// The policy of the HTTP surface. Part of the stored key: another policy counts apart.
pub const HTTP_POLICY: &str = "http.default.v1";

/// How many requests fit into a window, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    requests: NonZeroU32,
    window_seconds: NonZeroU32,
}

impl Quota {
    /// So many requests in each window of so many seconds.
    pub const fn new(requests: NonZeroU32, window_seconds: NonZeroU32) -> Self {
        Self {
            requests,
            window_seconds,
        }
    }

    /// Most requests of a window.
    pub const fn requests(self) -> u32 {
        self.requests.get()
    }

    /// Length of a window in seconds.
    pub const fn window_seconds(self) -> u32 {
        self.window_seconds.get()
    }

    /// The window that `now` lies in. Windows start at whole multiples of their length since 1970, so that every replica
    /// names the same one.
    pub fn window_at(self, now: DbTime) -> Window {
        let length = i64::from(self.window_seconds.get()) * 1_000_000;
        let starts = DbTime::from_micros(now.micros().div_euclid(length).saturating_mul(length));
        let expires = starts.plus(Span::seconds(u64::from(self.window_seconds.get())));
        Window { starts, expires }
    }

    /// Requests that still fit beside those counted.
    pub const fn remaining(self, counted: u64) -> u64 {
        (self.requests.get() as u64).saturating_sub(counted)
    }

    /// Whether one more request fits beside those counted: the guard of the store's update, in words.
    pub fn decide(self, counted: u64, window: Window, now: DbTime) -> Decision {
        if self.remaining(counted) > 0 {
            Decision::Allowed
        } else {
            Decision::Denied {
                retry_after_seconds: window.seconds_left(now),
            }
        }
    }
}

/// A window: from its start up to its expiry, which it does not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    starts: DbTime,
    expires: DbTime,
}

impl Window {
    /// When it starts.
    pub const fn starts(self) -> DbTime {
        self.starts
    }

    /// When the next one starts.
    pub const fn expires(self) -> DbTime {
        self.expires
    }

    /// Whole seconds until the next window, rounded up and at least 1.
    pub fn seconds_left(self, now: DbTime) -> u32 {
        let micros = self.expires.micros().saturating_sub(now.micros()).max(1);
        u32::try_from((micros.saturating_sub(1)) / 1_000_000 + 1).unwrap_or(u32::MAX)
    }
}

/// What the limit says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is counted and may go on.
    Allowed,
    /// It is not counted and may not.
    Denied {
        /// Whole seconds until the next window, at least 1.
        retry_after_seconds: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(requests: u32, window_seconds: u32) -> Quota {
        let nonzero = |n| NonZeroU32::new(n).expect("not zero");
        Quota::new(nonzero(requests), nonzero(window_seconds))
    }

    fn at(micros: i64) -> DbTime {
        DbTime::from_micros(micros)
    }

    #[test]
    fn windows_meet_at_whole_multiples_of_their_length() {
        let quota = quota(1, 60);
        for (now, starts) in [
            (0, 0),
            (59_999_999, 0),
            (60_000_000, 60_000_000),
            (60_000_001, 60_000_000),
            (-1, -60_000_000),
        ] {
            let window = quota.window_at(at(now));
            assert_eq!(window.starts(), at(starts), "{now}");
            assert_eq!(window.expires(), at(starts + 60_000_000), "{now}");
        }
    }

    #[test]
    fn exactly_the_quota_fits() {
        let quota = quota(3, 60);
        let now = at(0);
        let window = quota.window_at(now);
        let denied = Decision::Denied {
            retry_after_seconds: 60,
        };
        for (counted, remaining, decision) in [
            (0, 3, Decision::Allowed),
            (2, 1, Decision::Allowed),
            (3, 0, denied),
            // A quota that was lowered while a window was open.
            (9, 0, denied),
        ] {
            assert_eq!(quota.remaining(counted), remaining);
            assert_eq!(quota.decide(counted, window, now), decision);
        }
    }

    #[test]
    fn the_wait_is_rounded_up_and_never_zero() {
        let window = quota(1, 60).window_at(at(0));
        for (now, seconds) in [
            (0, 60),
            (1, 60),
            (58_999_999, 2),
            (59_000_000, 1),
            (59_999_999, 1),
            // The clock went past the end between the two statements.
            (60_000_000, 1),
            (90_000_000, 1),
        ] {
            assert_eq!(window.seconds_left(at(now)), seconds, "{now}");
        }
    }
}
