//! A binding's automatic scan: begun, paged, ended; and what comes next.
//!
//! A scan has a generation and an upper end, both stored with its checkpoint in the transaction that begins it. What is
//! registered later belongs to the next scan, so a scan ends although new scopes keep coming. It ends when the last page was
//! read, without waiting for any run. A successor that finds one unfinished goes on with the same generation.

use crate::schedule::{Due, Schedule};
use crate::time::DbTime;

/// Number of a scan; grows by one with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanGeneration(u64);

impl ScanGeneration {
    /// Before the first.
    pub const NONE: Self = Self(0);

    /// Takes a stored number.
    pub const fn from_row(raw: u64) -> Self {
        Self(raw)
    }

    /// The number, for the column.
    pub const fn get(self) -> u64 {
        self.0
    }

    #[must_use]
    const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Place of an intent in the order of first registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingSeq(u64);

impl PendingSeq {
    /// Before the first.
    pub const START: Self = Self(0);

    /// Takes a stored number.
    pub const fn from_row(raw: u64) -> Self {
        Self(raw)
    }

    /// The number, for the column.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a binding's row says of its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanState {
    /// Beginning of the newest check, or the fire that it served.
    pub checkpoint: Option<DbTime>,
    /// The newest scan.
    pub generation: ScanGeneration,
    /// Last registration that belongs to the scan, while one is in progress.
    pub upper: Option<PendingSeq>,
}

/// A scan that cannot begin or end as things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanRefused {
    /// One is in progress.
    #[error("a scan is in progress")]
    InProgress,
    /// None is in progress.
    #[error("no scan is in progress")]
    NotInProgress,
}

/// What a leader does next about a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Begin a scan with this checkpoint.
    Begin {
        /// Its checkpoint.
        checkpoint: DbTime,
    },
    /// Read a page of the scan in progress.
    Page,
    /// End the scan in progress without reading on: the schedule is off.
    End,
    /// There is no room. The place is kept, and neither checkpoint nor scan moves.
    Full,
    /// Nothing before this moment; `None` until something is pending.
    Rest(Option<DbTime>),
}

impl ScanState {
    /// A binding that was never checked.
    pub const NEW: Self = Self {
        checkpoint: None,
        generation: ScanGeneration::NONE,
        upper: None,
    };

    /// A scan begins.
    ///
    /// # Errors
    /// [`ScanRefused::InProgress`].
    pub fn begin(self, checkpoint: DbTime, upper: PendingSeq) -> Result<Self, ScanRefused> {
        match self.upper {
            Some(_) => Err(ScanRefused::InProgress),
            None => Ok(Self {
                checkpoint: Some(checkpoint),
                generation: self.generation.next(),
                upper: Some(upper),
            }),
        }
    }

    /// The checks of a binding are counted from this moment on, without one: there is nothing yet that it could find.
    #[must_use]
    pub fn rested(self, moment: DbTime) -> Self {
        Self {
            checkpoint: self.checkpoint.or(Some(moment)),
            ..self
        }
    }

    /// The scan in progress ends; what it admitted stays admitted.
    ///
    /// # Errors
    /// [`ScanRefused::NotInProgress`].
    pub fn end(self) -> Result<Self, ScanRefused> {
        match self.upper {
            None => Err(ScanRefused::NotInProgress),
            Some(_) => Ok(Self { upper: None, ..self }),
        }
    }

    /// What to do at `now`. `is_pending`: something of the binding is dirty; `has_room`: fewer items are due than a family
    /// may have waiting. A check begins only when something is pending, so that a binding at rest writes nothing, and the
    /// first input after a rest is checked at once.
    pub fn next(&self, schedule: &Schedule, now: DbTime, is_pending: bool, has_room: bool) -> Next {
        if self.upper.is_some() {
            return match (schedule.is_enabled(), has_room) {
                (false, _) => Next::End,
                (true, true) => Next::Page,
                (true, false) => Next::Full,
            };
        }
        match schedule.due(self.checkpoint, now) {
            Due::Never => Next::Rest(None),
            Due::At(moment) => Next::Rest(Some(moment)),
            Due::Now { .. } if !is_pending => Next::Rest(None),
            Due::Now { .. } if !has_room => Next::Full,
            Due::Now { checkpoint } => Next::Begin { checkpoint },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn at(seconds: i64) -> DbTime {
        DbTime::from_micros(seconds * 1_000_000)
    }

    const EVERY: Schedule = Schedule::Interval(Span::seconds(60));

    fn scanning() -> ScanState {
        ScanState::NEW.begin(at(100), PendingSeq::from_row(9)).expect("rests")
    }

    #[test]
    fn a_scan_begins_once_and_ends_once() {
        let scanning = scanning();
        assert_eq!(scanning.generation, ScanGeneration::from_row(1));
        assert_eq!(scanning.begin(at(200), PendingSeq::START), Err(ScanRefused::InProgress));
        let ended = scanning.end().expect("in progress");
        assert_eq!((ended.checkpoint, ended.upper), (Some(at(100)), None));
        assert_eq!(ended.end(), Err(ScanRefused::NotInProgress));
        let again = ended.begin(at(200), PendingSeq::START).expect("rests");
        assert_eq!(again.generation, ScanGeneration::from_row(2));
    }

    #[test]
    fn a_rest_is_counted_from_its_first_moment_only() {
        let rested = ScanState::NEW.rested(at(5));
        assert_eq!(rested.next(&EVERY, at(6), true, true), Next::Rest(Some(at(65))));
        assert_eq!(rested.rested(at(50)), rested);
    }

    #[test]
    fn a_resting_binding_begins_when_due_with_input_and_room() {
        let new = ScanState::NEW;
        // pending, room
        for (pending, room, next) in [
            (true, true, Next::Begin { checkpoint: at(5) }),
            (true, false, Next::Full),
            (false, true, Next::Rest(None)),
            (false, false, Next::Rest(None)),
        ] {
            assert_eq!(new.next(&EVERY, at(5), pending, room), next);
            assert_eq!(new.next(&Schedule::Disabled, at(5), pending, room), Next::Rest(None));
            let ended = scanning().end().expect("in progress");
            assert_eq!(ended.next(&EVERY, at(159), pending, room), Next::Rest(Some(at(160))));
        }
        let ended = scanning().end().expect("in progress");
        assert_eq!(
            ended.next(&EVERY, at(160), true, true),
            Next::Begin { checkpoint: at(160) }
        );
    }

    #[test]
    fn a_scan_in_progress_pages_while_there_is_room_whatever_the_time() {
        for now in [at(100), at(10_000)] {
            for pending in [true, false] {
                assert_eq!(scanning().next(&EVERY, now, pending, true), Next::Page);
                assert_eq!(scanning().next(&EVERY, now, pending, false), Next::Full);
            }
        }
    }

    #[test]
    fn a_schedule_switched_off_ends_the_scan_and_one_switched_on_goes_on_from_its_checkpoint() {
        for room in [true, false] {
            assert_eq!(scanning().next(&Schedule::Disabled, at(101), true, room), Next::End);
        }
        let ended = scanning().end().expect("in progress");
        assert_eq!(ended.next(&EVERY, at(130), true, true), Next::Rest(Some(at(160))));
    }
}
