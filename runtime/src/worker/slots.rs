//! How many of each kind a worker may take now. A pure function: the claim loop counts, this decides.

use powercontext_core::ids::WorkKind;

/// What one kind does here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    /// The kind.
    pub(super) kind: WorkKind,
    /// Most runs of it at once; `None` for no cap of its own.
    pub(super) cap: Option<u32>,
    /// Runs of it now.
    pub(super) running: u32,
    /// Runs of it whose family's part is over and whose end is being written.
    pub(super) ending: u32,
    /// Whether none may start now; what runs still takes its slot.
    pub(super) is_held: bool,
}

/// How many of each kind to claim. `concurrency` is shared by all; a kind that runs none here may have one beyond it, so
/// that long runs of one family never keep another out. Kinds are named in rotation, starting at `turn`.
///
/// A run whose end is being written has no slot any more, so that the next one need not wait for the database. While the
/// database takes no ends, no more is claimed than [`held_max`].
pub(super) fn wanted(usage: &[Usage], concurrency: u32, turn: usize) -> Vec<(WorkKind, u32)> {
    let running: u32 = usage.iter().map(|kind| kind.running).sum();
    let ending: u32 = usage.iter().map(|kind| kind.ending).sum();
    let room = held_max(concurrency).saturating_sub(running + ending);
    let mut free = concurrency.saturating_sub(running).min(room);
    let mut wanted = Vec::new();
    for offset in 0..usage.len() {
        let kind = &usage[(turn + offset) % usage.len()];
        if kind.is_held {
            continue;
        }
        let own = u32::from(kind.running + kind.ending == 0);
        let cap = kind.cap.map_or(u32::MAX, |cap| cap.saturating_sub(kind.running));
        let take = free.max(own).min(cap);
        free = free.saturating_sub(take);
        if take > 0 {
            wanted.push((kind.kind.clone(), take));
        }
    }
    wanted
}

/// Most items that a worker holds beside those beyond the shared slots: a run in each slot, and as many ends being written.
pub(super) fn held_max(concurrency: u32) -> u32 {
    concurrency.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(name: &str, cap: Option<u32>, running: u32) -> Usage {
        Usage {
            kind: WorkKind::parse(name).expect("valid"),
            cap,
            running,
            ending: 0,
            is_held: false,
        }
    }

    fn shown(usage: &[Usage], concurrency: u32, turn: usize) -> Vec<(String, u32)> {
        wanted(usage, concurrency, turn)
            .into_iter()
            .map(|(kind, n)| (kind.to_string(), n))
            .collect()
    }

    fn pairs(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
        expected.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect()
    }

    #[test]
    fn a_kind_takes_what_is_free_up_to_its_cap() {
        assert_eq!(shown(&[usage("a", Some(4), 0)], 4, 0), pairs(&[("a", 4)]));
        assert_eq!(shown(&[usage("a", Some(4), 3)], 4, 0), pairs(&[("a", 1)]));
        assert_eq!(shown(&[usage("a", Some(2), 1)], 8, 0), pairs(&[("a", 1)]));
        assert_eq!(shown(&[usage("a", Some(4), 4)], 4, 0), pairs(&[]));
        assert_eq!(shown(&[usage("a", None, 0)], 3, 0), pairs(&[("a", 3)]));
    }

    #[test]
    fn a_kind_that_runs_none_has_one_slot_beyond_the_shared_ones() {
        let busy = [usage("a", None, 4), usage("b", None, 0)];
        assert_eq!(shown(&busy, 4, 0), pairs(&[("b", 1)]));
        let both = [usage("a", None, 4), usage("b", None, 1)];
        assert_eq!(shown(&both, 4, 0), pairs(&[]));
    }

    #[test]
    fn kinds_take_turns() {
        let idle = [usage("a", None, 0), usage("b", None, 0)];
        assert_eq!(shown(&idle, 2, 0), pairs(&[("a", 2), ("b", 1)]));
        assert_eq!(shown(&idle, 2, 1), pairs(&[("b", 2), ("a", 1)]));
    }

    #[test]
    fn a_held_kind_is_not_wanted_and_still_counts() {
        let held = |name: &str, running| Usage {
            is_held: true,
            ..usage(name, None, running)
        };
        assert_eq!(shown(&[held("a", 0)], 4, 0), pairs(&[]));
        let both = [held("a", 3), usage("b", None, 0)];
        for turn in 0..2 {
            assert_eq!(shown(&both, 4, turn), pairs(&[("b", 1)]));
        }
        let full = [held("a", 4), usage("b", None, 1)];
        assert_eq!(shown(&full, 4, 0), pairs(&[]));
    }

    #[test]
    fn an_end_that_is_being_written_takes_no_slot_until_there_are_as_many_as_slots() {
        let ending = |running, ending| {
            let kind = Usage {
                ending,
                ..usage("a", None, running)
            };
            shown(&[kind], 4, 0)
        };
        assert_eq!(ending(0, 4), pairs(&[("a", 4)]));
        assert_eq!(ending(2, 2), pairs(&[("a", 2)]));
        assert_eq!(ending(4, 3), pairs(&[]));
        assert_eq!(ending(2, 5), pairs(&[("a", 1)]));
        assert_eq!(ending(2, 6), pairs(&[]));
        assert_eq!(
            ending(0, 8),
            pairs(&[]),
            "the slot beyond the shared ones is for a kind that has nothing here"
        );
    }

    #[test]
    fn nothing_registered_wants_nothing() {
        assert!(wanted(&[], 4, 3).is_empty());
    }
}
