//! Ends of runs that the database does not take although it takes heartbeats: how long the lease of such a run is renewed, and
//! what a Worker takes on while it cannot end what it has (I21).
//!
//! Without a limit such a run would keep its lease for as long as its Worker lives, and nobody could take the item over.
//! Moments are spans of the process's own monotonic clock, counted from a start that is the same for all of them.

use std::time::Duration;

/// Whether a run is given up: its end has been tried in vain for a whole lease, or until its lease was over, while the database
/// answered its heartbeats. `tried_for` is `None` before the first try. `left` is how long its lease lasts as far as is known,
/// `None` where it has no time. `unanswered` is how long ago its last heartbeat was answered, counted from the end of a lease
/// that is over. An answer may be that the row was held by somebody, be it by the very end that hangs.
///
/// Where no heartbeat is answered either the database is away, and nothing is wrong with the Worker once it is back.
pub fn is_given_up(
    tried_for: Option<Duration>,
    left: Option<Duration>,
    unanswered: Duration,
    lease: Duration,
    heartbeat: Duration,
) -> bool {
    let (Some(tried), Some(left)) = (tried_for, left) else {
        return false;
    };
    unanswered <= 2 * heartbeat && (left.is_zero() || tried >= lease)
}

/// How much a Worker may take on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// What it has slots for.
    All,
    /// One item, to learn whether its end is taken.
    One,
    /// Nothing: its items would be run for nothing, and cost an attempt each.
    Nothing,
}

/// What became of the ends of a Worker's runs so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ends {
    written: Option<Duration>,
    in_vain: Option<Duration>,
}

impl Ends {
    /// The database has taken an end.
    #[must_use]
    pub fn written(self, at: Duration) -> Self {
        Self {
            written: self.written.max(Some(at)),
            in_vain: None,
        }
    }

    /// An end that was first tried at `since` was given up at `at`. It says nothing about the Worker if another was taken since:
    /// then it is that item whose rows cannot be had. May be told again.
    #[must_use]
    pub fn given_up(self, since: Duration, at: Duration) -> Self {
        if self.written.is_some_and(|written| written >= since) {
            return self;
        }
        Self {
            in_vain: self.in_vain.max(Some(at)),
            ..self
        }
    }

    /// What may be taken on now by a Worker that holds so many items. What was given up is leased for another lease at most, and
    /// for one more those items are left to others.
    pub fn room(&self, now: Duration, lease: Duration, held: usize) -> Room {
        match self.in_vain {
            None => Room::All,
            Some(at) if held > 0 || now < at + 2 * lease => Room::Nothing,
            Some(_) => Room::One,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(100);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_run_is_given_up_once_its_end_was_tried_for_a_lease_while_heartbeats_were_answered() {
        for (tried, left, unanswered, expected) in [
            (None, Some(100), 0, false),
            (Some(0), Some(100), 0, false),
            (Some(99), Some(1), 0, false),
            (Some(100), Some(100), 0, true),
            (Some(9999), Some(100), 0, true),
            // The last answer is nearly two, two, and more than two heartbeats ago.
            (Some(100), Some(51), 49, true),
            (Some(100), Some(50), 50, true),
            (Some(100), Some(49), 51, false),
            // The lease is over: its row was always held, or the database was away.
            (Some(30), Some(0), 20, true),
            (Some(30), Some(0), 100, false),
            (None, Some(0), 0, false),
            // A lease without a time ends with its process.
            (Some(9999), None, 0, false),
        ] {
            assert_eq!(
                is_given_up(tried.map(secs), left.map(secs), secs(unanswered), LEASE, secs(25)),
                expected,
                "tried for {tried:?}, left {left:?}, unanswered for {unanswered}"
            );
        }
    }

    #[test]
    fn a_worker_whose_ends_are_not_taken_takes_nothing_and_then_one_at_a_time() {
        let new = Ends::default();
        let mute = new.given_up(secs(10), secs(110));
        let later = mute.given_up(secs(20), secs(120));
        for (ends, now, held, expected) in [
            // Nothing was given up.
            (new, 0, 0, Room::All),
            (new, 0, 32, Room::All),
            (new.written(secs(5)), 6, 3, Room::All),
            // Its leases end, then others have a lease's time for the items, then one is tried.
            (mute, 110, 0, Room::Nothing),
            (mute, 309, 0, Room::Nothing),
            (mute, 310, 0, Room::One),
            (mute, 310, 1, Room::Nothing),
            // The last one counts, however often and in which order it is told.
            (later, 310, 0, Room::Nothing),
            (later, 320, 0, Room::One),
            (later.given_up(secs(10), secs(110)), 310, 0, Room::Nothing),
            // One end that is taken is enough, and what was first tried before it counts no more.
            (mute.written(secs(115)), 116, 16, Room::All),
            (mute.written(secs(115)).given_up(secs(20), secs(120)), 121, 0, Room::All),
            (
                mute.written(secs(115)).given_up(secs(115), secs(215)),
                216,
                0,
                Room::All,
            ),
            (
                mute.written(secs(115)).given_up(secs(116), secs(216)),
                217,
                0,
                Room::Nothing,
            ),
            // What was written before the first try says nothing of it.
            (
                new.written(secs(9)).given_up(secs(10), secs(110)),
                111,
                0,
                Room::Nothing,
            ),
        ] {
            assert_eq!(
                ends.room(secs(now), LEASE, held),
                expected,
                "{ends:?} at {now} with {held}"
            );
        }
    }
}
