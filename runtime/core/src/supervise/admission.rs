//! Whether one scope of a family is admitted now: by an automatic scan, or because an invocation is owed.
//!
//! Both only ever make an item in an empty lane. A scope whose lane holds an item is busy, whatever its state; it is passed
//! over and never waited for. A scan marks what it has decided on with its generation, so that a scan which begins again
//! after a crash admits nothing twice.

use crate::supervise::intent::Intent;
use crate::supervise::scan::ScanGeneration;

/// What the decision looks at; read under the locks of lane and intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The scope's counters.
    pub intent: Intent,
    /// The newest scan that decided on this scope.
    pub last_scan: ScanGeneration,
    /// Whether the lane holds no live item.
    pub is_lane_empty: bool,
    /// Whether the family wants the scope at all, such as a Profile whose policy is on.
    pub is_wanted: bool,
}

/// What becomes of the scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// An item is made.
    Admit {
        /// Whether `requested` is raised, or an invocation that is owed already is taken up.
        raise: bool,
    },
    /// Nothing is made; the scan remembers that it was here.
    Mark,
    /// Nothing changes.
    Pass,
}

/// What an automatic scan of this generation does about a scope.
pub fn by_scan(situation: &Situation, scan: ScanGeneration) -> Decision {
    let Situation {
        intent,
        last_scan,
        is_lane_empty,
        is_wanted,
    } = situation;
    if *last_scan >= scan || !intent.is_dirty() {
        return Decision::Pass;
    }
    match (intent.is_owed(), is_lane_empty) {
        // Busy: the item that lives reads what is pending.
        (_, false) => Decision::Mark,
        // Its rows were lost; the request that was accepted is served, whatever the family wants now.
        (true, true) => Decision::Admit { raise: false },
        (false, true) if *is_wanted => Decision::Admit { raise: true },
        (false, true) => Decision::Pass,
    }
}

/// Whether an invocation that is owed is taken up. It needs no schedule and no dirty input.
pub fn by_debt(intent: &Intent, is_lane_empty: bool) -> Decision {
    if intent.is_owed() && is_lane_empty {
        Decision::Admit { raise: false }
    } else {
        Decision::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::intent::{Clean, Dirty, Handled, Requested};

    const SCAN: ScanGeneration = ScanGeneration::from_row(7);

    /// Dirty, owed, lane empty, wanted.
    fn situation([is_dirty, is_owed, is_lane_empty, is_wanted]: [bool; 4]) -> Situation {
        let intent = Intent::from_row(
            Dirty::from_row(3),
            Clean::from_row(if is_dirty { 2 } else { 3 }),
            Requested::from_row(5),
            Handled::from_row(if is_owed { 4 } else { 5 }),
        );
        Situation {
            intent: intent.expect("in order"),
            last_scan: ScanGeneration::from_row(6),
            is_lane_empty,
            is_wanted,
        }
    }

    #[test]
    fn a_scan_decides_every_situation() {
        use Decision::{Admit, Mark, Pass};
        // dirty, owed, lane empty, wanted
        for (at, decided) in [
            ([true, false, true, true], Admit { raise: true }),
            ([true, false, true, false], Pass),
            ([true, true, true, true], Admit { raise: false }),
            ([true, true, true, false], Admit { raise: false }),
            ([true, false, false, true], Mark),
            ([true, false, false, false], Mark),
            ([true, true, false, true], Mark),
            ([true, true, false, false], Mark),
            ([false, false, true, true], Pass),
            ([false, false, true, false], Pass),
            ([false, true, true, true], Pass),
            ([false, true, true, false], Pass),
            ([false, false, false, true], Pass),
            ([false, false, false, false], Pass),
            ([false, true, false, true], Pass),
            ([false, true, false, false], Pass),
        ] {
            let situation = situation(at);
            assert_eq!(by_scan(&situation, SCAN), decided, "{at:?}");
            for seen in [SCAN, ScanGeneration::from_row(8)] {
                let again = Situation {
                    last_scan: seen,
                    ..situation
                };
                assert_eq!(by_scan(&again, SCAN), Pass, "{at:?} was seen");
            }
        }
    }

    #[test]
    fn what_is_owed_is_taken_up_only_in_an_empty_lane() {
        for (owed, empty, decided) in [
            (true, true, Decision::Admit { raise: false }),
            (true, false, Decision::Pass),
            (false, true, Decision::Pass),
            (false, false, Decision::Pass),
        ] {
            for dirty in [true, false] {
                assert_eq!(by_debt(&situation([dirty, owed, empty, true]).intent, empty), decided);
            }
        }
    }
}
