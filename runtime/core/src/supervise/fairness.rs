//! Turns: between families, and between ordinary work and what people or retries ask for inside one.
//!
//! Families take turns at being first, so that none is always looked at last. Inside a family the items that a scan admitted
//! get at least one start in four, whatever explicit requests and retries arrive.

/// Of so many starts at least one is an ordinary scope's, if one waits.
pub const STARTS_PER_ORDINARY: u32 = 4;

/// `0..count`, beginning at another place with each turn.
pub fn rotation(turn: usize, count: usize) -> impl Iterator<Item = usize> {
    let first = turn.checked_rem(count).unwrap_or(0);
    (first..count).chain(0..first)
}

/// Starts of a kind since its last ordinary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartShare {
    others: u32,
}

impl StartShare {
    /// How many of the next `starts` are kept for ordinary items, if so many wait.
    pub fn ordinary_of(self, starts: u32) -> u32 {
        self.others.saturating_add(starts) / STARTS_PER_ORDINARY
    }

    /// The share after `starts`, `ordinary` of them ordinary. When fewer waited than were kept nothing is owed for it.
    #[must_use]
    pub fn after(self, starts: u32, ordinary: u32) -> Self {
        let owed = self.ordinary_of(starts);
        let others = self.others.saturating_add(starts);
        let served = if ordinary < owed { owed } else { ordinary };
        Self {
            others: others.saturating_sub(served.saturating_mul(STARTS_PER_ORDINARY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_first_in_its_turn_and_none_is_left_out() {
        assert_eq!(rotation(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(rotation(4, 3).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(rotation(5, 1).collect::<Vec<_>>(), [0]);
        assert_eq!(rotation(7, 0).count(), 0);
    }

    #[test]
    fn one_start_in_four_is_kept_for_ordinary_items_however_starts_come_in() {
        for sizes in [vec![1; 40], vec![3; 20], vec![16; 4], vec![2, 5, 1, 7, 1]] {
            let mut share = StartShare::default();
            let (mut starts, mut ordinary) = (0, 0);
            for size in sizes {
                let kept = share.ordinary_of(size);
                assert!(kept <= size);
                share = share.after(size, kept);
                starts += size;
                ordinary += kept;
                assert_eq!(ordinary, starts / STARTS_PER_ORDINARY);
            }
        }
    }

    #[test]
    fn a_time_without_ordinary_items_is_not_paid_back() {
        let mut share = StartShare::default();
        for _ in 0..100 {
            share = share.after(4, 0);
        }
        assert_eq!(share.ordinary_of(4), 1);
    }

    #[test]
    fn more_ordinary_starts_than_kept_count_for_the_next_ones() {
        let share = StartShare::default().after(4, 4);
        assert_eq!(share.ordinary_of(3), 0);
        assert_eq!(share.ordinary_of(4), 1);
    }
}
