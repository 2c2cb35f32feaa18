//! From where on a claim looks for what is ready.
//!
//! A store that keeps deleted index entries for a while (OceanBase, until it has compacted them) has everything that was claimed
//! before the first item that waits, so a look from the beginning takes the longer the more was claimed. What a look has
//! passed over once is not looked at again, but for the moments just before it, and for a whole look every now and then: rows
//! that are committed late, or by a clock that went back, are found by it (I21).

use std::time::Duration;

use crate::time::{DbTime, Span};

/// What is looked at again: a transaction commits so long after its moment, mostly.
pub const AGAIN: Span = Span::seconds(3);
/// How often all is looked at.
pub const WHOLE_EVERY: Duration = Duration::from_secs(10);

/// Where the next look begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadyFrom(Option<DbTime>);

impl ReadyFrom {
    /// The moment; `None` for a whole look, which is due if the last one was so long ago, or never was.
    pub fn next(self, since_whole: Option<Duration>) -> Option<DbTime> {
        self.0.filter(|_| since_whole.is_some_and(|since| since < WHOLE_EVERY))
    }

    /// After a look at `now` whose first item became ready at `first`: nothing waits before that.
    pub fn after(first: Option<DbTime>, now: DbTime) -> Self {
        Self(Some(first.map_or(now, |first| first.min(now)).minus(AGAIN)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_begins_just_before_what_the_last_one_met_and_every_now_and_then_all_is_looked_at() {
        let at = |secs: i64| DbTime::from_micros(secs * 1_000_000);
        let secs = Duration::from_secs;
        for (first, now, expected) in [
            (None, 100, 97),
            (Some(40), 100, 37),
            (Some(100), 100, 97),
            // A clock that goes back between rows.
            (Some(101), 100, 97),
        ] {
            let from = ReadyFrom::after(first.map(at), at(now));
            assert_eq!(from.next(Some(secs(0))), Some(at(expected)), "{first:?} at {now}");
            assert_eq!(from.next(Some(secs(9))), Some(at(expected)));
            assert_eq!(from.next(Some(secs(10))), None);
            assert_eq!(from.next(None), None);
        }
        assert_eq!(
            ReadyFrom::default().next(Some(secs(0))),
            None,
            "nothing was looked at yet"
        );
    }
}
