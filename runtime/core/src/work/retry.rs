//! How long a failed item waits, and when it stops trying (design: bounded and unbounded families).

use crate::time::Span;

/// A number drawn once per decision by the caller, so that the decision itself stays a function of its arguments.
/// Uniform over all of `u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jitter(pub u32);

impl Jitter {
    /// A value in `[0, limit]`, uniform.
    fn up_to(self, limit: u64) -> u64 {
        let scaled = u128::from(limit.saturating_add(1)) * u128::from(self.0) / (u128::from(u32::MAX) + 1);
        u64::try_from(scaled).unwrap_or(limit)
    }
}

/// Retry policy of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// A budget of attempts with full jitter, then `failed`: the lane is held until an operator acts.
    Bounded {
        /// Attempts per recovery generation, 1 to 100.
        attempts_max: u32,
        /// Ceiling of the first delay.
        base: Span,
        /// Ceiling of every delay.
        max: Span,
    },
    /// No limit of attempts; the delay doubles and is spread by a fifth either way.
    Unbounded {
        /// First delay before the spread.
        base: Span,
        /// Longest delay before the spread.
        max: Span,
    },
}

/// Delay after the first conflict; doubles while conflicts follow each other.
const CONFLICT_BASE: Span = Span::millis(100);
/// Longest delay after a conflict.
const CONFLICT_MAX: Span = Span::seconds(30);

fn doubled(base: Span, max: Span, times: u32) -> u64 {
    let factor = 1_u64.checked_shl(times).unwrap_or(u64::MAX);
    base.as_millis().saturating_mul(factor).min(max.as_millis())
}

impl RetryPolicy {
    /// 5 attempts, full jitter under 2 s doubling to 300 s.
    pub const BOUNDED: Self = Self::Bounded {
        attempts_max: 5,
        base: Span::seconds(2),
        max: Span::seconds(300),
    };
    /// 30 s doubling to 30 min, spread by 20 %.
    pub const UNBOUNDED: Self = Self::Unbounded {
        base: Span::seconds(30),
        max: Span::seconds(1800),
    };

    /// The limit that an item freezes at enqueue; `None` means no limit.
    pub fn attempts_max(&self) -> Option<u32> {
        match self {
            Self::Bounded { attempts_max, .. } => Some(*attempts_max),
            Self::Unbounded { .. } => None,
        }
    }

    /// Longest delay that may follow attempt `n` (counted from 1), for the log.
    pub fn delay_max(&self, n: u32) -> Span {
        self.delay(n, Jitter(u32::MAX))
    }

    /// Delay before the next attempt after attempt `n` (counted from 1) of this recovery generation failed.
    pub fn delay(&self, n: u32, jitter: Jitter) -> Span {
        let times = n.saturating_sub(1);
        match *self {
            Self::Bounded { base, max, .. } => Span::millis(jitter.up_to(doubled(base, max, times))),
            Self::Unbounded { base, max } => {
                let centre = doubled(base, max, times);
                Span::millis(centre * 4 / 5 + jitter.up_to(centre * 2 / 5))
            }
        }
    }
}

/// Delay after the `streak`-th conflict in a row, counted from 1.
pub fn conflict_delay(streak: u32) -> Span {
    Span::millis(doubled(CONFLICT_BASE, CONFLICT_MAX, streak.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: [Jitter; 5] = [
        Jitter(0),
        Jitter(1),
        Jitter(u32::MAX / 2),
        Jitter(u32::MAX - 1),
        Jitter(u32::MAX),
    ];

    #[test]
    fn bounded_delays_stay_within_zero_and_five_minutes_for_any_attempt() {
        for n in 1..=10_000 {
            for draw in DRAWS {
                let delay = RetryPolicy::BOUNDED.delay(n, draw);
                assert!(delay <= Span::seconds(300), "attempt {n}: {delay:?}");
            }
        }
        assert_eq!(RetryPolicy::BOUNDED.delay(1, Jitter(u32::MAX)), Span::seconds(2));
        assert_eq!(RetryPolicy::BOUNDED.delay(3, Jitter(u32::MAX)), Span::seconds(8));
        assert_eq!(RetryPolicy::BOUNDED.delay(9, Jitter(0)), Span::ZERO);
        assert_eq!(RetryPolicy::BOUNDED.delay(9, Jitter(u32::MAX)), Span::seconds(300));
    }

    #[test]
    fn unbounded_delays_stay_within_24_seconds_and_36_minutes_for_any_attempt() {
        for n in 1..=10_000 {
            for draw in DRAWS {
                let delay = RetryPolicy::UNBOUNDED.delay(n, draw);
                assert!(
                    delay >= Span::seconds(24) && delay <= Span::seconds(36 * 60),
                    "attempt {n}: {delay:?}"
                );
            }
        }
        assert_eq!(RetryPolicy::UNBOUNDED.delay(1, Jitter(0)), Span::seconds(24));
        assert_eq!(RetryPolicy::UNBOUNDED.delay(1, Jitter(u32::MAX)), Span::seconds(36));
        assert_eq!(
            RetryPolicy::UNBOUNDED.delay(10_000, Jitter(u32::MAX)),
            Span::seconds(36 * 60)
        );
    }

    #[test]
    fn conflict_delays_double_from_a_tenth_of_a_second_to_half_a_minute() {
        let millis: Vec<u64> = (1..=12).map(|n| conflict_delay(n).as_millis()).collect();
        assert_eq!(
            millis,
            [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000]
        );
        assert_eq!(conflict_delay(u32::MAX), Span::seconds(30));
    }
}
