//! Lanes that always have more to do.
//!
//! The end that is decided at the claim expects that nothing came into the lane meanwhile. In a lane that never rests that is
//! wrong each time, and costs two round trips; so an end that was decided in vain makes the next one of that lane go by what
//! the rows say, until the lane is empty once. Nothing depends on it but time.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use powercontext_core::digest::LaneKey;

/// Most lanes that are remembered; whoever has more busy ones remembers anew.
const LANES_MAX: usize = 1024;

/// The busy lanes that this process has met.
#[derive(Debug, Default)]
pub(super) struct BusyLanes(Mutex<BTreeSet<LaneKey>>);

impl BusyLanes {
    /// Whether the last end in the lane found more behind it.
    pub(super) fn has(&self, lane: &LaneKey) -> bool {
        self.with(|lanes| lanes.contains(lane))
    }

    /// Remembers what an end found: more behind it, or an empty lane.
    pub(super) fn found(&self, lane: &LaneKey, is_busy: bool) {
        self.with(|lanes| {
            if !is_busy {
                lanes.remove(lane);
            } else if !lanes.contains(lane) {
                if lanes.len() >= LANES_MAX {
                    lanes.clear();
                }
                lanes.insert(lane.clone());
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeSet<LaneKey>) -> T) -> T {
        // No code panics between two changes under this lock.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use powercontext_core::ids::{FamilyName, ScopeId};

    use super::*;

    fn lane(n: usize) -> LaneKey {
        let scope = ScopeId::parse(format!("scope/{n}")).expect("valid");
        LaneKey::of(&FamilyName::memory(), &scope)
    }

    #[test]
    fn a_lane_is_busy_from_an_end_with_more_behind_it_to_one_without() {
        let lanes = BusyLanes::default();
        assert!(!lanes.has(&lane(0)));
        lanes.found(&lane(0), true);
        lanes.found(&lane(1), false);
        assert!(lanes.has(&lane(0)) && !lanes.has(&lane(1)));
        lanes.found(&lane(0), false);
        assert!(!lanes.has(&lane(0)));
    }

    #[test]
    fn so_many_lanes_are_remembered_and_no_more() {
        let lanes = BusyLanes::default();
        for n in 0..=LANES_MAX {
            lanes.found(&lane(n), true);
        }
        assert!(!lanes.has(&lane(0)) && lanes.has(&lane(LANES_MAX)));
        assert_eq!(lanes.with(|lanes| lanes.len()), 1);
    }
}
