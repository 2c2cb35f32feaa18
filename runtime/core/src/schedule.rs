//! When a family's automatic check is due.
//!
//! A schedule belongs to a family, never to a scope. It is judged against the checkpoint of the last check (the time at
//! which that check began, or the cron fire that it served), so occasions that were missed while nobody ran are one
//! occasion, however many they were. An evaluator of cron expressions is the business of the family that brings one.

use std::fmt;
use std::sync::Arc;

use crate::time::{DbTime, Span};

/// Fires of a cron expression in its time zone.
pub trait Cron: fmt::Debug + Send + Sync {
    /// The newest fire at or before `now`; `None` when there was none.
    fn latest(&self, now: DbTime) -> Option<DbTime>;

    /// The first fire after `moment`; `None` when there is none.
    fn next(&self, moment: DbTime) -> Option<DbTime>;

    /// The expression and its zone, for the digest that members compare and for the log.
    fn text(&self) -> String;
}

/// When a family is checked automatically.
#[derive(Debug, Clone)]
pub enum Schedule {
    /// Never. Explicit requests and owed invocations still run.
    Disabled,
    /// So long after the last check began.
    Interval(Span),
    /// At the fires of an expression, and once at first.
    Cron(Arc<dyn Cron>),
}

/// Whether a check may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Now. The check stores this checkpoint.
    Now {
        /// The beginning of the check, or the fire that it serves.
        checkpoint: DbTime,
    },
    /// Not before this moment.
    At(DbTime),
    /// Not at all.
    Never,
}

impl Schedule {
    /// Whether a check may begin at `now`, after one with this checkpoint. Without a checkpoint it may begin at once.
    pub fn due(&self, checkpoint: Option<DbTime>, now: DbTime) -> Due {
        match (self, checkpoint) {
            (Self::Disabled, _) => Due::Never,
            (Self::Interval(_), None) => Due::Now { checkpoint: now },
            (Self::Interval(span), Some(last)) => {
                let due = last.plus(*span);
                if due.has_passed(now) {
                    Due::Now { checkpoint: now }
                } else {
                    Due::At(due)
                }
            }
            (Self::Cron(cron), None) => Due::Now {
                checkpoint: cron.latest(now).unwrap_or(now),
            },
            (Self::Cron(cron), Some(last)) => match cron.latest(now).filter(|fire| *fire > last) {
                Some(fire) => Due::Now { checkpoint: fire },
                None => cron.next(now).map_or(Due::Never, Due::At),
            },
        }
    }

    /// Whether automatic checks happen at all.
    pub fn is_enabled(&self) -> bool {
        !matches!(self, Self::Disabled)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("disabled"),
            Self::Interval(span) => write!(f, "every {} ms", span.as_millis()),
            Self::Cron(cron) => write!(f, "cron {}", cron.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fires at whole multiples of so many seconds.
    #[derive(Debug)]
    struct Every(i64);

    impl Cron for Every {
        fn latest(&self, now: DbTime) -> Option<DbTime> {
            let step = self.0 * 1_000_000;
            Some(DbTime::from_micros(now.micros().div_euclid(step) * step))
        }

        fn next(&self, moment: DbTime) -> Option<DbTime> {
            self.latest(moment)
                .map(|fire| fire.plus(Span::seconds(self.0.unsigned_abs())))
        }

        fn text(&self) -> String {
            format!("every {} s", self.0)
        }
    }

    fn at(seconds: i64) -> DbTime {
        DbTime::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_disabled_schedule_is_never_due() {
        for checkpoint in [None, Some(at(1))] {
            assert_eq!(Schedule::Disabled.due(checkpoint, at(100)), Due::Never);
        }
    }

    #[test]
    fn an_interval_counts_from_the_beginning_of_the_last_check() {
        let every = Schedule::Interval(Span::seconds(15));
        assert_eq!(every.due(None, at(100)), Due::Now { checkpoint: at(100) });
        assert_eq!(every.due(Some(at(100)), at(114)), Due::At(at(115)));
        assert_eq!(every.due(Some(at(100)), at(115)), Due::Now { checkpoint: at(115) });
    }

    #[test]
    fn an_hour_of_missed_intervals_is_one_check() {
        let every = Schedule::Interval(Span::seconds(15));
        let Due::Now { checkpoint } = every.due(Some(at(0)), at(3600)) else {
            panic!("due");
        };
        assert_eq!(every.due(Some(checkpoint), at(3600)), Due::At(at(3615)));
    }

    #[test]
    fn missed_fires_are_one_catch_up_through_the_newest() {
        let cron = Schedule::Cron(Arc::new(Every(60)));
        assert_eq!(cron.due(None, at(90)), Due::Now { checkpoint: at(60) });
        assert_eq!(cron.due(Some(at(60)), at(90)), Due::At(at(120)));
        assert_eq!(cron.due(Some(at(60)), at(3_690)), Due::Now { checkpoint: at(3_660) });
        assert_eq!(cron.due(Some(at(3_660)), at(3_690)), Due::At(at(3_720)));
        // A checkpoint from an interval, between two fires, waits for the next fire.
        assert_eq!(cron.due(Some(at(75)), at(90)), Due::At(at(120)));
    }
}
