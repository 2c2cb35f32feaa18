//! Reads of operations that go on: so many a second of each principal are no request in the sense of the limit.
//!
//! The official client looks at its operation five times a second, which a quota of two a second would end in the middle
//! of the wait. The allowance lives in the process and goes by its clock: it decides an exemption and never the quota.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::app::Principal;
use crate::rt;

/// Reads of a principal in any second that are not counted.
const READS_PER_SECOND: usize = 10;
const SECOND: Duration = Duration::from_secs(1);

/// The newest uncounted reads of each principal. Principals are a closed set, so this is bounded.
#[derive(Default)]
pub(super) struct Polls(Mutex<BTreeMap<&'static str, Reads>>);

impl Polls {
    /// Whether the principal may read without being counted first; it has one read less then.
    pub(super) fn take(&self, by: Principal) -> bool {
        let mut polls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        polls.entry(by.id()).or_default().take(rt::now())
    }
}

/// When the newest reads were, as a ring.
#[derive(Default)]
struct Reads {
    at: [Option<Instant>; READS_PER_SECOND],
    oldest: usize,
}

impl Reads {
    fn take(&mut self, now: Instant) -> bool {
        let oldest = &mut self.at[self.oldest];
        if oldest.is_some_and(|at| now.saturating_duration_since(at) < SECOND) {
            return false;
        }
        *oldest = Some(now);
        self.oldest = (self.oldest + 1) % READS_PER_SECOND;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_ten() {
        let start = rt::now();
        let mut reads = Reads::default();
        // One try each 10 ms for three seconds: ten at once in each second, none in between.
        let taken: Vec<u64> = (0..300)
            .map(|n| n * 10)
            .filter(|ms| reads.take(start + Duration::from_millis(*ms)))
            .collect();
        let expected: Vec<u64> = [0, 1000, 2000]
            .iter()
            .flat_map(|s| (0..10).map(move |n| s + n * 10))
            .collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn five_a_second_are_never_refused_nor_are_two_clients_at_that_pace() {
        let start = rt::now();
        let mut reads = Reads::default();
        for n in 0..200 {
            for _ in 0..2 {
                assert!(reads.take(start + Duration::from_millis(200 * n)), "{n}");
            }
        }
    }

    #[test]
    fn principals_have_an_allowance_each() {
        let polls = Polls::default();
        let taken = |by| (0..READS_PER_SECOND).filter(|_| polls.take(by)).count();
        assert_eq!(taken(Principal::ServerToken), READS_PER_SECOND);
        assert_eq!(taken(Principal::Local), READS_PER_SECOND);
    }
}
