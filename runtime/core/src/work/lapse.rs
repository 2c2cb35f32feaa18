//! When leases that are over are looked for: as soon as one can be, and no oftener than that needs.

use std::time::Duration;

use crate::time::Span;

/// How long after a look at the leases the next one comes. `next` is how long the lease lasts that ends first, zero where one
/// is over and could not be ended; `None` where nothing is leased.
///
/// A lease that is granted or renewed after the look lasts longer than three heartbeats, so a look a heartbeat meets it long
/// before its end. One that is over and stays so is in somebody's hands: it is looked at `again` after the usual pause.
pub fn next_look(next: Option<Span>, heartbeat: Duration, again: Duration) -> Duration {
    match next {
        None => heartbeat,
        Some(Span::ZERO) => again.min(heartbeat),
        // Spans are whole milliseconds, so the lease may last for the rest of one.
        Some(left) => (left.as_std() + Duration::from_millis(1)).min(heartbeat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_looked_at_when_the_next_one_ends_and_at_each_heartbeat() {
        let (heartbeat, again) = (Duration::from_secs(30), Duration::from_secs(1));
        for (next, expected_ms) in [
            (None, 30_000),
            (Some(0), 1000),
            (Some(1), 2),
            (Some(12_000), 12_001),
            (Some(29_999), 30_000),
            (Some(30_000), 30_000),
            (Some(120_000), 30_000),
        ] {
            let look = next_look(next.map(Span::millis), heartbeat, again);
            assert_eq!(look, Duration::from_millis(expected_ms), "{next:?}");
        }
        // Where a heartbeat comes sooner than the usual pause.
        let second = Duration::from_secs(1);
        assert_eq!(next_look(Some(Span::ZERO), second, 2 * second), second);
    }
}
