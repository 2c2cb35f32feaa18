//! Slots: the places of a family with a cap, over a whole deployment. Whoever runs an item of it holds one of them, so that
//! no two processes together run more than the cap (I13).
//!
//! Slots are numbered from 1. A process takes those up to its own cap; while a deployment rolls out another cap each side
//! keeps to what it knows.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

/// Number of a slot, 1 to 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotNo(NonZeroU16);

impl SlotNo {
    /// Takes a stored number; `None` for one that no slot has.
    pub fn from_row(raw: i64) -> Option<Self> {
        u16::try_from(raw).ok().and_then(NonZeroU16::new).map(Self)
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

/// The slots up to `cap` that are not there yet.
pub fn missing(present: &BTreeSet<SlotNo>, cap: NonZeroU16) -> Vec<SlotNo> {
    let all = (1..=cap.get()).filter_map(NonZeroU16::new).map(SlotNo);
    all.filter(|slot| !present.contains(slot)).collect()
}

/// Which free slots to try for: as many as wanted, from a drawn place on, so that processes that saw the same slots free
/// seldom try for the same ones.
pub fn choose(free: &[SlotNo], wanted: usize, draw: u32) -> Vec<SlotNo> {
    let first = (draw as usize).checked_rem(free.len()).unwrap_or(0);
    let (behind, ahead) = free.split_at(first);
    ahead.iter().chain(behind).take(wanted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(numbers: &[i64]) -> Vec<SlotNo> {
        numbers.iter().filter_map(|n| SlotNo::from_row(*n)).collect()
    }

    #[test]
    fn a_slot_has_a_number_from_one_on() {
        for (raw, number) in [
            (-1, None),
            (0, None),
            (1, Some(1)),
            (65_535, Some(65_535)),
            (65_536, None),
        ] {
            assert_eq!(SlotNo::from_row(raw).map(SlotNo::get), number);
        }
    }

    #[test]
    fn what_is_missing_is_what_lies_up_to_the_cap_and_is_not_there() {
        let cap = NonZeroU16::new(4).expect("not zero");
        for (present, wanted) in [
            (&[][..], &[1, 2, 3, 4][..]),
            (&[2, 4], &[1, 3]),
            (&[1, 2, 3, 4], &[]),
            (&[9], &[1, 2, 3, 4]),
        ] {
            let present = slots(present).into_iter().collect();
            assert_eq!(missing(&present, cap), slots(wanted));
        }
    }

    #[test]
    fn free_slots_are_tried_in_turn_from_a_drawn_place_each_once() {
        let free = slots(&[2, 5, 7]);
        for (wanted, draw, chosen) in [
            (2, 0, &[2, 5][..]),
            (2, 2, &[7, 2]),
            (9, 4, &[5, 7, 2]),
            (0, 1, &[]),
            (1, u32::MAX, &[2]),
        ] {
            assert_eq!(choose(&free, wanted, draw), slots(chosen), "{wanted} from {draw}");
        }
        assert!(choose(&[], 3, 7).is_empty());
    }
}
